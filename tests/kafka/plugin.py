"""Fixtures for tests against a real Kafka. `tests/conftest.py` imports them.

One server for the whole run, since a JVM takes seconds to start. A test may stop, kill or
pause it: every test that asks for a topic finds it up again, with all earlier topics.
"""

from __future__ import annotations

import os
import re
import uuid
from collections.abc import Iterator, Mapping
from typing import Protocol

import pytest

from tests.kafka.server import KafkaServer, KafkaUnavailable

__all__ = ["TopicFactory", "kafka", "topic"]

# Kafka's own bound on a topic's name is 249; this leaves room and stays readable in a log.
_NAME_LENGTH_MAX = 60


class TopicFactory(Protocol):
    """Creates a topic that no other test knows, and answers its name."""

    def __call__(self, partitions: int = 1, config: Mapping[str, str] | None = None) -> str: ...


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaServer]:
    """A running Kafka server. Where none can be had: a skip, but in CI (`CI=true`) a failure."""
    try:
        server = KafkaServer(tmp_path_factory.mktemp("kafka"))
    except KafkaUnavailable as error:
        if os.environ.get("CI") == "true":
            pytest.fail(str(error), pytrace=False)
        pytest.skip(str(error))
    with server:
        yield server


@pytest.fixture
def topic(kafka: KafkaServer, request: pytest.FixtureRequest) -> TopicFactory:
    """Make a topic: `topic()`, `topic(3)`, `topic(config={"max.message.bytes": "1000"})`."""
    kafka.restore()
    stem = re.sub(r"[^A-Za-z0-9_-]+", "-", request.node.name)[:_NAME_LENGTH_MAX]

    def create(partitions: int = 1, config: Mapping[str, str] | None = None) -> str:
        name = f"{stem}-{uuid.uuid4().hex[:8]}"
        kafka.create_topic(name, partitions, config)
        return name

    return create
