"""Kafka behind a Buffer: a broker that comes and goes, poison, partitions, wrong settings."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any, get_args

import pytest
from confluent_kafka import Consumer, TopicPartition

from bridge.buffer import Buffer
from bridge.embedded import EmbeddedBroker
from bridge.errors import NotDelivered, WrongSetting
from bridge.kafka_provider import KafkaProvider
from bridge.routing import partition_of_key
from bridge.store_forward import Mode
from tests.bridge.conftest import PARTITIONS, SOON_S, TOPIC, wait_until
from tests.kafka.plugin import TopicFactory
from tests.kafka.server import KafkaServer

QUICK: dict[str, Any] = {"live_after_s": 0.2, "retry_max_s": 0.5, "close_s": 60.0}


def consume(bootstrap_servers: str, topic: str, partitions: int) -> list[list[Any]]:
    """All messages, a list a partition, in order."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap_servers, "group.id": "test", "log_level": 0,
         "auto.offset.reset": "error", "fetch.wait.max.ms": 10}
    )  # fmt: skip  # two lines of settings
    try:
        places = [TopicPartition(topic, p) for p in range(partitions)]
        ends = [consumer.get_watermark_offsets(place, timeout=SOON_S) for place in places]
        consumer.assign([TopicPartition(topic, p, low) for p, (low, _) in enumerate(ends)])
        found: list[list[Any]] = [[] for _ in places]
        missing = sum(high - low for low, high in ends)
        until_s = time.monotonic() + SOON_S
        while missing and time.monotonic() < until_s:
            for message in consumer.consume(missing, timeout=0.2):
                assert message.error() is None
                found[message.partition() or 0].append(message)
                missing -= 1
        assert not missing
    finally:
        consumer.close()
    return found


def values_by_key(found: list[list[Any]]) -> dict[bytes, list[int]]:
    values: dict[bytes, list[int]] = {}
    for messages in found:
        for message in messages:
            values.setdefault(message.key(), []).append(int(message.value()))
    return values


@pytest.mark.parametrize("mode", get_args(Mode))
def test_messages_arrive_in_the_partitions_of_java_with_all_they_carry(
    broker: EmbeddedBroker, tmp_path: Path, mode: Mode
) -> None:
    provider = KafkaProvider(broker.bootstrap_servers)
    with Buffer(provider, tmp_path / "log", mode=mode, **QUICK) as buffer:
        for number in range(2_000):
            buffer.send(TOPIC, b"%d" % number, b"k%d" % (number % 7), [("h", b"v")])
        buffer.send(TOPIC, None, None)
        assert buffer.flush(SOON_S)
    found = consume(broker.bootstrap_servers, TOPIC, PARTITIONS)
    assert sum(map(len, found)) == 2_001
    for partition, messages in enumerate(found):
        for message in messages:
            if message.key() is not None:
                assert partition_of_key(message.key(), PARTITIONS) == partition
                assert message.headers() == [("h", b"v")]
            assert abs(message.timestamp()[1] / 1_000 - time.time()) < SOON_S
    values = values_by_key([[m for m in ms if m.key() is not None] for ms in found])
    assert values == {b"k%d" % k: list(range(k, 2_000, 7)) for k in range(7)}


def test_an_outage_is_passed_through_the_log(broker: EmbeddedBroker, tmp_path: Path) -> None:
    provider = KafkaProvider(broker.bootstrap_servers, delivery_s=1.0)
    with Buffer(provider, tmp_path / "log", mode="buffer", **QUICK) as buffer:
        numbers = iter(range(10**9))
        for phase in ("up", "down", "up", "down", "up"):
            if phase == "down":
                broker.set_down()
            else:
                broker.set_up()
            for _ in range(500):
                number = next(numbers)
                buffer.send(TOPIC, b"%d" % number, b"k%d" % (number % 5))
            if phase == "down":
                wait_until(lambda: buffer.status().state == "buffering")
            else:
                wait_until(lambda: buffer.status().state == "live")
                assert buffer.flush(SOON_S)
    for key, values in values_by_key(consume(broker.bootstrap_servers, TOPIC, PARTITIONS)).items():
        assert list(dict.fromkeys(values)) == list(range(int(key[1:]), 2_500, 5))


def test_a_message_too_large_comes_back_and_its_neighbours_arrive(
    kafka: KafkaServer, topic: TopicFactory, tmp_path: Path
) -> None:
    """Refused by the broker in one request with its neighbours, and by the client at once."""
    name = topic(1, {"max.message.bytes": "20000"})
    provider = KafkaProvider(kafka.bootstrap_servers, {"linger.ms": "50"})
    buffer = Buffer(provider, tmp_path / "log", mode="buffer", **QUICK)
    rejected = []
    for number in range(300):
        size = {100: 30_000, 200: 3_000_000}.get(number, 10)
        try:
            buffer.send(name, (b"%d" % number).ljust(size), b"k")
        except NotDelivered as error:
            rejected += error.undelivered
            buffer.send(name, (b"%d" % number).ljust(size), b"k")

    def all_rejected() -> bool:
        try:
            buffer.flush(0.1)
        except NotDelivered as error:
            rejected.extend(error.undelivered)
        return len(rejected) == 2

    wait_until(all_rejected)
    buffer.close()
    assert sorted(int(m.value or b"") for m in rejected) == [100, 200]
    values = values_by_key(consume(kafka.bootstrap_servers, name, 1))[b"k"]
    assert list(dict.fromkeys(values)) == [n for n in range(300) if n not in {100, 200}]


@pytest.mark.parametrize("mode", ["buffer", pytest.param("block", marks=pytest.mark.slow)])
def test_order_holds_while_a_real_broker_is_killed_and_stopped(
    kafka: KafkaServer, topic: TopicFactory, tmp_path: Path, mode: Mode
) -> None:
    name = topic(3)
    provider = KafkaProvider(kafka.bootstrap_servers, delivery_s=2.0)
    stop = threading.Event()
    with Buffer(provider, tmp_path / "log", mode=mode, **QUICK) as buffer:

        def work() -> None:
            number = 0
            while not stop.is_set():
                buffer.send(name, b"%d" % number, b"k%d" % (number % 5))
                number += 1
                time.sleep(0.0005)

        thread = threading.Thread(target=work)
        thread.start()
        failing = "buffering" if mode == "buffer" else "blocked"
        try:
            for end in (kafka.kill, kafka.stop):
                wait_until(lambda: buffer.status().state == "live")
                end()
                wait_until(lambda: buffer.status().state == failing)
                kafka.start()
            wait_until(lambda: buffer.status().state == "live")
        finally:
            stop.set()
            thread.join()
        assert buffer.flush(SOON_S)
        sent = buffer.status().delivered
    values = values_by_key(consume(kafka.bootstrap_servers, name, 3))
    firsts = {key: list(dict.fromkeys(found)) for key, found in values.items()}
    total = sum(map(len, firsts.values()))
    assert total <= sent
    for key, found in firsts.items():
        assert found == list(range(int(key[1:]), total, 5))


def test_a_wrong_setting_is_named_before_anything_is_sent() -> None:
    with pytest.raises(WrongSetting, match="lingerr"):
        KafkaProvider("localhost:1", {"lingerr.ms": "1"})


def test_a_cluster_that_is_not_there_is_waited_for_and_said(tmp_path: Path) -> None:
    with Buffer(KafkaProvider("127.0.0.1:1"), tmp_path / "log", **QUICK) as buffer:
        buffer.send(TOPIC, b"1")
        wait_until(lambda: "127.0.0.1:1" in (buffer.status().error or ""))
        assert buffer.flush(SOON_S), "it is in the log"
        assert buffer.status().in_backlog == 1
