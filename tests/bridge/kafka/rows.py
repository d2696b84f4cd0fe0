"""Rows as the producer takes them."""

from __future__ import annotations

from array import array
from itertools import accumulate
from typing import Any

from aolog.format.columns import BinaryColumn
from bridge.kafka.lane import LaneKey
from bridge.kafka.messages import MessageRows, Messages
from bridge.kafka.stamp import encode_stamp
from tests.bridge.brokers import TOPIC

MS = 1_700_000_000_123
VALUES = [b"a", None, b"", b"\0" * 10, b"x" * 5_000, "ä".encode(), bytes(range(256)), b"last"]
KEYS = [b"k", b"", None, b"\0", b"x" * 300, None, b"key", b"k"]
LANES: list[LaneKey] = [(TOPIC, i % 3) for i in range(8)]
STAMPS = [encode_stamp(bytes(16), 0, i, None) for i in range(8)]


def rows_of(
    values: Any = VALUES,
    keys: list[Any] = KEYS,
    lanes: list[LaneKey] = LANES,
    headers: Any = None,
    callbacks: Any = None,
    first: int = 0,
) -> MessageRows:
    numbers, times = array("q", range(8)), array("q", range(MS, MS + 8))
    stamps, firsts = b"".join(STAMPS), list[int]()
    if isinstance(values[0], BinaryColumn):
        *firsts, _ = accumulate((column.entries for column in values), initial=0)
    found = Messages(numbers, [None] * 8, keys, values, numbers, times, stamps, headers, firsts)
    return MessageRows(found, lanes, first, 8, callbacks)
