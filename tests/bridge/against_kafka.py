"""What tests against Apache Kafka share: consumers, limits, and a bridge that is killed over and
over."""

from __future__ import annotations

import json
import random
import struct
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions

from aolog import Reader, Record, Writer
from bridge.kafka.cursor_record import CursorName
from bridge.testing.apache_kafka.server import KafkaServer
from tests.bridge.brokers import Message, consume, ends_of, message_of
from tests.bridge.processes import Process
from tests.waiting import SOON_S, wait_until

EXACTLY = ("--delivery", "exactly_once")
CURSORS = "aolog-bridge-cursors"


def messages_in(kafka: KafkaServer, topic: str, partitions: int = 1) -> list[Message]:
    return consume(kafka.bootstrap_servers, topic, partitions)


def leave_as_killed(
    kafka: KafkaServer, topic: str, log: Path, arrived: Iterable[Record], notes: Mapping[str, Any]
) -> None:
    """Leaves what a killed bridge leaves: these records in partition 0, its cursor at the log's beginning, and
    its notes."""
    with Reader(log, cursor="bridge") as reader:
        reader.commit()
        uuid, epoch = reader.topic_uuid, reader.epoch
    assert uuid is not None
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "log_level": 0})
    for record in arrived:
        stamp = struct.pack("<16sIQq", uuid, epoch, record.address, record.timestamp)
        time_ms = max(1, (record.timestamp or 0) // 1000)
        producer.produce(
            topic, record.value, record.key, 0, None, None, time_ms, [("aolog", stamp)]
        )
    assert producer.flush(30) == 0
    saved = {"version": 1, "source": uuid.hex(), "clean": False, "lost": False, **notes}
    (log / "cursors/bridge.lanes").write_text(json.dumps(saved))


def committed_in(kafka: KafkaServer, topic: str, partitions: int = 1) -> list[Message]:
    """What a read_committed consumer sees, up to the end; nothing there is open any more."""
    found = [message_of(m) for p in range(partitions) for m in raw_committed(kafka, topic, p)]
    return sorted(found, key=lambda m: (m.partition, m.offset))


def raw_committed(
    kafka: KafkaServer, topic: str, partition: int = 0, isolation: str = "read_committed"
) -> list:
    settings = {
        "bootstrap.servers": kafka.bootstrap_servers,
        "group.id": "test",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "fetch.wait.max.ms": 10,
        "log_level": 0,
    }
    place, until_s = TopicPartition(topic, partition), time.monotonic() + 2 * SOON_S
    stable = Consumer(settings)  # the default here is read_committed, so that is said below
    ends = Consumer({**settings, "isolation.level": "read_uncommitted"})
    try:
        while True:  # a transaction that was committed may be marked in its partitions later
            first, last_stable = ends_of(stable, place, until_s)
            _, end = ends_of(ends, place, until_s)
            if last_stable == end or time.monotonic() > until_s:
                break
            time.sleep(0.05)
    finally:
        stable.close()
        ends.close()
    assert first == 0, "retention took the oldest"
    assert last_stable == end, "a transaction is open"
    consumer = Consumer({**settings, "isolation.level": isolation, "enable.partition.eof": True})
    found = []
    try:
        consumer.assign([TopicPartition(topic, partition, 0)])
        until_s = time.monotonic() + SOON_S
        while time.monotonic() < until_s:
            for message in consumer.consume(1000, timeout=0.2):
                error = message.error()
                if error is None:
                    found.append(message)
                    continue
                assert error.code() == KafkaError._PARTITION_EOF, error
                if message.offset() >= end:  # more may have come meanwhile
                    return found
    finally:
        consumer.close()
    raise AssertionError("its end was not reached")


def set_limit(kafka: KafkaServer, topic: str, max_message_bytes: int) -> None:
    kafka.configure("TOPIC", topic, "max.message.bytes", str(max_message_bytes))


def grow(kafka: KafkaServer, topic: str, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers, "log_level": 0})
    admin.create_partitions([NewPartitions(topic, partitions)])[topic].result(30)
    wait_until(lambda: len(admin.list_topics(topic, timeout=10).topics[topic].partitions)
               == partitions)  # fmt: skip  # one call


def name_of(log: Path, cursor: str = "bridge") -> CursorName:
    with Reader(log) as reader:
        assert reader.topic_uuid is not None
        return CursorName(reader.topic_uuid, cursor)


# --- killed over and over -----------------------------------------------------------------------


class Budget(NamedTuple):
    """How many kills, over how many records."""

    kills: int
    records: int


BUDGETS = pytest.mark.parametrize(
    "budget",
    [
        Budget(5, 40_000),
        pytest.param(Budget(30, 300_000), marks=[pytest.mark.slow, pytest.mark.timeout(1800)]),
    ],
    ids=["small", "long"],
)


def fill_mixed(log: Path, count: int) -> None:
    """With and without key and headers, of many sizes."""
    with Writer(log) as writer:
        for number in range(count):
            writer.append(
                b"%d %s" % (number, b"x" * (number % 97)),
                key=None if number % 11 == 0 else b"key-%d" % (number % 503),
                headers=[("n", b"%d" % number), ("none", None)] if number % 5 else (),
                timestamp=1_700_000_000_000_000 + number * 1_003_001,
            )


class Kills(NamedTuple):
    """What became of it. skipped: records that were recognised as there already."""

    counted: int
    all: int
    skipped: int
    fractions: list[float]


def kill_over_and_over(start: Callable[[], Process], budget: Budget, seed: int) -> Kills:
    """Starts the bridge and kills it (SIGKILL) at random moments until that happened often
    enough between 1 and 99 % acknowledged; the rest is left to the caller. One in five dies in
    its first half second, the others a random while after a random count of records."""
    chance = random.Random(seed)
    counted = every = skipped = 0
    fraction = 0.0
    fractions: list[float] = []
    while counted < budget.kills:
        assert every < budget.kills * 3, f"only {counted} kills of {every} were under way"
        share = (0.97 - fraction) / (budget.kills - counted + 1) * budget.records
        process = start()
        if every and chance.random() < 0.2:
            process.until(lambda _: True)
            late = time.monotonic() + chance.uniform(0, 0.5)
            process.until(
                lambda s, late=late, share=share: (
                    time.monotonic() > late or s["acknowledged"] > share
                )
            )
        else:
            wanted = chance.uniform(0.1, 1.2) * max(share, 1)
            process.until(
                lambda s, wanted=wanted: s["acknowledged"] >= wanted or s["lag_records"] == 0
            )
            time.sleep(chance.uniform(0, 0.03))
        process.kill()
        last = process.statuses[-1]
        fraction = max(fraction, 1 - last["lag_records"] / budget.records)
        skipped += last["skipped"]
        every += 1
        if 0.01 <= fraction <= 0.99:
            counted += 1
            fractions.append(fraction)
    return Kills(counted, every, skipped, fractions)
