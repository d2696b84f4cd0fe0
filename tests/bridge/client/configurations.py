"""Configurations of JSON clients, by hazdev-broker's keys, and what a consumer receives."""

from __future__ import annotations

import time
import uuid

from bridge.client import Consumer
from bridge.kafka.embedded import EmbeddedBroker
from tests.waiting import SOON_S

# The embedded broker's group waits for the session's time, less a second, after its last member left.
SHORT_SESSION = {"session_timeout_ms": 2_000, "heartbeat_interval_ms": 200}


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
