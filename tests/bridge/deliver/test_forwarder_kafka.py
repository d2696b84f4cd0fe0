"""The forwarder against Apache Kafka itself, which judges what the embedded broker does not:
duplicates, order, and what belongs into a topic."""

from __future__ import annotations

import json
import signal
import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions

from aolog import Reader, Writer
from bridge.deliver.at_least_once import topics
from bridge.deliver.dead_letter import read_dead_letter
from bridge.errors import Undeliverable
from bridge.kafka.partition import partition_of_key
from tests.bridge.against_kafka import (
    Budget,
    Start,
    committed_in,
    fill_mixed,
    kill_over_and_over,
    messages_in,
    set_limit,
)
from tests.bridge.conftest import (
    Process,
    Run,
    append,
    assert_arrived,
    cursor_of,
    records_of,
    wait_until,
)

if TYPE_CHECKING:
    from bridge.testing.apache_kafka import KafkaServer
    from tests.kafka.plugin import TopicFactory

pytestmark = pytest.mark.kafka


# --- the promise ----------------------------------------------------------------------------


SLOW = ("-X", "batch.num.messages=10", "-X", "queue.buffering.max.messages=1500",
        "--commit-seconds", "0.4")  # fmt: skip  # a command line


@pytest.mark.parametrize(
    "budget",
    [
        pytest.param(Budget(5, 40_000), marks=pytest.mark.timeout(300)),
        pytest.param(Budget(30, 300_000), marks=[pytest.mark.slow, pytest.mark.timeout(1800)]),
    ],
    ids=["small", "long"],
)
def test_kills_lose_nothing_repeat_nothing_and_keep_the_order(
    kafka: KafkaServer, topic: TopicFactory, log: Path, start: Start, budget: Budget
) -> None:
    name, partitions = topic(3), 3
    fill_mixed(log, budget.records)
    kills = kill_over_and_over(lambda: start(name, *SLOW), budget, seed=1)
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


@pytest.mark.timeout(300)
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
    with Writer(log) as writer:
        append(writer, range(20_000))
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


def test_a_record_too_large_for_its_topic_is_named_among_its_neighbours(
    kafka: KafkaServer, topic: TopicFactory, log: Path, start: Start
) -> None:
    name = topic(2, {"max.message.bytes": "20000"})
    with Writer(log) as writer:
        append(writer, range(400))
        large = writer.append(b"x" * 30_000, key=b"k3")
        append(writer, range(400, 700))
    process = start(name, "--drain")
    assert process.end() == 6
    told = json.loads(process.stderr.splitlines()[-1])["error"]
    assert (told["code"], told["address"]) == ("undeliverable", large)
    assert "MSG_SIZE_TOO_LARGE" in told["message"]
    assert cursor_of(log) == large
    records = records_of(log)
    assert_arrived(records[:400], [m for m in messages_in(kafka, name, 2) if m.address < large],
                   topic=name)  # fmt: skip  # one call
    set_limit(kafka, name, 50_000)
    assert start(name, "--drain").end() == 0
    assert_arrived(records, messages_in(kafka, name, 2), topic=name)


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
    kafka: KafkaServer, topic: TopicFactory, log: Path, forward_to: Callable[..., Run], size: int
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


def test_requests_too_large_for_a_topic_that_takes_each_of_their_records_are_no_obstacle(
    kafka: KafkaServer, topic: TopicFactory, log: Path, forward_to: Callable[..., Run]
) -> None:
    # The records are of 1970: Kafka would let go of them while this takes its time.
    name = topic(1, {"max.message.bytes": "5000", "retention.ms": "-1"})
    with Writer(log) as writer:
        append(writer, range(300), size=1000, keys=1)
    forward_to(name).end()
    assert_arrived(records_of(log), messages_in(kafka, name), topic=name)


@pytest.mark.timeout(180)
def test_a_few_poisonous_records_among_100_000_cost_seconds_and_no_neighbour(
    kafka: KafkaServer, topic: TopicFactory, log: Path, forward_to: Callable[..., Run]
) -> None:
    """10 s."""
    name = topic(2, {"max.message.bytes": "900000"})
    large = []
    with Writer(log) as writer:
        for number in range(4):
            append(writer, range(number * 25_000, number * 25_000 + 25_000), size=100)
            large.append(writer.append(b"x" * 950_000, key=b"k%d" % number))
    begin_s = time.monotonic()
    status = forward_to(name, poison="dead-letter").end()
    took_s = time.monotonic() - begin_s
    assert status.dead_lettered == 4
    with Reader(log / "dead-letter") as reader:
        letters = [read_dead_letter(record) for record in reader]
    assert sorted(letter.origin.address for letter in letters if letter is not None) == large
    rest = [record for record in records_of(log) if record.address not in large]
    assert len(rest) == 100_000
    assert_arrived(rest, messages_in(kafka, name, 2), topic=name)
    assert took_s < 60


def test_a_record_without_a_key_is_named_where_a_compacted_topic_refuses_it(
    kafka: KafkaServer, topic: TopicFactory, log: Path, forward_to: Callable[..., Run]
) -> None:
    name = topic(1, {"cleanup.policy": "compact"})
    with Writer(log) as writer:
        append(writer, range(50))
        keyless = writer.append(b"no key")
        append(writer, range(50, 60))
    with pytest.raises(Undeliverable, match="INVALID_RECORD") as caught:
        forward_to(name).end()
    assert caught.value.details["address"] == keyless
    assert cursor_of(log) == keyless
    assert len({m.address for m in messages_in(kafka, name) if m.address < keyless}) == 50


# --- topics ---------------------------------------------------------------------------------


def test_a_name_that_can_be_no_topics_is_refused_at_once(
    kafka: KafkaServer, log: Path, start: Start
) -> None:
    with Writer(log) as writer:
        append(writer, range(5))
    process = start("no/topic", "--drain")
    assert process.end(20) == 2
    assert "no/topic" in process.stderr
    assert process.stderr.splitlines()[-1].startswith('{"error"')


def test_a_topic_that_does_not_exist_is_waited_for_and_then_named_or_used(
    kafka: KafkaServer,
    log: Path,
    forward_to: Callable[..., Run],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(topics, "TOPIC_WAIT_S", 1.0)
    kafka.restore()
    name = f"later-{time.time_ns()}"
    with Writer(log) as writer:
        append(writer, range(5))
    with pytest.raises(Undeliverable, match=f"no topic '{name}'"):
        forward_to(name, create_topics="never").end()
    monkeypatch.setattr(topics, "TOPIC_WAIT_S", 60.0)
    run = forward_to(name, create_topics="never")
    time.sleep(0.5)
    assert run.alive
    kafka.create_topic(name)
    run.end()
    assert_arrived(records_of(log), messages_in(kafka, name), topic=name)


def test_a_missing_topic_delays_no_other_and_gets_its_records_once_it_exists(
    kafka: KafkaServer, topic: TopicFactory, log: Path, forward_to: Callable[..., Run]
) -> None:
    name, late = topic(1), f"late-{time.time_ns()}"
    with Writer(log) as writer:
        for number in range(6000):
            writer.append(b"%d" % number, topic=late if number % 3 == 0 else None)
    run = forward_to(name, drain=False, create_topics="never")
    status = run.until(lambda s: s.acknowledged == 4000)
    assert (status.held_back, status.committed) == (1, records_of(log)[0].address)
    kafka.create_topic(late)
    run.until(lambda s: s.acknowledged == 6000)
    assert run.stop().lag_records == 0
    records = records_of(log)
    assert_arrived([r for r in records if r.topic], messages_in(kafka, late), topic=late)
    assert_arrived([r for r in records if not r.topic], messages_in(kafka, name), topic=name)


def test_a_deleted_topic_does_not_delay_the_others(
    kafka: KafkaServer, topic: TopicFactory, log: Path, forward_to: Callable[..., Run]
) -> None:
    name, old = topic(1), topic(2)
    with Writer(log) as writer:
        append(writer, range(20))
        for number in range(20):
            writer.append(b"%d" % number, topic=old)
    forward_to(name).end()
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers, "log_level": 0})
    admin.delete_topics([old], operation_timeout=30)[old].result(30)
    wait_until(lambda: old not in admin.list_topics(timeout=10).topics)
    with Writer(log) as writer:
        append(writer, range(20, 40))
    forward_to(name, create_topics="never").end(30)
    records = [r for r in records_of(log) if r.topic is None]
    assert_arrived(records, messages_in(kafka, name), topic=name)


def test_a_topic_that_was_created_again_with_fewer_partitions_is_used_with_these(
    kafka: KafkaServer, topic: TopicFactory, log: Path, forward_to: Callable[..., Run]
) -> None:
    name = topic(3)
    with Writer(log) as writer:
        append(writer, range(100))
    forward_to(name).end()
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers, "log_level": 0})
    admin.delete_topics([name], operation_timeout=30)[name].result(30)
    wait_until(lambda: name not in admin.list_topics(timeout=10).topics)
    kafka.create_topic(name, 2)
    with Writer(log) as writer:
        append(writer, range(100, 200))
    forward_to(name).end(30)
    assert_arrived(records_of(log)[100:], messages_in(kafka, name, 2), topic=name)


def grow(kafka: KafkaServer, topic: str, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers, "log_level": 0})
    admin.create_partitions([NewPartitions(topic, partitions)])[topic].result(30)
    wait_until(lambda: len(admin.list_topics(topic, timeout=10).topics[topic].partitions)
               == partitions)  # fmt: skip  # one call


def test_a_topic_that_grew_while_lanes_were_uneven_gets_every_record_once(
    kafka: KafkaServer, topic: TopicFactory, log: Path, forward_to: Callable[..., Run]
) -> None:
    """A crash left one lane far ahead of the cursor and the other empty, and then the topic grew:
    records of the empty lane now belong to the other one, which does not hold them."""
    name = topic(2)
    with Writer(log) as writer:
        append(writer, range(1000))
    records = records_of(log)
    with Reader(log, cursor="bridge") as reader:
        reader.commit()
        uuid, epoch = reader.topic_uuid, reader.epoch
    assert uuid is not None
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "log_level": 0})
    for record in records:
        assert record.key is not None
        if partition_of_key(record.key, 2) == 0:
            stamp = struct.pack("<16sIQq", uuid, epoch, record.address, record.timestamp)
            producer.produce(
                name, record.value, record.key, 0, None, None,
                max(1, (record.timestamp or 0) // 1000), [("aolog", stamp)],
            )  # fmt: skip  # one call
    assert producer.flush(30) == 0
    (log / "cursors/bridge.lanes").write_text(
        json.dumps(
            {
                "version": 1,
                "source": uuid.hex(),
                "clean": False,
                "lost": False,
                "lanes": [
                    {"topic": name, "partition": p, "offset": 0, "address": -1} for p in (0, 1)
                ],
            }
        )
    )
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
def test_a_topic_that_is_deleted_under_way_is_named_within_seconds_and_used_when_it_is_back(
    kafka: KafkaServer, topic: TopicFactory, log: Path, forward_to: Callable[..., Run],
    delivery: str,
) -> None:  # fmt: skip  # one call
    name, cursors = topic(2), topic(1, {"cleanup.policy": "compact"})
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers, "log_level": 0})
    with Writer(log) as writer:
        append(writer, range(100))
        writer.flush()
        run = forward_to(
            name, delivery=delivery, create_topics="never", drain=False, cursor_topic=cursors
        )
        run.until(lambda s: s.acknowledged == 100)
        admin.delete_topics([name], operation_timeout=30)[name].result(30)
        append(writer, range(100, 200))
    run.until(lambda s: s.error is not None and f"there is no topic '{name}'" in s.error, 20)
    kafka.create_topic(name, 2)
    run.until(lambda s: s.acknowledged == 200 and s.error is None, 60)
    run.stop()
    assert_arrived(records_of(log)[100:], committed_in(kafka, name, 2), topic=name)


def test_new_partitions_are_used_once_all_that_was_read_is_delivered_even_after_a_kill(
    kafka: KafkaServer, topic: TopicFactory, log: Path, start: Callable[..., Process]
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
