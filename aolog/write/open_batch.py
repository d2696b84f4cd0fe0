"""The open batch: records gathered in memory until they become one frame. Pure.

Its address is fixed when the first record is taken, so a record's address is known at once: the
batch's address plus the number of records before it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aolog.format.columns import encode_columns
from aolog.write.record_columns import NOTHING_ELSE, RecordColumns, encode_records

if TYPE_CHECKING:
    from aolog.write.record_columns import Others
    from aolog.write.validate import CheckedRecord


class OpenBatch:
    """Records not yet in a frame. Not thread-safe: the caller holds the writer's lock.

    address: of the first record. timestamp_us: of records without a timestamp. size: bytes gathered,
    offsets included. plain: the records have nothing but values, so a value may join the list.
    """

    __slots__ = ("_others", "address", "plain", "size", "timestamp_us", "values")

    def __init__(self, address: int, timestamp_us: int) -> None:
        self.address = address
        self.timestamp_us = timestamp_us
        self.size = 0
        self.plain = True
        self.values: list[bytes | None] = []
        self._others: list[Others] = []  # one a value, unless the batch is plain

    def add(self, record: CheckedRecord) -> int:
        """Takes a record; its address."""
        before, others = len(self.values), record[1:5]
        self.size += record[5]
        self.values.append(record[0])
        if self.plain and others != NOTHING_ELSE:
            self.plain, self._others = False, [NOTHING_ELSE] * before
        if not self.plain:
            self._others.append(others)
        return self.address + before

    def encode(self) -> RecordColumns:
        """The body."""
        if not self.plain:
            return encode_records(self.values, self._others, self.timestamp_us)
        bits, parts = encode_columns(self.values)
        stamp = self.timestamp_us
        return RecordColumns(len(self.values), bits, parts, stamp, stamp)
