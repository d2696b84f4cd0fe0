"""Records that will never be taken, and what keeps one lane from going on: what becomes of them,
and that nothing else waits. Against the embedded broker, which is made to refuse."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from aolog import Reader, Writer
from aolog.errors import StorageFull
from aolog.read.batch import Batch
from aolog.record import Position
from bridge.config.routing import Routing, Rule
from bridge.deliver.dead_letter import DeadLetters
from bridge.deliver.forwarder_options import ForwarderOptions
from bridge.deliver.log_source import LogSource
from bridge.deliver.transform import TransformedBatch
from bridge.deliver.verdicts import Aside
from bridge.errors import Undeliverable, WrongSetting
from bridge.kafka.connection import Connection
from bridge.kafka.embedded import EmbeddedBroker
from bridge.kafka.lane import Refusal
from bridge.kafka.telemetry import REGISTRY
from tests.bridge.brokers import TOPIC, assert_arrived, consume
from tests.bridge.forwarders import WAITS, Forward
from tests.bridge.logs import append, cursor_of, fill, letters, notes_of, records_of, with_large
from tests.bridge.processes import Start

# --- dead letters and drops -----------------------------------------------------------------


def test_a_dead_letter_keeps_the_record_its_origin_and_the_reason(
    broker: EmbeddedBroker, log: Path, forward: Forward
) -> None:
    large = with_large(log)
    reason = {"outcome": "dead_lettered", "reason": "MSG_SIZE_TOO_LARGE"}
    before = REGISTRY.get_sample_value("aolog_bridge_records_rejected_total", reason) or 0
    status = forward(drain=True, poison="dead-letter").end()
    assert REGISTRY.get_sample_value("aolog_bridge_records_rejected_total", reason) == before + 3
    assert (status.dead_lettered, status.dropped, status.acknowledged) == (3, 0, 500)
    assert (status.lag_records, status.standing) == (0, 0)
    found = letters(log)
    assert [letter.origin.address for letter in found] == large
    records = {record.address: record for record in records_of(log)}
    with Reader(log) as reader, Reader(log / "dead-letter") as dead:
        for letter, copy in zip(found, dead, strict=True):
            original = records[letter.origin.address]
            assert (copy.key, copy.value) == (original.key, original.value)
            assert (copy.timestamp, copy.topic) == (original.timestamp, None)
            assert letter.headers == original.headers
            assert (letter.origin.topic_uuid, letter.origin.epoch) == (
                reader.topic_uuid,
                reader.epoch,
            )
            assert (letter.topic, letter.code) == (TOPIC, "MSG_SIZE_TOO_LARGE")
            assert letter.partition in range(4)
            assert "2000002 bytes" in letter.reason
    rest = [record for address, record in records.items() if address not in large]
    assert_arrived(rest, consume(broker.bootstrap_servers))
    with Reader(log) as reader:
        assert cursor_of(log) == reader.end()


def test_a_dropped_record_is_counted_logged_and_passed(
    broker: EmbeddedBroker, log: Path, run: Start
) -> None:
    large = with_large(log)
    process = run("--drain", "--poison", "drop")
    assert process.end() == 0
    assert process.statuses[-1]["dropped"] == 3
    assert process.statuses[-1]["dead_lettered"] == 0
    assert f"dropped 1 record from address {large[0]} on" in process.stderr
    assert not (log / "dead-letter").exists()
    rest = [record for record in records_of(log) if record.address not in large]
    assert_arrived(rest, consume(broker.bootstrap_servers))


@pytest.mark.parametrize("durable", [True, False])
def test_a_crash_between_dead_letter_and_cursor_leaves_one_copy_and_no_delivery(
    broker: EmbeddedBroker,
    log: Path,
    forward: Forward,
    monkeypatch: pytest.MonkeyPatch,
    durable: bool,
) -> None:
    large = with_large(log)
    take = DeadLetters.take

    def dying(self: DeadLetters, *arguments: Any) -> None:
        if durable:
            take(self, *arguments)
        raise KeyboardInterrupt

    monkeypatch.setattr(DeadLetters, "take", dying)
    with pytest.raises(KeyboardInterrupt):
        forward(drain=True, poison="dead-letter").end()
    assert cursor_of(log) <= large[0]
    monkeypatch.setattr(DeadLetters, "take", take)
    settings = {"message.max.bytes": "5000000"} if durable else {}
    status = forward(drain=True, poison="dead-letter", settings=settings).end()
    assert [letter.origin.address for letter in letters(log)] == large[: 1 if durable else 3]
    assert status.dead_lettered == (0 if durable else 3)
    arrived = {m.address for m in consume(broker.bootstrap_servers)}
    assert large[0] not in arrived


def test_a_full_disk_keeps_the_dead_letter_waiting_and_makes_no_second_copy(
    log: Path, forward: Forward, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    large = with_large(log)
    sync, failed = Writer.sync, []

    def full(self: Writer) -> int:
        if len(failed) < 3 and self.path.endswith("dead-letter"):
            failed.append(1)
            assert not any(line.startswith("set aside") for line in caplog.messages)
            raise StorageFull("no space left on device", path=self.path)
        return sync(self)

    monkeypatch.setattr(Writer, "sync", full)
    status = forward(drain=True, poison="dead-letter").end()
    assert len(failed) == 3
    assert [letter.origin.address for letter in letters(log)] == large
    assert status.acknowledged + status.skipped == 500
    told = [line for line in caplog.messages if "set aside" in line]
    assert [line for line in told if line.startswith("no record can be set aside")] == told[:1]
    assert "no space left on device" in told[0]
    assert [int(line.split()[2]) for line in told[1:]] in ([3], [1, 2], [2, 1], [1, 1, 1])


def whole_batch(log: Path) -> Batch:
    with Reader(log) as reader:
        batch = reader.read_batch(1 << 20)
    assert batch is not None
    return batch


def test_a_record_that_a_transform_makes_anew_at_each_try_is_set_aside_once(
    log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(log, 1)
    batch = whole_batch(log)
    (record,) = batch
    asides = [Aside(Position(record.address, None), ("t", 1), Refusal("no", "INVALID_RECORD"))]

    def made_anew(value: bytes) -> TransformedBatch:
        return TransformedBatch(batch.frames, [record._replace(value=value)], {})

    dead = DeadLetters(
        LogSource(log, ForwarderOptions(bootstrap_servers="")), b"a" * 16, "dead-letter"
    )
    with monkeypatch.context() as patched:

        def full(writer: Writer) -> int:
            raise StorageFull("no space left on device", path=writer.path)

        patched.setattr(Writer, "sync", full)
        assert dead.take(asides, made_anew(b"now")) is not None
    assert dead.take(asides, made_anew(b"later")) is None
    dead.close()
    assert [record.value for record in records_of(log / "dead-letter")] == [b"now"]


def test_only_records_of_this_log_after_the_cursor_count_as_set_aside(log: Path) -> None:
    fill(log, 3)
    batch = whole_batch(log)
    records = {record.address for record in batch}
    refusal = Refusal("no", "INVALID_RECORD")
    source = LogSource(log, ForwarderOptions(bootstrap_servers=""))
    for uuid in (b"a" * 16, b"b" * 16):
        dead = DeadLetters(source, uuid, "stop")
        asides = [Aside(Position(a, None), ("t", 1), refusal) for a in records]
        dead.take(asides, batch)
        assert dead.known(0, 0) == records
        assert dead.known(min(records) + 1, 0) == records - {min(records)}
        dead.close()
    assert DeadLetters(source, b"c" * 16, "stop").known(0, 0) == set()
    source.close()
    (slab,) = log.glob("*.slab")  # another program cuts the log short, and it is written again
    os.truncate(slab, min(records))
    fill(log, 3)
    source = LogSource(log, ForwarderOptions(bootstrap_servers=""))
    assert DeadLetters(source, b"a" * 16, "stop").known(0, 0) == set()
    source.close()


# --- other faults: never poison ---------------------------------------------------------------


def only_when_it_is_there(monkeypatch: pytest.MonkeyPatch, name: str) -> list[int]:
    """The embedded broker creates what it is asked for: not this topic, until something is added
    to what comes back."""
    there: list[int] = []
    partitions = Connection.partitions
    missing = Refusal(f"there is no topic {name!r}", "UNKNOWN_TOPIC_OR_PART", passing=True)
    monkeypatch.setattr(
        Connection,
        "partitions",
        lambda self, topic: partitions(self, topic) if there or topic != name else missing,
    )
    return there


def test_a_drain_sets_poison_aside_and_ends_with_an_error_for_a_topic_that_is_missing(
    broker: EmbeddedBroker, log: Path, forward: Forward, monkeypatch: pytest.MonkeyPatch
) -> None:
    only_when_it_is_there(monkeypatch, "late")
    waits = WAITS._replace(topic_s=0.3, refused_pause_s=0.1)
    large = with_large(log)
    with Writer(log) as writer:
        stray = writer.append(b"stray", topic="late")
        append(writer, range(500, 510))
    with pytest.raises(Undeliverable, match="no topic 'late'") as caught:
        forward(drain=True, poison="dead-letter", waits=waits).end()
    assert caught.value.details["address"] == stray == cursor_of(log)
    assert caught.value.details["refusal"] == "UNKNOWN_TOPIC_OR_PART"
    assert "create it" in (caught.value.hint or "")
    assert "dead-letter" not in (caught.value.hint or "")
    assert [letter.origin.address for letter in letters(log)] == large
    assert len(consume(broker.bootstrap_servers)) == 510


def test_a_record_that_names_no_topic_waits_for_a_default(
    broker: EmbeddedBroker, log: Path, forward: Forward
) -> None:
    with Writer(log) as writer:
        writer.append(b"1", topic=TOPIC)
        nowhere = writer.append(b"2")
        writer.append(b"3", topic=TOPIC)
    with pytest.raises(Undeliverable, match="names no topic") as caught:
        forward(drain=True, poison="dead-letter", topic=None).end()
    assert caught.value.details["address"] == nowhere
    assert "--topic" in (caught.value.hint or "")
    assert not (log / "dead-letter").exists()
    assert forward(drain=True, topic="rest").end().acknowledged == 1
    assert [m.address for m in consume(broker.bootstrap_servers, "rest")] == [nowhere]


@pytest.mark.parametrize("killed", [False, True])
def test_after_a_change_of_routing_a_lane_that_is_ahead_gets_its_records_again(
    broker: EmbeddedBroker,
    log: Path,
    forward: Forward,
    monkeypatch: pytest.MonkeyPatch,
    killed: bool,
) -> None:
    """A record waited in another lane; later ones have arrived where it goes now. They arrive twice:
    otherwise they would prove that the record has arrived. killed: the checkpoints are older."""
    only_when_it_is_there(monkeypatch, "late")
    with Writer(log) as writer:
        append(writer, range(10), keys=1)
        stray = writer.append(b"stray", key=b"k0", topic="late")
        append(writer, range(10, 20), keys=1)
    waits = WAITS._replace(topic_s=0.3, refused_pause_s=0.1)
    with pytest.raises(Undeliverable):
        forward(drain=True, poison="dead-letter", waits=waits).end()
    assert len(consume(broker.bootstrap_servers)) == 20
    if killed:
        saved = notes_of(log)
        lanes = [{**lane, "address": -1, "offset": 0} for lane in saved["lanes"]]
        text = json.dumps({**saved, "lanes": lanes, "clean": False})
        (log / "cursors/bridge.lanes").write_text(text)
    elsewhere = Routing(TOPIC, [Rule(record_topic="late", topic=TOPIC)])
    assert forward(drain=True, routing=elsewhere).end().acknowledged == 11
    found = [message.address for message in consume(broker.bootstrap_servers)]
    records = [record.address for record in records_of(log)]
    assert found == [*(each for each in records if each != stray), *records[10:]]
    assert all(lane["offset"] >= 0 for lane in notes_of(log)["lanes"])
    assert forward(drain=True, routing=elsewhere).end().acknowledged == 0


def test_a_record_that_names_an_impossible_topic_is_poison(log: Path, forward: Forward) -> None:
    with Writer(log) as writer:
        wrong = writer.append(b"1", topic="no topic can be called so")
        append(writer, range(10))
    status = forward(drain=True, poison="dead-letter").end()
    assert (status.dead_lettered, status.acknowledged) == (1, 10)
    (letter,) = letters(log)
    assert (letter.origin.address, letter.code) == (wrong, "TOPIC_EXCEPTION")


@pytest.mark.parametrize("name", ["no topic can be called so", "..", "__consumer_offsets"])
def test_a_default_that_cannot_be_a_topic_is_refused_before_anything_is_sent(
    log: Path, forward: Forward, name: str
) -> None:
    fill(log, 10, topic=name)
    with pytest.raises(WrongSetting, match="no topic can be called"):
        forward(drain=True, poison="dead-letter", topic=None)
    assert not (log / "dead-letter").exists()
