"""Fixtures for tests against a real Kafka. `tests/conftest.py` imports them.

One server for the whole run, since a JVM takes seconds to start. A test may stop, kill or
pause it: every test that asks for a topic finds it up again, with all earlier topics. It is as
people have it, with Kafka's own defaults; `strict_kafka` is as careful operators have it, and
`kafka_3_9` is of an earlier version.
"""

from __future__ import annotations

import os
import re
import uuid
from collections.abc import Callable, Iterator, Mapping
from typing import Protocol, TypeVar

import pytest

from bridge.testing.apache_kafka.jars import POM_3_9, KafkaUnavailable
from bridge.testing.apache_kafka.server import KafkaServer
from tests.kafka.rights import StrictKafka
from tests.kafka.servers import restore

__all__ = ["TopicFactory", "kafka", "kafka_3_9", "started", "strict_kafka", "topic"]

Server = TypeVar("Server", KafkaServer, StrictKafka)

# Kafka's own bound on a topic's name is 249; this leaves room and stays readable in a log.
_NAME_LENGTH_MAX = 60


class TopicFactory(Protocol):
    """Creates a topic that no other test knows, and answers its name."""

    def __call__(self, partitions: int = 1, config: Mapping[str, str] | None = None) -> str: ...


def started(make: Callable[[], Server]) -> Server:
    """Where none can be had: a skip, but in CI (`CI=true`) a failure."""
    try:
        return make()
    except KafkaUnavailable as error:
        if os.environ.get("CI") == "true":
            pytest.fail(str(error), pytrace=False)
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaServer]:
    """A running Kafka server."""
    with started(lambda: KafkaServer(tmp_path_factory.mktemp("kafka"))) as server:
        yield server


@pytest.fixture(scope="session")
def strict_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StrictKafka]:
    """One that creates no topic by itself, and grants nothing that was not asked for."""
    directory, config = tmp_path_factory.mktemp("strict"), {"auto.create.topics.enable": "false"}
    with started(lambda: StrictKafka(directory, config)) as server:
        yield server


@pytest.fixture(scope="session")
def kafka_3_9(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StrictKafka]:
    """A Kafka 3.9 with ACLs, which creates topics automatically, and closes idle connections soon:
    after 3 s, where Kafka's default is ten minutes, and a load balancer's often one."""
    directory, config = tmp_path_factory.mktemp("kafka-3-9"), {"connections.max.idle.ms": 3_000}
    with started(lambda: StrictKafka(directory, config, POM_3_9)) as server:
        yield server


@pytest.fixture
def topic(kafka: KafkaServer, request: pytest.FixtureRequest) -> TopicFactory:
    """Make a topic: `topic()`, `topic(3)`, `topic(config={"max.message.bytes": "1000"})`."""
    restore(kafka)
    stem = re.sub(r"[^A-Za-z0-9_-]+", "-", request.node.name)[:_NAME_LENGTH_MAX]

    def create(partitions: int = 1, config: Mapping[str, str] | None = None) -> str:
        name = f"{stem}-{uuid.uuid4().hex[:8]}"
        kafka.create_topic(name, partitions, config)
        return name

    return create
