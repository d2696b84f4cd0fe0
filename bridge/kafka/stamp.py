"""The stamp: where a record came from, in a Kafka header named "aolog". Its 36 bytes are those
of aolog/format/origin.py. Pure.

It says which record of a log a message may be; whether it is that record, its content decides too
(bridge/deliver/at_least_once/deduplicate.py). It also keeps the timestamp's microseconds, which Kafka
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


def stamped(timestamp_us: int | None) -> int | None:
    """A record's timestamp from its stamp: the least value means that it has none."""
    return None if timestamp_us == NO_TIMESTAMP else timestamp_us


def unpack_stamp(value: bytes) -> Stamp:
    """From the header's value, which has STAMP.size bytes."""
    uuid, epoch, address, timestamp = STAMP.unpack(value)
    return Stamp(uuid, epoch, address, stamped(timestamp))


def decode_stamp(headers: object) -> Stamp | None:
    """The stamp among a message's headers, as the client returns them: the last one if there are
    several, None if there is none."""
    for name, value in reversed(headers if isinstance(headers, list) else []):
        if name == HEADER_NAME and isinstance(value, bytes) and len(value) == STAMP.size:
            return unpack_stamp(value)
    return None
