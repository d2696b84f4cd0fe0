"""The stamp: where a record came from, in a Kafka header named "aolog". Its 36 bytes are those
of aolog/format/origin.py. Pure.

It says which record of a log a message may be; whether it is that record, its content and its place
decide too (bridge/deliver/at_least_once/found.py). It also keeps the timestamp's microseconds, which Kafka
rounds to milliseconds.
"""

from __future__ import annotations

from typing import NamedTuple

from aolog.format.origin import HEADER_NAME, STAMP
from aolog.format.slab import NO_TIMESTAMP


class Stamp(NamedTuple):
    """timestamp_us: None if the record has none."""

    topic_uuid: bytes
    epoch: int
    address: int
    timestamp_us: int | None


def encode_stamp(topic_uuid: bytes, epoch: int, address: int, timestamp_us: int | None) -> bytes:
    """The header's value."""
    stamp = NO_TIMESTAMP if timestamp_us is None else timestamp_us
    return STAMP.pack(topic_uuid, epoch, address, stamp)


def digest(stamp: bytes, key: bytes | None, value: bytes | None) -> int:
    """What tells a message from all others: a hash of 64 bits, in this process."""
    return hash((stamp, key, value))


def unpack_stamp(value: bytes) -> Stamp:
    """From the header's value, which has STAMP.size bytes."""
    uuid, epoch, address, timestamp = STAMP.unpack(value)
    return Stamp(uuid, epoch, address, None if timestamp == NO_TIMESTAMP else timestamp)


def decode_stamp(headers: object) -> Stamp | None:
    """The last stamp among a message's headers, as the client returns them; None if there is none."""
    for name, value in reversed(headers if isinstance(headers, list) else []):
        if name == HEADER_NAME and isinstance(value, bytes) and len(value) == STAMP.size:
            return unpack_stamp(value)
    return None
