"""The open batch: records gathered in memory until they become one frame. Pure.

Its address is fixed when the first record is taken, so a record's address is known at once: the
batch's address plus the number of records before it.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, NamedTuple

from aolog.format.columns import encode_columns

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aolog.format.columns import HeaderLists
    from aolog.format.compression import Packer
    from aolog.format.frame import Buffer
    from aolog.record import Headers
    from aolog.write.validate import CheckedRecord

# What a record has beside its value: key, headers, timestamp, topic.
_Others = tuple[bytes | None, "Headers", int | None, str | None]
NOTHING_ELSE: _Others = (None, (), None, None)


class Body(NamedTuple):
    """A frame's body: the number of records, the columns' bits, the codec of the parts, 0 for none, the
    parts, the range of timestamps."""

    records: int
    columns: int
    codec: int
    parts: list[Buffer]
    greatest_us: int
    least_us: int

    def packed(self, pack: Packer) -> Body:
        """The same, compressed if that saves enough."""
        codec, parts = pack(self.records, self.parts)
        return self._replace(codec=codec, parts=parts)


def encode_records(
    values: Sequence[bytes | None],
    keys: Sequence[bytes | None] | None,
    headers: Sequence[Headers] | HeaderLists | None,
    moments: Sequence[int | None] | array[int] | None,
    topics: Sequence[str | None] | None,
    now_us: int,
) -> Body:
    """The body of checked records, at least one. A column exists only if a record uses it. now_us: the
    timestamp of a record that has none. HeaderLists: not empty."""
    stamps: Sequence[int] | None = None
    if isinstance(moments, array):
        stamps = moments
    elif moments is not None and not _are_none(moments):
        stamps = [now_us if moment is None else moment for moment in moments]
    bits, parts = encode_columns(
        values,
        timestamps=stamps,
        keys=None if keys is None or _are_none(keys) else keys,
        topics=None if topics is None or _are_none(topics) else topics,
        headers=None if headers is None or not any(headers) else headers,
    )
    if stamps is None:
        return Body(len(values), bits, 0, parts, now_us, now_us)
    return Body(len(values), bits, 0, parts, max(stamps), min(stamps))


def _are_none(entries: Sequence[object]) -> bool:
    return entries[0] is None and all(entry is None for entry in entries)


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
        self._others: list[_Others] = []  # one a value, unless the batch is plain

    def add(self, record: CheckedRecord) -> int:
        """Takes a record. Returns its address."""
        before, others = len(self.values), record[1:5]
        self.size += record[5]
        self.values.append(record[0])
        if self.plain and others != NOTHING_ELSE:
            self.plain, self._others = False, [NOTHING_ELSE] * before
        if not self.plain:
            self._others.append(others)
        return self.address + before

    def encode(self) -> Body:
        """The body."""
        if not self.plain:
            keys, headers, moments, topics = zip(*self._others, strict=True)
            return encode_records(self.values, keys, headers, moments, topics, self.timestamp_us)
        values, stamp = self.values, self.timestamp_us
        if len(values) == 1 and values[0] is not None:  # at each sync of one record
            return Body(1, 0, 0, [values[0]], stamp, stamp)
        bits, parts = encode_columns(values)
        return Body(len(values), bits, 0, parts, stamp, stamp)
