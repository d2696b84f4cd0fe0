"""Whether a cluster answers, where nothing is sent: one connection, which `look` serves. It asks nothing
and needs no right."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaException

from aolog.errors import StorageFailed
from bridge.kafka.client import AUTO_CREATE, words
from bridge.kafka.events import Failed
from bridge.kafka.producer import Cluster

if TYPE_CHECKING:
    from collections.abc import Mapping

_AGAIN_S = 5.0  # pause before a client that failed is made anew


class _Listening(Cluster):
    """A Cluster that sends nothing, so that it needs no producer id, for which old brokers want a right."""

    def connect(self, *, careful: bool = False) -> None:
        assert not careful, "it has no records"
        self.disconnect()
        self._make({AUTO_CREATE: False})


class ClusterWatch:
    """Of one cluster. Makes no call that waits for it. For one thread; others may read `reachable` and
    `trouble`. settings: librdkafka's, checked before. Close it.

    reachable: whether a broker is connected; None until that is known, for seconds at most.
    trouble: why none is, as soon as that is known."""

    def __init__(self, bootstrap_servers: str, settings: Mapping[str, Any]) -> None:
        self._cluster = _Listening(bootstrap_servers, dict(settings))
        self._connected = False
        self._connect_at_s = 0.0
        self._failure: str | None = None  # why the last client was given up
        self.reachable: bool | None = None
        self.trouble: str | None = None

    def look(self, now_s: float) -> None:
        """Takes what the client reports."""
        if not self._connected and now_s >= self._connect_at_s:
            self._connect_at_s = now_s + _AGAIN_S
            self._connect()
        if self._connected:
            failed = [
                event.reason for event in self._cluster.poll(0.0) if isinstance(event, Failed)
            ]
            if failed:
                self._failure, self._connected = failed[0], False
                self._cluster.disconnect()
        if self._cluster.reachable:
            self.reachable, self.trouble, self._failure = True, None, None
            return
        self.trouble = self._cluster.trouble(self._failure)
        if self.reachable or self.trouble is not None:
            self.reachable = False

    def _connect(self) -> None:
        try:
            self._cluster.connect()
        except KafkaException as error:
            self._failure = words(error)
        except StorageFailed as error:  # no descriptor is free
            self._failure = str(error)
        else:
            self._connected = True

    def close(self) -> None:
        """Ends the connection."""
        self._cluster.disconnect()
