"""A record as a consumer returns it."""

from __future__ import annotations

from typing import Any, NamedTuple

from aolog.record import Headers
from bridge.kafka.consumed import LeftOut, Omissions, headers_of, time_ms_of


class Received(NamedTuple):
    """One record of a topic."""

    topic: str
    partition: int
    offset: int
    timestamp: int | None  # ms since the epoch, UTC, as the record has it: any 64-bit integer
    key: bytes | None
    value: bytes | None
    headers: Headers
    headers_left_out: int = 0  # whose names are not UTF-8


def received(message: Any, omissions: Omissions | None = None) -> Received:
    """Of confluent-kafka's message. omissions: notes the headers that are left out."""
    headers, left_out = headers_of(message)
    place = message.topic(), message.partition(), message.offset()
    if left_out and omissions is not None:
        omissions.note(*place, LeftOut(left_out))
    return Received(
        *place, time_ms_of(message), message.key(), message.value(), tuple(headers), left_out
    )
