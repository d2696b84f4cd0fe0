"""Partitions: how many each topic has, asked once a connection. Nothing is noted and no lane is
closed: transactions need neither."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from bridge.error_table import UNKNOWN_TOPIC
from bridge.librdkafka import Refused
from bridge.topics import TOPIC_WAIT_S

if TYPE_CHECKING:
    from bridge.kafka import Cluster

__all__ = ["Partitions"]


class Partitions:
    """Of the topics of one log's records on one cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._partitions: dict[str, int] = {}
        self._asked_s: dict[str, float] = {}

    def forget(self) -> None:
        """A new connection may find others. A topic that is missing has been for as long."""
        self._partitions.clear()

    @property
    def topics(self) -> list[str]:
        """Those that were found on this connection."""
        return sorted(self._partitions)

    def of(self, topic: str) -> int:
        """Of a topic that was found."""
        return self._partitions[topic]

    def find(self, topic: str) -> bool:
        """Whether they are known; else ask again in a moment. Raises Refused if there is no such
        topic and none appears, NotReachable."""
        if topic in self._partitions:
            return True
        asked_s = self._asked_s.setdefault(topic, time.monotonic())
        try:
            partitions = self._cluster.partitions(topic)
        except BaseException:
            del self._asked_s[topic]
            raise
        if partitions:
            self._partitions[topic] = partitions
            del self._asked_s[topic]
        elif time.monotonic() - asked_s > TOPIC_WAIT_S:
            raise Refused(self._cluster.missing(topic), UNKNOWN_TOPIC)
        return bool(partitions)
