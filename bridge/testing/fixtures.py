"""Fixtures for pytest."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from bridge.kafka.embedded import EmbeddedBroker

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["embedded_broker"]


@pytest.fixture
def embedded_broker() -> Iterator[EmbeddedBroker]:
    """A Kafka broker in this process; `bootstrap_servers` is its address. It holds records in memory,
    creates topics with 4 partitions when they are used, and has no transactions."""
    with EmbeddedBroker() as broker:
        yield broker
