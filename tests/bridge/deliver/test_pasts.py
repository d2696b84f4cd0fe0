"""One log, several pasts: its power was cut, it was copied, or restored from a backup. A stamp in
Kafka may then name a record that this log never had, or has no more. At least once, against the
embedded broker; exactly once in test_pasts_kafka.py. 10 s."""

from __future__ import annotations

import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Producer

from aolog import Reader, Writer
from aolog.storage.storage import Storage
from aolog.testing import SimulatedSystem
from bridge.kafka.embedded import EmbeddedBroker
from bridge.kafka.identity import Identity
from tests.bridge.brokers import PARTITIONS, TOPIC, Message, consume
from tests.bridge.forwarders import Forward
from tests.bridge.logs import append, fill, records_of
from tests.bridge.pasts import (
    copy_of,
    numbers,
    once,
    put_back_anew,
    put_back_in_place,
)
from tests.waiting import SOON_S

CUTS = 3
NEVER_S = 1e6  # nothing is committed, or synced, by time


def send_as_they_were(broker: EmbeddedBroker, messages: list[Message]) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
    for m in messages:
        us = -(1 << 63) if m.timestamp_us is None else m.timestamp_us
        stamp = struct.pack("<16sIQq", m.uuid, m.epoch, m.address, us)
        producer.produce(TOPIC, m.value, m.key, m.partition, None, None, m.timestamp_ms,
                         [*m.headers, ("aolog", stamp)])  # fmt: skip  # one call
    assert producer.flush(SOON_S) == 0


# --- power cut --------------------------------------------------------------------------------


@pytest.mark.parametrize("sync", ["never", "interval"])
def test_after_a_power_cut_new_records_arrive_and_forwarded_ones_are_not_sent_again(
    broker: EmbeddedBroker,
    forward: Forward,
    committed: dict[str, list[int]],
    monkeypatch: pytest.MonkeyPatch,
    sync: str,
) -> None:
    """Records were forwarded before they were synced, and the log loses some of them, with the
    cursor committed before (sync="never") or not at all."""
    system = SimulatedSystem(seed=1, piece_bytes=512)
    storage = Storage(system)
    writer = Writer("/log", storage=storage, sync=sync, sync_seconds=NEVER_S, flush_seconds=None)
    append(writer, range(60))
    writer.sync()
    commit_s = 0.05 if sync == "never" else NEVER_S
    run = forward(Path("/log"), storage=storage, commit_s=commit_s)
    run.until(lambda s: s.acknowledged == 60)
    for begin in range(60, 120, 10):
        append(writer, range(begin, begin + 10))
        writer.flush()
    run.until(lambda s: s.acknowledged == 120)
    if sync == "never":
        run.until(lambda s: s.committed == s.position)
    out = consume(broker.bootstrap_servers)
    assert numbers(out) == once(range(120))
    monkeypatch.setattr(Identity, "meet", lambda *_: None)  # several brokers stand for one cluster
    lost = 0
    for survivor in system.power_cut(limit=CUTS):
        with EmbeddedBroker() as other:
            other.create_topic(TOPIC, PARTITIONS)
            send_as_they_were(other, out)
            committed.clear()
            servers = {"bootstrap_servers": other.bootstrap_servers}
            storage = Storage(survivor.system)
            with Reader("/log", storage=storage) as reader:
                lost += 120 - sum(1 for _ in reader)
            with Writer("/log", storage=storage) as writer:
                first = writer.end
                append(writer, range(200, 260))
            assert first > max(m.address for m in out)
            run = forward(Path("/log"), storage=storage, commit_s=NEVER_S, **servers)
            run.until(lambda s: s.acknowledged == 60)
            storage = Storage(survivor.system.kill())  # before a commit
            forward(Path("/log"), storage=storage, drain=True, **servers).end()
            found = consume(other.bootstrap_servers)
            assert numbers(found) == once(range(120), range(200, 260))
            assert {m.address for m in found if m.address >= first} == {
                r.address for r in Reader("/log", first, storage=storage)
            }
    assert lost > 0
    committed.clear()


# --- copies -----------------------------------------------------------------------------------


def part_of(log: Path, count: int, part: int, forward: Forward) -> None:
    """A log of which a part was forwarded."""
    fill(log, count)
    forward(log, until=records_of(log)[part].address).end()


@pytest.mark.parametrize("open_", [False, True], ids=["closed", "open"])
def test_a_log_and_its_copy_are_forwarded_to_one_topic_and_neither_is_taken_for_the_other(
    broker: EmbeddedBroker, log: Path, forward: Forward, *, open_: bool
) -> None:
    part_of(log, 100, 60, forward)
    copy = log.with_name("copy")
    writer = Writer(log)
    if open_:
        append(writer, range(100, 120))
        writer.flush()
        shutil.copytree(log, copy)
    else:
        writer.close()
        shutil.copytree(log, copy)
        writer = Writer(log)
        append(writer, range(100, 120))
        writer.flush()
    shared = range(60, 120 if open_ else 100)
    with Writer(copy) as other:
        append(other, range(1000, 1100))
    forward(copy, drain=True).end()
    append(writer, range(120, 200))
    writer.close()
    forward(log, drain=True).end()
    for turn in range(1, 3):  # each finds what the other has put there meanwhile
        for path, begin in ((log, 200), (copy, 1100)):
            fill(path, range(begin + turn * 50, begin + turn * 50 + 50))
            forward(path, drain=True).end()
    found = numbers(consume(broker.bootstrap_servers))
    for number in shared:  # neither knew whether the other would send them
        assert found.pop(number) in {1, 2}
    rest = set(range(200)) - set(shared)
    assert found == once(rest, range(250, 350), range(1000, 1100), range(1150, 1250))


# --- backups ----------------------------------------------------------------------------------


@pytest.mark.parametrize("put_back", [put_back_anew, put_back_in_place])
@pytest.mark.parametrize("format_", ["aolog", "queuefka"])
def test_an_older_backup_goes_on_with_other_records_and_each_arrives(
    broker: EmbeddedBroker,
    log: Path,
    forward: Forward,
    committed: dict[str, list[int]],
    put_back: Callable[[Path, Path], None],
    format_: str,
) -> None:
    """Put back in place (a snapshot, a copy over the files), nothing in the log shows it, and new
    records get addresses, in the same epoch, that other records had before."""

    def more(begin: int, end: int) -> None:
        with Writer(log, format=format_) as writer:  # type: ignore[arg-type]  # one of the two
            for number in range(begin, end):
                writer.append((b"%d " % number).ljust(20, b"."))

    more(100, 200)
    forward(drain=True).end()
    backup = copy_of(log)
    more(200, 300)
    forward(drain=True).end()
    committed.clear()
    put_back(log, backup)
    more(300, 350)
    forward(drain=True).end()
    more(350, 500)
    forward(drain=True).end()
    assert numbers(consume(broker.bootstrap_servers)) == once(range(100, 500))


def test_what_lanes_held_beyond_the_cursor_is_not_taken_for_what_was_written_again(
    broker: EmbeddedBroker, log: Path, forward: Forward
) -> None:
    """A record without its topic keeps the cursor, and so the next writer of a log that was cut short does not
    know how far the other lanes were."""
    with Writer(log, batch_bytes=0) as writer:
        append(writer, range(10))
        writer.append(b"-1", topic="missing")
        append(writer, range(10, 500))
    run = forward(create_topics="never")
    run.until(lambda s: s.acknowledged == 500)
    run.stop()
    kept = records_of(log)[20].address
    (slab,) = log.glob("*.slab")
    with slab.open("r+b") as file:
        file.truncate(kept)
    with Writer(log, batch_bytes=0) as writer:
        assert writer.end < 100_000
        append(writer, range(1000, 1050))
    run = forward(create_topics="never")
    run.until(lambda s: s.acknowledged == 50, 10.0)
    run.stop()
    assert numbers(consume(broker.bootstrap_servers)) == once(range(500), range(1000, 1050))


@pytest.mark.parametrize("first", ["bridge", "writer"])
def test_what_lanes_held_after_a_sealed_slab_that_is_the_last_one_now_is_not_taken_for_new_records(
    broker: EmbeddedBroker, log: Path, forward: Forward, first: str
) -> None:
    """A record without its topic keeps the cursor. The slabs after it are removed: the next writer continues in the
    same epoch, at addresses that the lanes have passed."""
    with Writer(log, batch_bytes=0) as writer:
        append(writer, range(10))
        writer.append(b"-1", topic="missing")
    with Writer(log, batch_bytes=0) as writer:
        append(writer, range(10, 500))
    run = forward(create_topics="never")
    run.until(lambda s: s.acknowledged == 500)
    run.stop()
    *_, last = sorted(log.glob("*.slab"))
    last.unlink()
    if first == "bridge":
        forward(create_topics="never").stop()
    with Writer(log, batch_bytes=0) as writer:
        append(writer, range(1000, 1050))
    run = forward(create_topics="never")
    run.until(lambda s: s.acknowledged >= 50, 10.0)
    run.stop()
    found = numbers(consume(broker.bootstrap_servers))
    assert found.keys() >= once(range(500), range(1000, 1050)).keys()
