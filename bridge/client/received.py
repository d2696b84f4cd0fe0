"""A record as a consumer returns it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from aolog.record import Headers


class Received(NamedTuple):
    """One record of a topic. timestamp: milliseconds since the epoch, UTC; None if it has none."""

    topic: str
    partition: int
    offset: int
    timestamp: int | None
    key: bytes | None
    value: bytes | None
    headers: Headers


def received(message: Any) -> Received:
    """Of confluent-kafka's message."""
    kind, timestamp = message.timestamp()
    return Received(
        message.topic(),
        message.partition(),
        message.offset(),
        timestamp if kind else None,
        message.key(),
        message.value(),
        tuple(message.headers() or ()),
    )
