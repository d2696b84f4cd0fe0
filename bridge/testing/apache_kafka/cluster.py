"""Apache Kafka of three nodes, each broker and controller, of which one may die.

Ready in 30 s on two cores that are busy otherwise. Nodes are `KafkaServer`s, and may be killed
and started as such.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Final, Self

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

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
        self._wait_for_all()

    @property
    def bootstrap_servers(self) -> str:
        """All nodes."""
        return ",".join(node.bootstrap_servers for node in self.nodes.values())

    def bootstrap_of(self, listener: str) -> str:
        """All nodes, by a further listener."""
        return ",".join(node.bootstrap_of(listener) for node in self.nodes.values())

    def _wait_for_all(self) -> None:
        """Until a node knows of all."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap_servers, "log_level": 0})
        until_s = time.monotonic() + START_SECONDS_MAX
        known = 0
        while known < len(NODES):
            assert time.monotonic() < until_s, "the nodes did not find one another"
            time.sleep(0.1)
            with suppress(KafkaException):
                known = len(admin.list_topics(timeout=5).brokers)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for node in self.nodes.values():
            node.kill()
