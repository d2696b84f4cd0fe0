"""Apache Kafka of three nodes, each broker and controller, of which one may die.

Ready in 30 s on two cores that are busy otherwise. Nodes are `KafkaServer`s, and may be killed
and started as such.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Self

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from bridge.testing.apache_kafka.ports import free_ports
from bridge.testing.apache_kafka.server import START_SECONDS_MAX, KafkaServer, Node, cluster_id

NODES: Final = (1, 2, 3)

_CONFIG: Final = {
    "default.replication.factor": 3,
    "min.insync.replicas": 2,
    "offsets.topic.replication.factor": 3,
    "transaction.state.log.replication.factor": 3,
    "transaction.state.log.min.isr": 2,
    # Of a leader that is killed: how soon the quorum and the partitions have another.
    "controller.quorum.fetch.timeout.ms": 1500,
    "controller.quorum.election.timeout.ms": 1000,
    "replica.lag.time.max.ms": 3000,
}


class KafkaCluster:
    """Three nodes; ready on return. Parameters are as of KafkaServer. A context manager that kills
    them. Raises KafkaUnavailable, KafkaDied."""

    def __init__(
        self,
        directory: Path,
        config: Mapping[str, object] | None = None,
        listeners: Mapping[str, str] | None = None,
        jars: Path | None = None,
    ) -> None:
        voters = {n: f"127.0.0.1:{port}" for n, port in zip(NODES, free_ports(3), strict=True)}
        identity = cluster_id()

        def begin(number: int) -> KafkaServer:
            return KafkaServer(
                directory / str(number),
                {**_CONFIG, **(config or {})},
                listeners,
                Node(number, identity, voters),
                jars=jars,
            )

        with ThreadPoolExecutor(len(NODES)) as pool:
            self.nodes = dict(zip(NODES, pool.map(begin, NODES), strict=True))
        self._wait(lambda: len(self._metadata().brokers) == len(NODES))

    @property
    def bootstrap_servers(self) -> str:
        """All nodes."""
        return ",".join(node.bootstrap_servers for node in self.nodes.values())

    def bootstrap_of(self, listener: str) -> str:
        """All nodes, by a further listener."""
        return ",".join(node.bootstrap_of(listener) for node in self.nodes.values())

    def create_topic(self, name: str, replicas: list[list[int]]) -> None:
        """A partition for each list of nodes, the preferred leader first; on return all lead."""
        topic = NewTopic(name, num_partitions=len(replicas), replica_assignment=replicas)
        admin = self._admin()
        admin.create_topics([topic], operation_timeout=30)[name].result(30)
        self._wait(lambda: [ids[0] for ids in replicas] == self.leaders(name))

    def leaders(self, topic: str) -> list[int]:
        """Of each partition; -1 where there is none."""
        partitions = self._metadata(topic).topics[topic].partitions
        return [partitions[number].leader for number in sorted(partitions)]

    @property
    def controller(self) -> int:
        """The node whose death would cost an election too."""
        return int(self._metadata().controller_id)

    def _metadata(self, topic: str | None = None) -> Any:
        admin = self._admin()
        return admin.list_topics(topic, timeout=5)

    def _admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.bootstrap_servers, "log_level": 0})

    def _wait(self, reached: Callable[[], bool]) -> None:
        until_s = time.monotonic() + START_SECONDS_MAX
        while True:
            with suppress(KafkaException):
                if reached():
                    return
            assert time.monotonic() < until_s, "the cluster did not come to that"
            time.sleep(0.1)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for node in self.nodes.values():
            node.kill()
