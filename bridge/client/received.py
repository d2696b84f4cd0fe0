"""A record as a consumer returns it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from bridge.kafka.consumed import headers_of, time_ms_of

if TYPE_CHECKING:
    from aolog.record import Headers


class Received(NamedTuple):
    """One record of a topic. timestamp: milliseconds since the epoch, UTC, as the record has it: any 64-bit
    integer; None if it has none. headers: those that can be decoded; headers_left_out: the number of others, whose
    names are not UTF-8."""

    topic: str
    partition: int
    offset: int
    timestamp: int | None
    key: bytes | None
    value: bytes | None
    headers: Headers
    headers_left_out: int = 0


def received(message: Any) -> Received:
    """Of confluent-kafka's message."""
    headers, left_out = headers_of(message)
    return Received(
        message.topic(),
        message.partition(),
        message.offset(),
        time_ms_of(message),
        message.key(),
        message.value(),
        tuple(headers),
        left_out,
    )
