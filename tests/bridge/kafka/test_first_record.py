"""How soon a connection's first record arrives, and that nothing is reachable without one; what follows a
fatal error."""

from __future__ import annotations

import sys
import time

import pytest
from confluent_kafka import KafkaError, KafkaException

from bridge.kafka.embedded import EmbeddedBroker
from bridge.kafka.producer import IdempotentProducer
from tests.bridge.brokers import PARTITIONS, TOPIC
from tests.bridge.kafka.rows import LANES, rows_of


def test_the_first_record_of_a_connection_waits_for_no_second(broker: EmbeddedBroker) -> None:
    """A client that is asked once for a topic has its first record acknowledged after half a second
    or one."""
    broker.set_rtt_ms(10)

    def first_s() -> float:
        producer = IdempotentProducer(broker.bootstrap_servers, {})
        producer.connect()
        begun_s = time.monotonic()
        assert producer.connection.partitions(TOPIC) == PARTITIONS
        producer.put(rows_of(callbacks=[producer.reporting(lane, 0, 0) for lane in LANES]))
        while not list(producer.poll(0.01)):
            pass
        producer.disconnect()
        return time.monotonic() - begun_s

    assert any(first_s() < 0.4 for _ in range(10))  # one of ten, on a busy machine


def test_statistics_that_come_after_the_end_of_a_connection_do_not_show_it_as_reachable(
    broker: EmbeddedBroker,
) -> None:
    producer = IdempotentProducer(broker.bootstrap_servers, {})
    producer.connect()
    assert producer.connection.partitions(TOPIC) == PARTITIONS
    assert producer.connection.reachable
    time.sleep(1.5)  # the client has new statistics each second, and nobody polls
    producer.disconnect()
    assert not producer.connection.reachable


def test_after_a_fatal_error_the_client_is_polled_while_no_exception_is_handled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It keeps one for ever, with all that its frames hold, if a call fails meanwhile."""
    handled: list[object] = []

    class Client:
        def __init__(self, *_: object, **__: object) -> None:
            pass

        def poll(self, _: float) -> None:
            handled.append(sys.exc_info()[1])
            if len(handled) == 1:
                raise KafkaException(KafkaError(KafkaError._FATAL))

    monkeypatch.setattr("bridge.kafka.connection.RowProducer", Client)
    producer = IdempotentProducer("nowhere:1", {})
    producer.connect()
    assert list(producer.poll(0.0))
    assert len(handled) > 1
    assert set(handled) == {sys.exc_info()[1]}, "what an earlier test left behind, at most"
