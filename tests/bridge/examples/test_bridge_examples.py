"""The bridge's examples run as their docstrings say."""

from __future__ import annotations

import base64
import json
import time
from pathlib import Path

import pytest

from bridge.examples import msk_iam
from bridge.examples.bad_link import open_buffer
from bridge.testing import FaultyProvider, MemoryProvider
from tests.aolog.examples.test_examples import run


def test_bad_link_delivers_what_it_is_given(tmp_path: Path) -> None:
    to = tmp_path / "delivered"
    run("bridge.examples.bad_link", tmp_path / "log", to, given=b"1\n2\n3\n")
    assert [json.loads(line)["value"] for line in to.read_text().splitlines()] == ["1", "2", "3"]


def test_bad_link_an_outage_longer_than_the_disk_keeps_the_newest_in_order_and_the_bound(
    tmp_path: Path,
) -> None:
    memory, path, disk_bytes = MemoryProvider(), tmp_path / "log", 1 << 20
    link = FaultyProvider(memory)
    link.down, link.retry_wait_s = True, 0.05
    with open_buffer(link, str(path), disk_bytes) as buffer:
        for i in range(4_000):
            buffer.send("measurements", b"%06d" % i + bytes(1_000))
        buffer.flush(10)
        used = sum(file.stat().st_size for file in path.glob("*.slab"))
        assert used <= disk_bytes
        link.down = False
    arrived = [int((message.value or b"")[:6]) for message in memory.messages]
    assert arrived[-1] == 3_999
    unique = sorted(set(arrived))
    assert list(dict.fromkeys(arrived)) == unique  # in order
    assert len(unique) < 4_000  # the outage was longer than the disk
    assert unique[-500:] == list(range(3_500, 4_000))


def test_msk_iam_returns_the_signers_token_and_its_end_in_seconds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("aws_msk_iam_sasl_signer")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "id")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    text, ends_s = msk_iam.token("eu-central-1")
    assert b"kafka-cluster" in base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    assert 60 < ends_s - time.time() < 3_600
