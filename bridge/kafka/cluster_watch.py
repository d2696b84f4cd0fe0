"""Whether a cluster answers, where nothing is sent: one connection, which `look` serves. It asks nothing
and needs no right."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from confluent_kafka import KafkaError, KafkaException

from aolog.errors import StorageFailed
from bridge.kafka.client import AUTO_CREATE, words
from bridge.kafka.connection import Connection, Listener
from bridge.kafka.error_table import Kind, kind_of

_AGAIN_S = 5.0  # pause before a client that failed is made anew


class ClusterWatch:
    """Of one cluster. Makes no call that waits for it. For one thread; others may read `reachable` and `trouble`.
    settings: librdkafka's, checked before. Close it."""

    def __init__(self, bootstrap_servers: str, settings: Mapping[str, Any]) -> None:
        self._connection = Connection(
            bootstrap_servers, dict(settings), Listener(self._fail, self._fail)
        )
        self._connect_at_s = 0.0
        self._failure: str | None = None  # why the last client was given up
        self.reachable: bool | None = None  # a broker is connected; None until that is known
        self.trouble: str | None = None  # why none is, as soon as that is known

    def look(self, now_s: float) -> None:
        """Takes what the client reports."""
        connection = self._connection
        if connection.client is None and now_s >= self._connect_at_s:
            self._connect_at_s = now_s + _AGAIN_S
            self._connect()
        if connection.client is not None:
            failure, self._failure = self._failure, None
            connection.serve()
            if self._failure is not None:
                connection.close()
            self._failure = self._failure or failure
        if connection.reachable:
            self.reachable, self.trouble, self._failure = True, None, None
            return
        self.trouble = connection.trouble(self._failure)
        if self.reachable or self.trouble is not None:
            self.reachable = False

    def _connect(self) -> None:
        try:
            # It sends nothing, so it needs no producer id, for which old brokers want a right.
            self._connection.open({AUTO_CREATE: False})
        except KafkaException as error:
            self._failure = words(error)
        except StorageFailed as error:  # no descriptor is free
            self._failure = str(error)

    def _fail(self, error: KafkaError) -> None:
        if kind_of(error.name()) is Kind.LOCKED_OUT:
            self._connection.locked_out(error)
        self._failure = self._failure or f"{error.name()}: {error.str()}"

    def close(self) -> None:
        """Ends the connection."""
        self._connection.close()
