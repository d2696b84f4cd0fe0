"""The stamp: where a record came from, in a Kafka header named "aolog". Its 36 bytes are those of
aolog/format/origin.py. Pure.

An address is never used twice in a log, so a stamp names one record for ever: what arrived
before a crash is recognised and not sent again, and Kafka's milliseconds lose nothing.
"""

from __future__ import annotations

from typing import NamedTuple

from aolog.format.origin import HEADER_NAME, NO_TIMESTAMP, STAMP, encode_stamps, stamp_in

__all__ = [
    "HEADER_NAME",
    "STAMP",
    "Stamp",
    "decode_stamp",
    "encode_stamp",
    "encode_stamps",
    "stamp_in",
    "stamped",
]


class Stamp(NamedTuple):
    """What a stamp says. timestamp_us: None where the log has none (format 1)."""

    topic_uuid: bytes
    epoch: int
    address: int
    timestamp_us: int | None


def encode_stamp(topic_uuid: bytes, epoch: int, address: int, timestamp_us: int | None) -> bytes:
    """The header's value."""
    stamp = NO_TIMESTAMP if timestamp_us is None else timestamp_us
    return STAMP.pack(topic_uuid, epoch, address, stamp)


def stamped(timestamp_us: int | None) -> int | None:
    """What a stamp says of a record's timestamp: the least that there is stands for none."""
    return None if timestamp_us == NO_TIMESTAMP else timestamp_us


def decode_stamp(headers: object) -> Stamp | None:
    """The stamp among a message's headers as the client hands them out, the last if there are
    several; None if none is ours."""
    for name, value in reversed(headers if isinstance(headers, list) else []):
        if name == HEADER_NAME and isinstance(value, bytes) and len(value) == STAMP.size:
            uuid, epoch, address, timestamp = STAMP.unpack(value)
            return Stamp(uuid, epoch, address, stamped(timestamp))
    return None
