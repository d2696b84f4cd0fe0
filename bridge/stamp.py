"""The stamp: where a record came from, in a Kafka header. Pure.

    header name "aolog", value of 36 bytes, little-endian:
    0   16s  topic UUID of the log          20  u64  address
    16  u32  epoch                          28  i64  timestamp, microseconds; -2^63: none

An address is never used twice in a log, so a stamp names one record for ever: what arrived
before a crash is recognised and not sent again, and Kafka's milliseconds lose nothing.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import numpy as np

__all__ = ["HEADER_NAME", "Stamp", "decode_stamp", "encode_stamp", "encode_stamps", "stamped"]

HEADER_NAME = "aolog"
_STAMP = struct.Struct("<16sIQq")
_NO_TIMESTAMP = -(1 << 63)


class Stamp(NamedTuple):
    """What a stamp says. timestamp_us: None where the log has none (format 1)."""

    topic_uuid: bytes
    epoch: int
    address: int
    timestamp_us: int | None


def encode_stamp(topic_uuid: bytes, epoch: int, address: int, timestamp_us: int | None) -> bytes:
    """The header's value."""
    stamp = _NO_TIMESTAMP if timestamp_us is None else timestamp_us
    return _STAMP.pack(topic_uuid, epoch, address, stamp)


def encode_stamps(
    topic_uuid: bytes, epoch: int, addresses: np.ndarray, timestamps_us: np.ndarray
) -> list[bytes]:
    """As `encode_stamp`, of many records at once, each with a timestamp."""
    import numpy as np

    stamps = np.empty(
        len(addresses), [("uuid", "V16"), ("epoch", "<u4"), ("address", "<u8"), ("us", "<i8")]
    )
    stamps["uuid"] = np.frombuffer(topic_uuid, "V16")
    stamps["epoch"] = epoch
    stamps["address"] = addresses
    stamps["us"] = timestamps_us
    made: list[bytes] = stamps.view(f"V{_STAMP.size}").tolist()
    return made


def stamped(timestamp_us: int | None) -> int | None:
    """What a stamp says of a record's timestamp: the least that there is stands for none."""
    return None if timestamp_us == _NO_TIMESTAMP else timestamp_us


def decode_stamp(headers: object) -> Stamp | None:
    """The stamp among a message's headers as the client hands them out, the last if there are
    several; None if none is ours."""
    for name, value in reversed(headers if isinstance(headers, list) else []):
        if name == HEADER_NAME and isinstance(value, bytes) and len(value) == _STAMP.size:
            uuid, epoch, address, timestamp = _STAMP.unpack(value)
            return Stamp(uuid, epoch, address, stamped(timestamp))
    return None
