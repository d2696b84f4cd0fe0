"""A bounded log is archived while it is written; the archiver and the store are killed. Then the log and its
archive are one table: each record once, in order. 20 s; with --long 4,000,000 records and gofakes3."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import aolog
from tests.aolog.conftest import SOON_S
from tests.aolog.maintenance.archive.stores import (
    BUCKET,
    STORES,
    Killable,
    Proxy,
    environment,
    make_bucket,
    program,
)

pytest.importorskip("obstore")

from aolog.storage.objects import system as object_system

pytestmark = pytest.mark.xdist_group("object stores")
KILLS = 3
WRITER = """
import sys, aolog
path, count, slab = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
retention = aolog.Retention(max_bytes=8 * slab, when_full="block")
with aolog.Writer(path, slab_bytes=slab, retention=retention, sync_seconds=0.1) as log:
    for number in range(count):
        log.append(b"%d " % number + bytes(90))
        if number % 64 == 0:
            log.flush()
"""


@pytest.fixture
def store(request, tmp_path, monkeypatch) -> Iterator[Killable]:
    """gofakes3, whose process is killed; moto, which forgets everything then, behind a proxy that is away."""
    if request.config.getoption("--long") and program() is not None:
        store = Killable(tmp_path / "store.db")
        make_bucket(store.endpoint)
        set_up(monkeypatch, store.endpoint)
        yield store
        store.kill()
        return
    with STORES["moto"]() as endpoint:
        make_bucket(endpoint)
        proxy = Proxy(endpoint)
        set_up(monkeypatch, proxy.endpoint)
        yield Away(proxy)
        proxy.close()


def set_up(monkeypatch: pytest.MonkeyPatch, endpoint: str) -> None:
    for name, value in environment(endpoint).items():
        monkeypatch.setenv(name, value)
    object_system.object_system.cache_clear()


class Away:
    """A store that does not answer between `kill` and `start`."""

    def __init__(self, proxy: Proxy) -> None:
        self.proxy = proxy

    def kill(self) -> None:
        self.proxy.rule = lambda *_: "drop"

    def start(self) -> None:
        self.proxy.rule = lambda *_: None


class Archiving:
    """`aolog archive --follow` in a process, which is killed and started again."""

    def __init__(self, log: Path, url: str) -> None:
        self._command = [sys.executable, "-m", "aolog", "archive", str(log), url, "--follow",
                         "--ship-after", "1s", "--json"]  # fmt: skip  # a command line
        self.start()

    def start(self) -> None:
        self.process = subprocess.Popen(self._command, stdout=subprocess.PIPE)

    def grown(self) -> int:
        """The archive's end, after the next round that changed it."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, self.process.wait(SOON_S)
        return json.loads(line)["end"]

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(SOON_S)
        assert self.process.stdout is not None
        self.process.stdout.close()


def bytes_of(log: Path) -> int:
    """The size of its slabs, which retention may remove at any moment."""
    total = 0
    for slab in log.glob("*.slab"):
        with contextlib.suppress(FileNotFoundError):
            total += slab.stat().st_size
    return total


def numbers(reader: aolog.Reader) -> list[int]:
    return [int(value.split(b" ")[0]) for value in reader.values()]


def test_a_bounded_log_and_its_archive_have_each_record_once_after_kills(request, store, tmp_path):
    long = request.config.getoption("--long")
    count, slab = (4_000_000, 4 << 20) if long else (30_000, 32 << 10)
    log, url = tmp_path / "log", f"s3://{BUCKET}/{tmp_path.name}"
    aolog.Writer(log, slab_bytes=slab).close()
    with aolog.Reader(log, cursor="archive") as reader:
        reader.commit()  # retention waits for the archive from the first record on
    archiving = Archiving(log, url)
    archiving.grown()
    writer = subprocess.Popen([sys.executable, "-c", WRITER, str(log), str(count), str(slab)])
    most = 0
    try:
        with aolog.Reader(log, archive=url, strict=True) as follower:
            seen: list[int] = []
            for _ in range(KILLS):
                archiving.grown()
                seen += numbers(follower)
                store.kill()
                time.sleep(0.5)
                archiving.kill()
                store.start()
                most = max(most, bytes_of(log))
                archiving.start()
            assert writer.poll() is None, "the kills came while it was written"
            while writer.poll() is None:
                archiving.grown()
                seen += numbers(follower)
                most = max(most, bytes_of(log))
            assert writer.wait() == 0
            seen += numbers(follower)
    finally:
        writer.kill()
        writer.wait()
        archiving.kill()
    assert most <= 9 * slab, "its disk is bounded"
    object_system.object_system.cache_clear()
    with aolog.Reader(log, archive=url, strict=True) as reader:
        assert numbers(reader) == list(range(count))
        assert reader.ordinal == count
    assert seen == list(range(count)), "for a reader that followed it, too"
    with aolog.Reader(log) as reader:
        left = numbers(reader)
    assert 0 < len(left) < count / 2, "retention went on"
    pytest.importorskip("pyspark")
    from tests.spark.driving import table

    found = table([log, url], columns="offset,value", minPartitions=4)
    assert [int(v.split(b" ")[0]) for v in found["value"].to_pylist()] == list(range(count))
    addresses = found["offset"].to_pylist()
    assert addresses == sorted(set(addresses))
