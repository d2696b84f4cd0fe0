"""A whole topic, as an independent consumer reads it: for the demo's checks."""

from __future__ import annotations

from typing import Any, NamedTuple

from confluent_kafka import KafkaError, TopicPartition

from bridge.kafka.client import NotReachable, consumer


class Arrived(NamedTuple):
    """A message as a consumer sees it."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]
    timestamp_ms: int


class TopicReader:
    """Reads a topic from its beginning, while it grows."""

    def __init__(self, bootstrap_servers: str, topic: str, partitions: int) -> None:
        self._consumer = consumer(
            {"bootstrap.servers": bootstrap_servers, "reconnect.backoff.max.ms": 500},
            "aolog-bridge-demo",
            auto_offset_reset="error",  # messages that the broker dropped must not be skipped
            fetch_wait_max_ms=20,
        )
        self._consumer.assign([TopicPartition(topic, p, 0) for p in range(partitions)])

    def poll(self, timeout_s: float) -> list[Arrived]:
        """The messages that have arrived since; perhaps none."""
        arrived = []
        for message in self._consumer.consume(5_000, timeout=timeout_s):
            error = message.error()
            if error is not None:
                if error.code() == KafkaError._AUTO_OFFSET_RESET:  # noqa: SLF001 -- a public name
                    raise NotReachable(error.str())
                continue
            headers: Any = message.headers() or []
            key: Any = message.key()
            value: Any = message.value()
            arrived.append(
                Arrived(
                    message.partition() or 0,
                    message.offset() or 0,
                    key,
                    value,
                    headers,
                    message.timestamp()[1],
                )
            )
        return arrived

    def close(self) -> None:
        """Leaves the cluster."""
        self._consumer.close()
