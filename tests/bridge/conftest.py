"""Fixtures that all tests of the bridge share. Where they are from, and how to write a test: see
aolog/docs/project/testing-the-bridge.md."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from bridge.testing import embedded_broker
from tests.bridge.brokers import broker, other
from tests.bridge.forwarders import committed, forward, forward_to
from tests.bridge.logs import log
from tests.bridge.processes import bridge, run, start

__all__ = [
    "bridge", "broker", "committed", "embedded_broker", "forward", "forward_to", "log", "other",
    "run", "start",
]  # fmt: skip  # a list


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """The client's own words on each refused connection would fill pages."""
    logger = logging.getLogger("bridge.librdkafka")
    level = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    yield
    logger.setLevel(level)
