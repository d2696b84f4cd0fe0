"""Poison against Apache Kafka, in both deliveries: it is known before it is sent, named by the
cluster, or looked for; what is good arrives soon all the same."""

from __future__ import annotations

import logging
import re
import time
from pathlib import Path
from typing import Any, Protocol

import pytest

from aolog import Writer
from bridge.kafka import topic_settings
from bridge.testing.apache_kafka.server import KafkaServer
from tests.bridge.against_kafka import committed_in
from tests.bridge.brokers import assert_arrived
from tests.bridge.forwarders import Forward
from tests.bridge.logs import append, fill, letters, records_of
from tests.kafka.plugin import TopicFactory

pytestmark = pytest.mark.kafka

DELIVERIES = pytest.mark.parametrize("delivery", ["at_least_once", "exactly_once"])
# 1,000 records one by one took four minutes on a quiet machine; now it is seconds, and on a machine
# that is busy with other tests under a minute.
SOON_S = 120.0


def check(log: Path, poison: list[int], arrived: list[Any], topic: str, code: str) -> None:
    """Poison is set aside, each record once; all else arrived."""
    found = sorted(letters(log), key=lambda letter: letter.origin.address)
    assert [letter.origin.address for letter in found] == poison
    assert {letter.code for letter in found} == {code}
    rest = [record for record in records_of(log) if record.address not in set(poison)]
    assert_arrived(rest, arrived, topic=topic)


def fill_with_keyless(log: Path, count: int, each: int) -> list[int]:
    """So many records without a key, and so many good ones before each, in a frame of their own; their
    addresses."""
    with Writer(log) as writer:
        poison = []
        for begin in range(0, count * each, each):
            append(writer, range(begin, begin + each))
            poison.append(writer.append(b"no key", timestamp=begin * 1_000_000))
            writer.flush()
        return poison


class Drain(Protocol):
    """Drains a log with poison in it; how often the cluster rejected something of it."""

    def __call__(self, topic: str, delivery: str, **options: Any) -> int: ...


@pytest.fixture
def drain(forward_to: Forward, caplog: pytest.LogCaptureFixture) -> Drain:
    def drain(topic: str, delivery: str, **options: Any) -> int:
        begin_s = time.monotonic()
        with caplog.at_level(logging.INFO, "bridge"):
            forward_to(topic, poison="dead-letter", delivery=delivery, **options).end()
        assert time.monotonic() - begin_s < SOON_S
        said = [record.getMessage() for record in caplog.records]
        return sum(
            "rejected a request" in each or "transaction is aborted" in each for each in said
        )

    return drain


@pytest.fixture
def blind(monkeypatch: pytest.MonkeyPatch) -> None:
    """As without the right to describe a topic's settings."""
    monkeypatch.setattr(topic_settings.TopicSettings, "learn", lambda *_: [])


@DELIVERIES
def test_a_thousand_records_without_a_key_for_a_compacted_topic_cost_seconds(
    kafka: KafkaServer, topic: TopicFactory, log: Path, drain: Drain, delivery: str
) -> None:
    name = topic(1, {"cleanup.policy": "compact", "retention.ms": "-1"})
    poison = fill_with_keyless(log, 1_000, 5)
    assert drain(name, delivery) < 5
    check(log, poison, committed_in(kafka, name), name, "INVALID_RECORD")
    assert "compact" in letters(log)[0].reason


@DELIVERIES
def test_records_over_a_topics_bound_are_known_to_a_byte(
    kafka: KafkaServer, topic: TopicFactory, log: Path, forward_to: Forward, delivery: str
) -> None:
    """One of each size from below the bound to above it."""
    name, poison = topic(1, {"max.message.bytes": "20000"}), []
    with Writer(log) as writer:
        for size in range(19_850, 20_050):
            append(writer, range(3))
            headers = [("h", b"1")] if size % 2 else []
            address = writer.append(b"x" * size, key=b"k3", headers=headers)
            # A batch has 61 bytes; a record has its length (3), 3 of its own, lengths of key (1)
            # and value (3), a count of headers (1), and the stamp with its name (43).
            if 61 + 3 + 3 + 1 + 2 + 3 + size + 1 + 43 + 4 * len(headers) > 20_000:
                poison.append(address)
    status = forward_to(name, poison="dead-letter", delivery=delivery).end()
    assert status.dead_lettered == len(poison) > 100
    check(log, poison, committed_in(kafka, name), name, "MSG_SIZE_TOO_LARGE")


@DELIVERIES
@pytest.mark.parametrize("good", [0, 500], ids=["at the beginning", "after others"])
def test_a_run_of_records_with_refused_times_costs_a_few_connections(
    kafka: KafkaServer, topic: TopicFactory, log: Path, drain: Drain, delivery: str, good: int
) -> None:
    """They are a day ahead, and the clocks may differ by as much. Some are hours nearer."""
    name, hour_us = topic(2), 3_600_000_000
    now_us = time.time_ns() // 1_000
    with Writer(log) as writer:
        append(writer, range(good))
        poison = [
            writer.append(
                b"%d" % number, key=b"%d" % number,
                timestamp=now_us + number + (20 if 1_000 <= number < 1_500 else 24) * hour_us,
            )
            for number in range(2_000)
        ]  # fmt: skip  # one call
        append(writer, range(good, good + 500))
    # At the beginning, whole transactions hold nothing else.
    assert drain(name, delivery, transaction_records=10_000 if good else 300) < 30
    found = sorted(letters(log), key=lambda letter: letter.origin.address)
    assert [letter.origin.address for letter in found] == poison
    assert {letter.code for letter in found} <= {"INVALID_TIMESTAMP", "INVALID_RECORD"}
    rest = [record for record in records_of(log) if record.address not in set(poison)]
    assert_arrived(rest, committed_in(kafka, name, 2), topic=name)


@DELIVERIES
def test_a_value_larger_than_the_clients_queue_is_refused_and_the_rest_arrives(
    kafka: KafkaServer, topic: TopicFactory, log: Path, drain: Drain, delivery: str
) -> None:
    name = topic(1)
    with Writer(log) as writer:
        append(writer, range(50), size=1_000)
        poison = [writer.append(b"x" * 33_000, key=b"k")]
        writer.append(b"x" * 32_768, key=b"k")
        append(writer, range(50, 100), size=1_000)
    assert drain(name, delivery, settings={"queue.buffering.max.kbytes": "32"}) == 0
    check(log, poison, committed_in(kafka, name), name, "MSG_SIZE_TOO_LARGE")


@DELIVERIES
def test_requests_too_large_for_a_topic_that_takes_each_of_their_records_are_made_smaller(
    kafka: KafkaServer, topic: TopicFactory, log: Path, drain: Drain, delivery: str
) -> None:
    name = topic(1, {"max.message.bytes": "5000", "retention.ms": "-1"})
    fill(log, 100, size=1000, keys=1)
    drain(name, delivery)
    assert_arrived(records_of(log), committed_in(kafka, name), topic=name)


@DELIVERIES
def test_poison_that_the_cluster_names_costs_a_connection_for_many(
    kafka: KafkaServer, topic: TopicFactory, log: Path, drain: Drain, delivery: str, blind: None
) -> None:
    name = topic(1, {"cleanup.policy": "compact", "retention.ms": "-1"})
    poison = fill_with_keyless(log, 200, 50)
    # A request with one poison record names none. So no request may be sent half full where a busy
    # machine queues slowly. A quiet one takes 23 connections at least once, and 9 exactly once.
    for_each = {"at_least_once": 5, "exactly_once": 8}[delivery]
    assert drain(name, delivery, settings={"linger.ms": "100"}) < len(poison) / for_each
    check(log, poison, committed_in(kafka, name), name, "INVALID_RECORD")


@DELIVERIES
def test_poison_that_the_cluster_does_not_name_is_found_in_seconds(
    kafka: KafkaServer,
    topic: TopicFactory,
    log: Path,
    drain: Drain,
    delivery: str,
    blind: None,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The client compresses, so a size says nothing."""
    name, poison = topic(1, {"max.message.bytes": "20000"}), []
    with Writer(log) as writer:
        for number in range(3):
            append(writer, range(number * 200, number * 200 + 200))
            noise = b"".join(b"%032x" % (i * 0x9E3779B97F4A7C15 % (1 << 127)) for i in range(3_000))
            poison.append(writer.append(noise, key=b"k"))
            writer.append(b"x" * 100_000, key=b"k")
    assert drain(name, delivery, settings={"compression.type": "zstd"}) < len(poison) * 8
    check(log, poison, committed_in(kafka, name), name, "MSG_SIZE_TOO_LARGE")
    found = re.findall("1 record (?:of it )?will not be sent", caplog.text)
    assert len(found) == len(poison)
