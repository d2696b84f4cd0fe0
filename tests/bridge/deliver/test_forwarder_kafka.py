"""The forwarder against Apache Kafka itself, which judges what the embedded broker does not:
duplicates, order, and what belongs into a topic."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest

from aolog import Writer
from bridge.config.routing import partition_of_key
from bridge.errors import Undeliverable
from bridge.testing.apache_kafka.server import KafkaServer
from tests.bridge.against_kafka import (
    BUDGETS,
    Budget,
    committed_in,
    fill_mixed,
    grow,
    kill_over_and_over,
    leave_as_killed,
    messages_in,
    set_limit,
)
from tests.bridge.brokers import assert_arrived
from tests.bridge.forwarders import Forward
from tests.bridge.logs import append, cursor_of, fill, records_of
from tests.bridge.processes import Start
from tests.kafka.plugin import TopicFactory
from tests.kafka.servers import delete_topic

pytestmark = pytest.mark.kafka


# --- the promise ----------------------------------------------------------------------------


SLOW = ("-X", "batch.num.messages=10", "-X", "queue.buffering.max.messages=1500",
        "--commit-seconds", "0.4")  # fmt: skip  # a command line


@BUDGETS
def test_kills_lose_nothing_repeat_nothing_and_keep_the_order(
    kafka: KafkaServer, topic: TopicFactory, log: Path, start: Start, budget: Budget
) -> None:
    name, partitions = topic(3), 3
    fill_mixed(log, budget.records)
    # A start may send a second's worth at once; no run is to end before its kill.
    rate = ("--records-per-second", str(budget.records // (2 * budget.kills)))
    kills = kill_over_and_over(lambda: start(name, *SLOW, *rate), budget, seed=1)
    print(kills)
    assert start(name, "--drain").end(300) == 0
    records, messages = records_of(log), messages_in(kafka, name, partitions)
    assert len(records) == budget.records
    assert_arrived(records, messages, topic=name)
    assert [m.timestamp_ms for m in messages] == [(m.timestamp_us or 0) // 1000 for m in messages]
    for message in messages:
        if message.key is not None:
            assert message.partition == partition_of_key(message.key, partitions)
    assert kills.counted == budget.kills
    assert kills.skipped > 0  # some arrived before a kill, and were recognised


def test_a_broker_that_crashes_and_a_bridge_killed_meanwhile_lose_and_repeat_nothing(
    kafka: KafkaServer, topic: TopicFactory, log: Path, start: Start
) -> None:
    count, partitions = 20_000, 3
    name = topic(partitions)
    fill_mixed(log, count)
    process = start(name, *SLOW)
    process.until(lambda s: s["acknowledged"] and s["lag_records"] < count * 0.9)
    kafka.kill()
    outage = process.until(lambda s: not s["reachable"])
    assert outage["lag_records"] > count * 0.1
    process.kill()  # the bridge dies during the outage, too
    process = start(name, *SLOW)
    process.until(lambda s: s["error"])
    kafka.start()
    process.until(lambda s: s["acknowledged"] and s["lag_records"] < count * 0.5)
    process.kill()
    assert start(name, "--drain").end(120) == 0
    assert_arrived(records_of(log), messages_in(kafka, name, partitions), topic=name)


def test_a_frozen_broker_is_waited_for_and_its_records_are_not_sent_again(
    kafka: KafkaServer, topic: TopicFactory, log: Path, start: Start
) -> None:
    name = topic(1)
    fill(log, 20_000)
    process = start(name, "-X", "batch.num.messages=50", "-X", "socket.timeout.ms=2000")
    process.until(lambda s: s["acknowledged"] > 500)
    kafka.pause()
    time.sleep(4.0)  # longer than the client waits for an answer
    assert process.popen.poll() is None
    process.kill()  # with requests in the frozen broker's sockets
    kafka.resume()
    assert start(name, "--drain").end() == 0
    assert_arrived(records_of(log), messages_in(kafka, name), topic=name)


# --- what a topic does not take -------------------------------------------------------------


def test_a_stopped_lane_goes_on_after_sighup_once_its_topic_takes_more(
    kafka: KafkaServer, topic: TopicFactory, log: Path, start: Start
) -> None:
    name = topic(2, {"max.message.bytes": "20000"})
    with Writer(log) as writer:
        append(writer, range(200))
        large = writer.append(b"x" * 30_000, key=b"k3")
        append(writer, range(200, 300))
    process = start(name)
    status = process.until(lambda s: s["standing_lanes"] == 1)
    assert f"waits at address {large}" in status["error"]
    set_limit(kafka, name, 50_000)
    process.popen.send_signal(signal.SIGHUP)
    process.until(lambda s: s["lag_records"] == 0 and s["standing_lanes"] == 0)
    assert process.terminate() == 0
    assert f"stopped before address {large}" in process.stderr
    assert_arrived(records_of(log), messages_in(kafka, name, 2), topic=name)


@pytest.mark.parametrize("size", [1, 3, 10_000])
def test_after_the_refusal_of_a_lanes_first_record_no_later_one_arrives(
    kafka: KafkaServer, topic: TopicFactory, log: Path, forward_to: Forward, size: int
) -> None:
    """Kafka takes the second request of a producer whose first it refused; the cursor, or a look
    at what has arrived, would then pass the first."""
    name = topic(1, {"max.message.bytes": "20000"})
    with Writer(log) as writer:
        large = writer.append(b"x" * 30_000, key=b"k")
        append(writer, range(300), keys=1)
    settings = {"batch.num.messages": str(size), "linger.ms": "0"}
    with pytest.raises(Undeliverable) as caught:
        forward_to(name, settings=settings).end()
    assert caught.value.details["address"] == large
    assert cursor_of(log) <= large
    set_limit(kafka, name, 50_000)
    forward_to(name, settings=settings).end()
    assert_arrived(records_of(log), messages_in(kafka, name), topic=name)


# --- topics ---------------------------------------------------------------------------------


def test_a_missing_topic_delays_no_other_and_gets_its_records_once_it_exists(
    kafka: KafkaServer, topic: TopicFactory, log: Path, forward_to: Forward
) -> None:
    name, late = topic(1), f"late-{time.time_ns()}"
    with Writer(log) as writer:
        for number in range(6000):
            writer.append(b"%d" % number, topic=late if number % 3 == 0 else None)
    run = forward_to(name, drain=False, create_topics="never", poison="dead-letter")
    status = run.until(lambda s: s.acknowledged == 4000)
    assert (status.held_back, status.committed) == (1, records_of(log)[0].address)
    assert status.dead_lettered == 0
    kafka.create_topic(late)
    run.until(lambda s: s.acknowledged == 6000)
    assert run.stop().lag_records == 0
    records = records_of(log)
    assert_arrived([r for r in records if r.topic], messages_in(kafka, late), topic=late)
    assert_arrived([r for r in records if not r.topic], messages_in(kafka, name), topic=name)


def test_a_topic_that_grew_while_lanes_were_uneven_gets_every_record_once(
    kafka: KafkaServer, topic: TopicFactory, log: Path, forward_to: Forward
) -> None:
    """A crash left one lane far ahead of the cursor and the other empty, and then the topic grew:
    records of the empty lane now belong to the other one, which does not hold them."""
    name = topic(2)
    fill(log, 1000)
    records = records_of(log)
    first = [record for record in records if partition_of_key(record.key or b"", 2) == 0]
    lanes = [{"topic": name, "partition": p, "offset": 0, "address": -1} for p in (0, 1)]
    leave_as_killed(kafka, name, log, first, {"lanes": lanes})
    grow(kafka, name, 4)
    status = forward_to(name).end()
    messages = messages_in(kafka, name, 4)
    assert_arrived(records, messages, topic=name)
    assert status.skipped == sum(m.partition == 0 for m in messages)
    assert status.acknowledged == 1000 - status.skipped

    with Writer(log) as writer:  # with nothing ahead of the cursor, the new partitions are used
        append(writer, range(1000, 1400))
    forward_to(name).end()
    messages = messages_in(kafka, name, 4)
    assert {m.address for m in messages} == {r.address for r in records_of(log)}
    assert len(messages) == 1400
    assert {m.partition for m in messages} == {0, 1, 2, 3}


@pytest.mark.parametrize("delivery", ["at_least_once", "exactly_once"])
def test_a_topic_deleted_under_way_is_named_within_seconds_and_used_with_fewer_partitions(
    kafka: KafkaServer, topic: TopicFactory, log: Path, forward_to: Forward, delivery: str
) -> None:
    name, cursors = topic(2), topic(1, {"cleanup.policy": "compact"})
    with Writer(log) as writer:
        append(writer, range(100))
        writer.flush()
        run = forward_to(
            name, delivery=delivery, create_topics="never", drain=False, cursor_topic=cursors
        )
        run.until(lambda s: s.acknowledged == 100)
        delete_topic(kafka, name)
        append(writer, range(100, 200))
    run.until(lambda s: s.error is not None and f"there is no topic '{name}'" in s.error, 20)
    kafka.create_topic(name, 1)
    run.until(lambda s: s.acknowledged == 200 and s.error is None, 60)
    run.stop()
    assert_arrived(records_of(log)[100:], committed_in(kafka, name), topic=name)


def test_new_partitions_are_used_once_all_that_was_read_is_delivered_even_after_a_kill(
    kafka: KafkaServer, topic: TopicFactory, log: Path, start: Start
) -> None:
    name = topic(2)

    def of_new_partitions() -> int:
        return sum(m.partition > 1 for m in messages_in(kafka, name, 4))

    process = start(name)
    with Writer(log) as writer:
        append(writer, range(1000))
        writer.flush()
        process.until(lambda s: s["acknowledged"] == 1000)
        grow(kafka, name, 4)
        process.popen.send_signal(signal.SIGHUP)
        until_s, number = time.monotonic() + 40.0, 1000
        while of_new_partitions() < 1000:  # records are under way all the time
            assert time.monotonic() < until_s
            append(writer, range(number, number + 500))
            writer.flush()
            number += 500
        process.kill()
        append(writer, range(number, number + 500))
    start(name, "--drain").end()
    records, messages = records_of(log), messages_in(kafka, name, 4)
    cut = min(m.address for m in messages if m.partition > 1)
    for in_use, begin, end in ((2, 0, cut), (4, cut, 1 << 62)):
        part = [m for m in messages if begin <= m.address < end]
        assert_arrived([r for r in records if begin <= r.address < end], part, topic=name)
        assert all(m.partition == partition_of_key(m.key or b"", in_use) for m in part)
