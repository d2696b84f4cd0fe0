"""A bridge on a disk without a free byte, against Apache Kafka: it drains the log, and prunes it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from aolog import Writer
from bridge.testing.apache_kafka.server import KafkaServer
from tests.aolog.conftest import mount, small_disk
from tests.bridge.processes import Start
from tests.kafka.plugin import TopicFactory

__all__ = ["mount", "small_disk"]

pytestmark = pytest.mark.kafka


@pytest.fixture
def disk(small_disk: Callable[[int], Path]) -> Path:
    return small_disk(16 << 20)


def fill_up(disk: Path, keep: int = 0) -> None:
    """Takes what room there is, but for `keep` bytes."""
    with (disk / "ballast").open("wb", buffering=0) as file:
        for size in (1 << 20, 4096, 1):
            with pytest.raises(OSError, match="No space left"):
                while True:
                    file.write(b"x" * size)
        file.truncate(file.tell() - keep)


@pytest.fixture
def drain(
    kafka: KafkaServer, topic: TopicFactory, bridge: Start, disk: Path
) -> Callable[[str], tuple[int, str]]:
    """Drains and prunes the log on the disk: exit status and standard error."""
    name = topic(1)

    def drain(delivery: str) -> tuple[int, str]:
        process = bridge(
            "run", "--log", disk / "log", "--topic", name, "--drain", "--prune",
            "--delivery", delivery, "--bootstrap-servers", kafka.bootstrap_servers,
        )  # fmt: skip  # a command line
        return process.end(120), process.stderr

    return drain


DELIVERIES = pytest.mark.parametrize("delivery", ["at_least_once", "exactly_once"])


@DELIVERIES
def test_a_log_on_a_full_disk_is_drained_and_pruned_after_a_first_start(
    drain: Callable[[str], tuple[int, str]], disk: Path, delivery: str
) -> None:
    log = disk / "log"
    with Writer(log, slab_bytes=1 << 20) as writer:
        writer.append(b"first")
    assert drain(delivery)[0] == 0
    with Writer(log, slab_bytes=1 << 20) as writer:
        for number in range(3_600):
            writer.append(b"%04d" % number * 250)
    fill_up(disk)
    before = len(list(log.glob("*.slab")))
    status, said = drain(delivery)
    assert status == 0, said
    assert "3,600 acknowledged, 0 pending" in said
    assert len(list(log.glob("*.slab"))) < before


@DELIVERIES
def test_a_first_start_on_a_full_disk_names_the_room_it_needs(
    drain: Callable[[str], tuple[int, str]], disk: Path, delivery: str
) -> None:
    with Writer(disk / "log") as writer:
        writer.append(b"first")
    fill_up(disk)
    status, said = drain(delivery)
    assert status == 4
    assert "free 32 KiB, and 8 KiB for its cursor" in said
    fill_up(disk, keep=40 << 10)
    assert drain(delivery)[0] == 0
