"""What a restart makes of what it finds in Apache Kafka: topics that grew meanwhile, messages that
somebody copied, topics that were made anew. At least once."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from confluent_kafka import Producer

from aolog import Record, Writer
from bridge.config.routing import partition_of_key
from bridge.errors import Undeliverable
from bridge.testing.apache_kafka.server import KafkaServer
from tests.bridge.against_kafka import grow, leave_as_killed, messages_in, set_limit
from tests.bridge.brokers import Message, assert_arrived, consume_any
from tests.bridge.forwarders import Forward
from tests.bridge.logs import append, fill, records_of
from tests.bridge.processes import Start
from tests.kafka.plugin import TopicFactory

pytestmark = pytest.mark.kafka

# So that each kill finds requests under way, and records that the cursor has not passed.
SLOW = ("-X", "batch.num.messages=10", "--commit-seconds", "0.4")


def once_and_in_order(records: list[Record], messages: list[Message]) -> None:
    """Whatever partition a record is in: a topic that grew has those of a key in two."""
    assert sorted(m.address for m in messages) == [record.address for record in records]
    for one, two in pairwise(messages):
        assert one.partition < two.partition or one.address < two.address


def test_partitions_that_are_added_after_a_kill_cost_no_record_and_no_repeat(
    kafka: KafkaServer, topic: TopicFactory, log: Path, start: Start
) -> None:
    name = topic(2)
    fill(log, 20_000, keys=503)
    for partitions in (3, 5):
        process = start(name, *SLOW)
        process.until(lambda s: s["acknowledged"] > 1000)
        process.kill()
        grow(kafka, name, partitions)
    process = start(name, "--drain")
    assert process.end(60) == 0
    messages = messages_in(kafka, name, 5)
    once_and_in_order(records_of(log), messages)
    assert {m.partition for m in messages} == set(range(5))
    assert process.statuses[-1]["skipped"] > 0


def test_a_copy_of_a_later_record_in_a_partition_that_waits_hides_no_record_and_is_reported(
    kafka: KafkaServer,
    topic: TopicFactory,
    log: Path,
    forward_to: Forward,
    caplog: pytest.LogCaptureFixture,
) -> None:
    name = topic(2, {"max.message.bytes": "5000"})
    waits = partition_of_key(b"k0", 2)
    with Writer(log) as writer:
        writer.append(b"x" * 9000, key=b"k0")
        append(writer, range(200))
    with pytest.raises(Undeliverable):
        forward_to(name).end()
    last = consume_any(kafka.bootstrap_servers, name, 2)[-1]
    assert last.partition() != waits
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "log_level": 0})
    producer.produce(name, last.value(), last.key(), waits, headers=last.headers())
    assert producer.flush(30) == 0
    set_limit(kafka, name, 50_000)
    status = forward_to(name).end()
    *rest, copy = sorted(
        messages_in(kafka, name, 2), key=lambda m: (m.partition, m.offset) == (waits, 0)
    )
    assert (copy.partition, copy.offset) == (waits, 0)
    assert_arrived(records_of(log), rest, topic=name)
    assert status.copies == 1
    assert f"{name}/{waits} has 1 message" in caplog.text
    assert f"at offset 0, with the stamp of address {copy.address}" in caplog.text
    with Writer(log) as writer:
        append(writer, range(200, 210))
    assert forward_to(name).end().copies == 0


def test_what_arrived_in_a_topic_that_was_made_anew_is_recognised_from_its_beginning(
    kafka: KafkaServer, topic: TopicFactory, log: Path, forward_to: Forward
) -> None:
    """A bridge was killed after its topic was made anew: its notes have the offsets of the old one."""
    name = topic(1)
    fill(log, 500)
    records = records_of(log)
    lane = {"topic": name, "partition": 0, "offset": 1000, "address": records[99].address}
    notes = {"lanes": [lane], "partitions": {name: 1}, "ids": {name: "of the old one"}}
    leave_as_killed(kafka, name, log, records[100:236], notes)
    status = forward_to(name).end()
    assert (status.skipped, status.acknowledged) == (236, 264)
    assert_arrived(records[100:], messages_in(kafka, name), topic=name)
