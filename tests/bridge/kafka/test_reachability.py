"""A connection that is closed because nothing is sent is no outage, whatever the client reports meanwhile."""

from __future__ import annotations

import time

import pytest

from bridge.kafka.embedded import EmbeddedBroker
from bridge.kafka.producer import IdempotentProducer
from tests.waiting import wait_until


def test_events_of_the_client_are_not_taken_for_records_under_way(
    broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client's length counts its log lines, too: with some in the queue, an idle bridge whose connection was
    closed was shown as disconnected."""
    producer = IdempotentProducer(broker.bootstrap_servers, {"debug": "all", "log_level": 7})
    producer.connect()
    wait_until(lambda: list(producer.poll(0.1)) or producer.connection.reachable)
    looks: list[object] = []

    def none_is_up(statistics: object) -> bool:
        time.sleep(1.5)  # the client logs something meanwhile
        looks.append(statistics)
        return False

    monkeypatch.setattr("bridge.kafka.connection.any_up", none_is_up)
    while not looks:
        producer.connection.serve(0.1)
    assert producer.connection.reachable
    producer.disconnect()
