"""What an idempotent producer makes of the client's reports."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from confluent_kafka import KafkaError

from bridge.kafka.events import Delivered, Failed
from bridge.kafka.producer import IdempotentProducer
from tests.bridge.brokers import TOPIC

ONE, OTHER = (TOPIC, 0), (TOPIC, 1)


def test_of_successive_reports_for_a_lane_the_last_one_counts() -> None:
    producer = IdempotentProducer("127.0.0.1:1", {})

    def report(lane: Any, address: int, error: Any = None) -> None:
        producer.reporting(lane, address, 0)(error, SimpleNamespace(offset=lambda: address + 100))

    for lane, address in [(ONE, 1), (ONE, 2), (ONE, 3), (OTHER, 4), (ONE, 5)]:
        report(lane, address)
    report(ONE, 6, KafkaError(KafkaError.MSG_SIZE_TOO_LARGE))
    report(ONE, 7)
    found = list(producer.poll(0))
    delivered = [Delivered(ONE, 3, 103), Delivered(OTHER, 4, 104), Delivered(ONE, 5, 105)]
    assert found[:3] == delivered
    assert isinstance(found[3], Failed)
    assert found[4:] == [Delivered(ONE, 7, 107)]
