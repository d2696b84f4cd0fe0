"""The clients on a real Apache Kafka: what the embedded broker cannot show."""

import re
import time
import uuid

import pytest

from bridge.client import Consumer, Producer
from tests.bridge.client.configurations import consumer_config, drained, producer_config

pytestmark = [pytest.mark.kafka, pytest.mark.xdist_group("kafka")]


def test_places_times_and_backfill(kafka, topic):
    name = topic(2)
    now_ms = time.time_ns() // 1_000_000
    with Producer(producer_config(kafka)) as producer:
        for hours in (5, 3, 1):
            sent = producer.send(
                name, b"%d" % hours, partition=1, timestamp_ms=now_ms - hours * 3_600_000
            )
        assert (sent.partition, sent.offset, sent.timestamp) == (1, 2, now_ms - 3_600_000)
    with Consumer(consumer_config(kafka, uuid.uuid4().hex, auto_offset_reset="latest")) as consumer:
        consumer.backfill(4 * 3_600)
        consumer.subscribe(name)
        assert drained(consumer, 2) == [b"3", b"1"]
        consumer.backfill(2 * 3_600)
        assert drained(consumer, 1) == [b"1"]


def test_topics_are_added_and_removed_while_records_keep_coming(kafka, topic):
    name, other = topic(), topic()
    with (
        Producer(producer_config(kafka)) as producer,
        Consumer(consumer_config(kafka, uuid.uuid4().hex)) as consumer,
    ):
        consumer.subscribe(name)
        producer.send(name, b"1")
        assert drained(consumer, 1) == [b"1"]
        consumer.add_topics(other)
        producer.send(other, b"2")
        producer.send(name, b"3")
        found = {*drained(consumer, 2)}
        while found != {b"2", b"3"}:  # what was not polled past comes again after a rebalance
            found = {*found, *consumer.poll(200)} - {b"1"}
        consumer.remove_topics(name)
        producer.send(name, b"4")
        producer.send(other, b"5")
        seen = drained(consumer, 1)
        while b"5" not in seen:
            seen += consumer.poll(200)
        assert b"4" not in seen


def test_a_topic_that_appears_later_is_found(kafka):
    name = f"late-{uuid.uuid4().hex[:8]}"
    with (
        Consumer(consumer_config(kafka, uuid.uuid4().hex)) as consumer,
        Producer(producer_config(kafka)) as producer,
    ):
        consumer.subscribe(re.compile(f"{name}.*"))
        assert consumer.poll(500) == []
        kafka.create_topic(name, 1)
        producer.send(name, b"x")
        assert drained(consumer, 1) == [b"x"]
