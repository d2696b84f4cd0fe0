"""A broker that all tests of a module share; so each test has topics of its own."""

from __future__ import annotations

import ctypes

import pytest

from bridge.kafka.embedded import EmbeddedBroker


@pytest.fixture(scope="module")
def cluster():
    with EmbeddedBroker() as running:
        # A new group waits for 3 s for more members, which each test would pay for.
        running._lib.rd_kafka_mock_group_initial_rebalance_delay_ms(
            ctypes.c_void_p(running._cluster), ctypes.c_int32(0)
        )
        yield running
