"""An embedded broker, and what arrived at a broker, by a consumer that owes nothing to the bridge."""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition

from aolog import Record
from bridge.kafka.embedded import EmbeddedBroker
from tests.waiting import SOON_S

TOPIC = "t"


NOWHERE = "127.0.0.1:1"  # no server listens on port 1


PARTITIONS = 4


class Message(NamedTuple):
    """What a consumer got. The stamp is taken apart here by the table in bridge/kafka/stamp.py, not by
    its code."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp_ms: int
    uuid: bytes
    epoch: int
    address: int
    timestamp_us: int | None


def message_of(found: Any) -> Message:
    *headers, (name, stamp) = found.headers()
    assert name == "aolog"
    uuid, epoch, address, timestamp_us = struct.unpack("<16sIQq", stamp)
    return Message(
        found.topic(),
        found.partition(),
        found.offset(),
        found.key(),
        found.value(),
        tuple(headers),
        found.timestamp()[1],
        uuid,
        epoch,
        address,
        None if timestamp_us == -(1 << 63) else timestamp_us,
    )


def ends_of(consumer: Consumer, place: TopicPartition, until_s: float) -> tuple[int, int]:
    while True:
        try:
            return consumer.get_watermark_offsets(place, timeout=SOON_S)
        except KafkaException:  # the partition or the client is new; or fenced for want of time
            if time.monotonic() > until_s:
                raise
            time.sleep(0.05)


def consume(
    bootstrap_servers: str, topic: str = TOPIC, partitions: int = PARTITIONS
) -> list[Message]:
    """All that is there, partition by partition, in order of offsets without a hole."""
    found = map(message_of, consume_any(bootstrap_servers, topic, partitions))
    return sorted(found, key=lambda m: (m.partition, m.offset))


def consume_any(
    bootstrap_servers: str, topic: str = TOPIC, partitions: int = PARTITIONS
) -> list[Any]:
    """As the client returns them; those of a partition in order."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "test",
            "auto.offset.reset": "error",
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 10,
            "log_level": 0,
        }
    )
    try:
        places = [TopicPartition(topic, p) for p in range(partitions)]
        ends = [ends_of(consumer, place, time.monotonic() + SOON_S) for place in places]
        consumer.assign([TopicPartition(topic, p, low) for p, (low, _) in enumerate(ends)])
        missing = sum(high - low for low, high in ends)
        found: list[Any] = []
        until_s = time.monotonic() + SOON_S
        while missing > 0 and time.monotonic() < until_s:
            for message in consumer.consume(min(missing, 1000), timeout=0.2):
                assert message.error() is None, message.error()
                found.append(message)
                missing -= 1
        assert missing == 0
    finally:
        consumer.close()
    return found


def assert_arrived(
    records: list[Record], messages: list[Message], *, topic: str = TOPIC, complete: bool = True
) -> None:
    """Each record once, whole, in the order of the log within its partition."""
    by_address: dict[int, Message] = {}
    last: dict[int, int] = {}
    arrived: dict[int, list[tuple[int, int]]] = {}
    for message in messages:
        arrived.setdefault(message.address, []).append((message.partition, message.offset))
    twice = {address: places for address, places in arrived.items() if len(places) > 1}
    assert not twice, f"{len(twice)} arrived twice, by address at (partition, offset): {twice}"
    for message in messages:
        assert message.address > last.get(message.partition, -1), "out of order"
        by_address[message.address] = message
        last[message.partition] = message.address
    lost = [r.address for r in records if r.address not in by_address]
    if complete:
        assert lost == []
    assert by_address.keys() <= {r.address for r in records}
    where: dict[bytes | None, int] = {}
    for record in records:
        message = by_address.get(record.address)
        if message is None:
            continue
        assert message[3:6] == (record.key, record.value, record.headers)
        assert message.timestamp_us == record.timestamp
        assert message.topic == (record.topic or topic)
        if record.timestamp is not None:
            assert message.timestamp_ms == max(1, record.timestamp // 1000)
        assert where.setdefault(record.key, message.partition) == message.partition


@pytest.fixture
def broker(embedded_broker: EmbeddedBroker) -> EmbeddedBroker:
    embedded_broker.create_topic(TOPIC, PARTITIONS)
    return embedded_broker


@pytest.fixture
def other() -> Iterator[EmbeddedBroker]:
    """Another cluster than `broker`."""
    with EmbeddedBroker() as broker:
        broker.create_topic(TOPIC, PARTITIONS)
        yield broker
