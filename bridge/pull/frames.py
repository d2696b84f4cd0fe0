"""Kafka's messages as records of a log, each with its origin."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bridge.pull.origin import HEADER_NAME

if TYPE_CHECKING:
    from aolog import Writer
    from bridge.pull.origin import Source

FRAME_RECORDS = 500  # at 100 bytes about 64 KiB: damage costs the frames that it touches


def append_frame(writer: Writer, topic: str, source: Source, messages: list[Any]) -> int:
    """All of them or none. The address of the first."""
    prefix = source.prefix
    stamps = [message.timestamp()[1] * 1_000 for message in messages]
    keys = [message.key() for message in messages]
    headers = [
        (*(message.headers() or ()), (HEADER_NAME, b"%b%d" % (prefix, message.offset())))
        for message in messages
    ]
    values = [message.value() for message in messages]
    addresses = writer.append_many(
        values, keys=keys, headers=headers, timestamps=stamps, topics=[topic] * len(values)
    )
    return int(addresses[0])
