"""Batch: the records of one or more intact frames, as views. Records and Arrow on demand.

A batch keeps the bytes that were read and nothing else: one 64-KiB frame becomes Arrow without
a copy; small frames are held together so that they become Arrow in one step.
"""

from __future__ import annotations

from collections import deque
from functools import cache
from itertools import chain
from operator import length_hint
from typing import TYPE_CHECKING, NamedTuple

from aolog import speed
from aolog.errors import UsageError
from aolog.record import Record

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from types import ModuleType

    import numpy as np
    import pyarrow as pa

    from aolog.columns import Columns

__all__ = ["Batch", "FrameRecords", "RecordFrame", "load_arrow"]


class RecordFrame(NamedTuple):
    """An intact frame of records. address: of its record 0. skip: records before the reader's
    position. timestamp_us: of records that have none of their own, None in format 1. ordinal:
    records of the log before it, None in format 1. end: address of the next frame. size: bytes
    that it takes in memory: as in its slab, or more where it is compressed there."""

    address: int
    end: int
    size: int
    skip: int
    timestamp_us: int | None
    ordinal: int | None
    columns: Columns
    epoch: int = 0  # of its slab; 0 in format 1

    def records(self, addresses: Iterator[int] | None = None) -> Iterator[Record]:
        """Its records from `skip` on, made one by one as they are asked for. addresses: theirs,
        one of which is taken for each record."""
        columns, skip = self.columns, self.skip
        if addresses is None:
            addresses = iter(range(self.address + skip, self.address + columns.records))
        varies = 0b1001  # address and value
        timestamps: object = self.timestamp_us
        keys: object = None
        headers: object = ()
        topics: object = columns.topic
        if columns.values is None:
            values: Iterator[bytes | None] = iter([bytes(columns.value or b"")][skip:])
        else:
            values = iter(columns.values.to_list(skip))
        if columns.timestamps is not None:
            timestamps = iter(columns.timestamps.cast("q")[skip:].tolist())
            varies |= 0b10
        if columns.keys is not None:
            keys = iter(columns.keys.to_list(skip))
            varies |= 0b100
        if columns.headers is not None:
            headers = iter(columns.headers.to_list(skip))
            varies |= 0b1_0000
        if columns.topics is not None:
            names = columns.topics.to_list(skip)
            topics = iter([None if name is None else str(name, "utf-8") for name in names])
            varies |= 0b10_0000
        return speed.rows(Record, (addresses, timestamps, keys, values, headers, topics), varies)


class FrameRecords:
    """A frame that is read record by record. Its place is what is left of the addresses, so that
    a record costs no bookkeeping."""

    __slots__ = ("_addresses", "_count", "frame", "records")

    def __init__(self, frame: RecordFrame) -> None:
        self.frame = frame
        self._count = frame.columns.records
        self._addresses = iter(range(frame.address + frame.skip, frame.address + self._count))
        self.records = frame.records(self._addresses)

    @property
    def read(self) -> int:
        """Records of the frame before the next one."""
        return self._count - length_hint(self._addresses)

    @property
    def address(self) -> int:
        """Of the next record: behind the last, the next frame's."""
        read = self.read
        return self.frame.address + read if read < self._count else self.frame.end

    @property
    def ordinal(self) -> int | None:
        """Records of the log before the next one."""
        return None if self.frame.ordinal is None else self.frame.ordinal + self.read

    def end(self) -> RecordFrame | None:
        """What is left of it, if anything. Whoever iterates over `records` is at their end."""
        read = self.read
        deque(self._addresses, maxlen=0)
        return self.frame._replace(skip=read) if read < self._count else None


@cache
def load_arrow() -> ModuleType:
    """Imported once: `from ... import` in the method costs 2 us a batch."""
    try:
        from aolog import arrow
    except ModuleNotFoundError as error:
        raise UsageError(
            f"Arrow needs the package {error.name}", hint="pip install 'aolog[arrow]'"
        ) from None
    return arrow


class Batch:
    """Records in the order of the log. Views stay valid as long as the batch is kept.

    `len(batch)`, iteration over Records, `addresses`, `to_arrow`.
    """

    __slots__ = ("_frames",)

    def __init__(self, frames: list[RecordFrame]) -> None:
        self._frames = frames

    def __len__(self) -> int:
        return sum(frame.columns.records - frame.skip for frame in self._frames)

    def __iter__(self) -> Iterator[Record]:
        return chain.from_iterable(frame.records() for frame in self._frames)

    @property
    def frames(self) -> list[RecordFrame]:
        """What it is made of."""
        return self._frames

    @property
    def addresses(self) -> np.ndarray:
        """Of each record, uint64."""
        import numpy as np

        pieces = [
            np.arange(f.address + f.skip, f.address + f.columns.records, dtype=np.uint64)
            for f in self._frames
        ]
        return pieces[0] if len(pieces) == 1 else np.concatenate(pieces)

    @property
    def end(self) -> int:
        """Address of the record after the last."""
        return self._frames[-1].end

    def to_arrow(self, columns: Iterable[str] | None = None) -> pa.RecordBatch:
        """Columns `address` int64, `timestamp` timestamp[us, UTC], `key` binary, `value` binary,
        `headers` list<struct<key: string, value: binary>>, `topic` string, or those named, in
        the order named. Zero-copy from a single frame; pyarrow is imported here. Raises
        UsageError for an unknown column, and where a column is over Arrow's 2 GiB."""
        made: pa.RecordBatch = load_arrow().to_arrow(self, columns)
        return made

    def __repr__(self) -> str:
        return f"<aolog.Batch of {len(self)} records>"
