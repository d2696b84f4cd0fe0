"""The stamp: where a record comes from. The bridge and Spark's Kafka sink put it into a header of each
Kafka record. Pure.

    value of 36 bytes, little-endian:
    0   16s  topic UUID of the log          20  u64  address
    16  u32  epoch                          28  i64  timestamp, microseconds; -2^63: none

An address is never used twice in a log, so a stamp always names the same record.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

HEADER_NAME = "aolog"
STAMP = struct.Struct("<16sIQq")


def encode_stamps(
    topic_uuid: bytes, epoch: int, addresses: np.ndarray, timestamps_us: np.ndarray
) -> bytes:
    """The stamps of many records of one epoch, concatenated."""
    import numpy as np

    stamps = np.empty(
        len(addresses), [("uuid", "V16"), ("epoch", "<u4"), ("address", "<u8"), ("us", "<i8")]
    )
    stamps["uuid"] = np.frombuffer(topic_uuid, "V16")
    stamps["epoch"] = epoch
    stamps["address"] = addresses
    stamps["us"] = timestamps_us
    return stamps.tobytes()


def stamp_in(stamps: bytes, i: int) -> bytes:
    """The i-th of concatenated stamps."""
    return stamps[STAMP.size * i : STAMP.size * (i + 1)]
