"""The forwarder against the embedded broker: what arrives, also after restarts, kills and signals.
Forwarders run in a thread, or in a process if signals matter."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

from aolog import Reader, Writer
from bridge.deliver.at_least_once.driver import AtLeastOnce
from bridge.kafka.embedded import EmbeddedBroker
from bridge.kafka.producer import IdempotentProducer
from tests.bridge.brokers import PARTITIONS, TOPIC, assert_arrived, consume, consume_any
from tests.bridge.foreign import Foreign, produce_foreign
from tests.bridge.forwarders import Forward, forwarder
from tests.bridge.logs import cursor_of, fill, notes_of, records_of
from tests.bridge.processes import Start

# --- what arrives ---------------------------------------------------------------------------


def test_key_value_headers_and_timestamp_arrive_as_they_were_appended(
    broker: EmbeddedBroker, log: Path, forward: Forward
) -> None:
    long = bytes(range(256)) * 1500
    with Writer(log) as writer:
        for value in (None, b"", b"v", b"\0", long):
            for key in (None, b"", b"k", long[:1000]):
                writer.append(value, key=key)
        for headers in (
            [("", b"")],
            [("a", None)],
            [("a", b"1"), ("a", b"2"), ("b", b""), ("a", b"1")],
            [("ключ", b"\xff\0"), ("aolog", b"not a stamp"), ("x" * 500, long[:5000])],
        ):
            writer.append(b"v", key=b"k", headers=headers)
        for timestamp in (
            0, 1, 999, 1000, 1999, 1_600_000_000_123_456, 10**16, -1, -(10**15), 2**62,
        ):  # fmt: skip
            writer.append(b"v", timestamp=timestamp)
    status = forward(drain=True).end()
    records = records_of(log)
    assert len(records) == 34
    messages = consume(broker.bootstrap_servers)
    assert_arrived(records, messages)
    assert (status.acknowledged, status.lag_records, status.state) == (34, 0, "stopped")
    assert cursor_of(log) == status.committed == status.position
    with Reader(log) as reader:
        assert {(m.uuid, m.epoch) for m in messages} == {(reader.topic_uuid, reader.epoch)}
        assert records[-1].address < (status.durable or 0) == reader.durable()


def test_a_format_1_log_is_forwarded_and_resumed(
    broker: EmbeddedBroker, log: Path, forward: Forward
) -> None:
    with Writer(log, format="queuefka") as writer:
        for number in range(700):
            writer.append(b"%d" % number)
    forward(drain=True).end()
    with Writer(log, format="queuefka") as writer:
        for number in range(700, 1000):
            writer.append(b"%d" % number)
    begin_s = time.time()
    status = forward(drain=True).end()
    messages = consume(broker.bootstrap_servers)
    assert_arrived(records_of(log), messages)
    assert [m.value for m in messages] == [b"%d" % number for number in range(1000)]
    assert status.acknowledged == 300
    assert {m.timestamp_us for m in messages} == {None}
    assert all(abs(m.timestamp_ms / 1000 - begin_s) < 600 for m in messages)
    assert len({m.uuid for m in messages}) == 1
    assert status.lag_records is None


# --- resuming -------------------------------------------------------------------------------


@pytest.mark.parametrize("lost", [False, True], ids=["checkpoints", "damaged checkpoints"])
def test_records_that_arrived_after_the_last_commit_are_not_sent_again(
    broker: EmbeddedBroker, log: Path, run: Start, forward: Forward, lost: bool
) -> None:
    fill(log, 2000)
    process = run("--commit-seconds", "600")
    process.until(lambda s: s["lag_records"] == 0)
    process.kill()
    assert cursor_of(log) <= records_of(log)[0].address
    if lost:
        (log / "cursors/bridge.lanes").write_bytes(b"garbage")
    status = forward(drain=True).end()
    assert (status.skipped, status.acknowledged) == (2000, 0)
    assert_arrived(records_of(log), consume(broker.bootstrap_servers))


def test_a_partition_whose_topic_lost_what_the_cursor_had_not_passed_is_sent_again_in_order(
    broker: EmbeddedBroker, log: Path, run: Start, forward: Forward
) -> None:
    """The broker keeps 5 MiB of a partition. The other partitions are whole, and are not sent again."""
    fill(log, 400)
    fill(log, range(400, 8400), keys=1, size=1000)
    process = run("--commit-seconds", "600", "-X", "compression.type=none")
    process.until(lambda s: s["lag_records"] == 0)
    process.kill()
    large = {m.partition for m in consume(broker.bootstrap_servers) if len(m.value or b"") == 1000}
    assert len(large) == 1
    whole = [m for m in consume(broker.bootstrap_servers) if m.partition not in large]
    keys = {m.key for m in whole}
    cut = [record.address for record in records_of(log) if record.key not in keys]
    status = forward(drain=True, settings={"compression.type": "none"}).end()
    assert (status.skipped, status.acknowledged) == (len(whole), len(cut))
    after = consume(broker.bootstrap_servers)
    assert [m for m in after if m.partition not in large] == whole
    again = [m.address for m in after if m.partition in large]
    assert 0 < len(again) < len(cut)  # the broker dropped the first ones once more
    assert again == cut[-len(again) :]


def test_a_record_of_another_program_is_passed_over_whatever_its_headers(
    broker: EmbeddedBroker, log: Path, run: Start, forward: Forward
) -> None:
    fill(log, 2000)
    process = run("--commit-seconds", "600")
    process.until(lambda s: s["lag_records"] == 0)
    process.kill()
    ours = consume(broker.bootstrap_servers)
    for partition in range(PARTITIONS):
        foreign = [Foreign(b"x", [(b"\xff", b"1"), (b"n", b"2")], -1)] * 2
        produce_foreign(broker.bootstrap_servers, TOPIC, foreign, partition)
    status = forward(drain=True).end()
    assert (status.skipped, status.acknowledged) == (2000, 0)
    every = consume_any(broker.bootstrap_servers)
    assert len(every) == len(ours) + 2 * PARTITIONS


def test_a_stop_waits_for_no_answer_while_no_broker_is_connected(
    broker: EmbeddedBroker, log: Path, forward: Forward
) -> None:
    fill(log, 100)
    run = forward(stop_s=60.0)
    run.until(lambda s: s.acknowledged == 100)
    broker.set_rtt_ms(60_000)
    fill(log, range(100, 200))
    run.until(lambda s: s.outstanding > 0)
    broker.set_down()
    run.until(lambda s: not s.reachable)
    assert run.stop().outstanding > 0  # it ends in seconds, not in a minute
    assert notes_of(log)["clean"] is False
    broker.set_rtt_ms(0)
    broker.set_up()
    assert forward(drain=True).end().lag_records == 0


def test_a_delivery_is_closed_while_no_exception_is_handled(
    log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client keeps one for ever, with all that its frames hold, if a call fails meanwhile."""
    handled: list[object] = []
    close = IdempotentProducer.close

    def closes(producer: IdempotentProducer) -> None:
        handled.append(sys.exc_info()[1])
        close(producer)

    def fails(*_: object) -> None:
        raise InterruptedError

    fill(log, 1)
    monkeypatch.setattr(AtLeastOnce, "turn", fails)
    monkeypatch.setattr(IdempotentProducer, "close", closes)
    with pytest.raises(InterruptedError):
        forwarder(log, topic="t", bootstrap_servers="127.0.0.1:1").run()
    assert handled == [sys.exc_info()[1]], "what an earlier test left behind, at most"
