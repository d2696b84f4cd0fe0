"""What tests of the clients share: configurations, and a consumer that owes nothing to the room."""

from __future__ import annotations

import ctypes
import time
import uuid

import pytest

from bridge.client import Consumer
from bridge.kafka.embedded import EmbeddedBroker
from tests.bridge.conftest import SOON_S

# The embedded broker's group waits for the session's time, less a second, after its last member left.
SHORT_SESSION = {"session_timeout_ms": 2_000, "heartbeat_interval_ms": 200}


@pytest.fixture(scope="module")
def cluster():
    with EmbeddedBroker() as running:
        # A new group waits for 3 s for more members, which each test would pay for.
        running._lib.rd_kafka_mock_group_initial_rebalance_delay_ms(
            ctypes.c_void_p(running._cluster), ctypes.c_int32(0)
        )
        yield running


def new_topic(cluster: EmbeddedBroker, partitions: int = 1) -> str:
    name = f"t-{uuid.uuid4().hex[:8]}"
    cluster.create_topic(name, partitions)
    return name


def producer_config(cluster, *, top=None, **properties):
    return {
        "Type": "ProducerConfig",
        "Properties": {"bootstrap.servers": cluster.bootstrap_servers, **spelt(properties)},
        **(top or {}),
    }


def consumer_config(cluster, group, *, top=None, **properties):
    return {
        "Type": "ConsumerConfig",
        "Properties": {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "fetch.wait.max.ms": 10,
            **spelt(properties),
        },
        **(top or {}),
    }


def spelt(properties):
    return {key.replace("_", "."): value for key, value in properties.items()}


def drained(consumer: Consumer, count: int) -> list[bytes]:
    """So many values, in the order of each partition."""
    found: list[bytes] = []
    until_s = time.monotonic() + SOON_S
    while len(found) < count:
        assert time.monotonic() < until_s, f"{len(found)} of {count} arrived"
        found += consumer.poll(200)
    return found
