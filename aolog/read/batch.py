"""`RecordFrame`: an intact frame, decoded into columns. `Batch`: the records of one or more of them.

Records and Arrow are made on demand. A batch keeps the bytes that were read and nothing else. Small frames, and
frames that have nothing but values, are kept together, so that they become Arrow in one step; others do so without
a copy."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

from aolog.errors import counted, load_optional
from aolog.format.columns import Columns, lone, records_of
from aolog.format.native.speed import Rows, binary, numbers, rising
from aolog.format.slab import NO_TIMESTAMP
from aolog.record import Position, Record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    import pyarrow as pa

    from aolog.format.slab import SlabHeader
    from aolog.format.stretch import Stretch


class RecordFrame(NamedTuple):
    """An intact frame of records, or a stretch of several (format/stretch.py)."""

    address: int  # of its first record
    end: int  # address of the next frame
    size: int  # bytes in memory: as in its slab, or more if it is compressed there
    skip: int  # the number of its records before the reader's position; 0 in a stretch
    timestamp_us: int | None  # of records without a timestamp of their own; None if not stored
    ordinal: int | None  # records of the log before the frame; None if not counted
    columns: Columns
    epoch: int = 0  # of its slab; 0 without a header
    addresses: memoryview | None = None  # of the records, an i64 each; None: they rise by one

    @classmethod
    def of(cls, stretch: Stretch, base: int, header: SlabHeader | None) -> RecordFrame:
        """A stretch of the slab with this base and header, if it has one."""
        begin, end, _, _, before, timestamp_us, addresses, columns = stretch
        at = base + begin, base + end, end - begin, 0
        if header is None:
            return _make_frame((*at, None, None, columns, 0, addresses))
        ordinal = header.base_ordinal + before
        return _make_frame((*at, timestamp_us, ordinal, columns, header.epoch, addresses))

    def position_of(self, i: int) -> Position:
        """Of its i-th record; after the last one, of the next frame."""
        ordinal = None if self.ordinal is None else self.ordinal + i
        if i >= self.columns.records:
            return Position(self.end, ordinal)
        address = self.address + i if self.addresses is None else self.addresses.cast("q")[i]
        return Position(address, ordinal)

    @property
    def end_ordinal(self) -> int | None:
        """Records of the log before the next frame; None if not counted."""
        return None if self.ordinal is None else self.ordinal + self.columns.records

    def index_of(self, address: int) -> int:
        """The number of its records before an address."""
        if self.addresses is None:
            return min(max(address - self.address, 0), self.columns.records)
        return bisect_left(self.addresses.cast("q"), address)

    def cut_by_size(self, max_bytes: int) -> tuple[RecordFrame, RecordFrame | None]:
        """Its first frames: at least one, and more up to so many bytes in their slab; the rest, None for none."""
        if self.addresses is None or self.size <= max_bytes:
            return self, None
        end = bisect_right(self.addresses.cast("q"), self.address + max(0, max_bytes)) - 1
        begin = self._frame_with(end, bisect_left)  # it may be inside a frame
        part, rest = self._split(self._frame_from(max(begin, 1)))
        return part or self, rest

    def cut(self, address: int) -> tuple[RecordFrame | None, RecordFrame | None]:
        """The parts in frames that begin before an address, and at it or after it; None for none."""
        return self._split(self._frame_from(self.index_of(address)))

    def _frame_from(self, i: int) -> int:
        """The index of the first record, from i on, with which a frame begins. There is room between frames:
        their records have fewer addresses than bytes."""
        records = self.columns.records
        if self.addresses is None:
            return records if i else 0
        return self._frame_with(i - 1, bisect_right) if 0 < i < records else i

    def _frame_with(self, i: int, bisect: Callable[..., int]) -> int:
        """The index with which the frame with its i-th record begins (bisect_left), or ends (bisect_right)."""
        assert self.addresses is not None
        listed = self.addresses.cast("q")
        # Addresses rise by one in a frame, and by more from one to the next.
        return bisect(range(self.columns.records), listed[i] - i, key=lambda k: listed[k] - k)

    def _split(self, i: int) -> tuple[RecordFrame | None, RecordFrame | None]:
        """The records before i, and the rest; None for none. A frame begins with record i."""
        records = self.columns.records
        if i in {0, records}:
            return (None, self) if i == 0 else (self, None)
        return self._part(0, i), self._part(i, records)

    def after(self, i: int) -> RecordFrame | None:
        """The records from i on; None for none."""
        if self.addresses is None and 0 < i < self.columns.records:
            return self._replace(skip=i)
        return self._split(i)[1]

    def _part(self, first: int, end: int) -> RecordFrame:
        assert self.addresses is not None
        begin, end_address = self.position_of(first).address, self.position_of(end).address
        return self._replace(
            address=begin,
            end=end_address,
            size=end_address - begin,
            ordinal=None if self.ordinal is None else self.ordinal + first,
            columns=self.columns.part(first, end),
            addresses=self.addresses[8 * first : 8 * end],
        )

    def records(self) -> Rows:
        """An iterator over its records from `skip` on. Each record is made when it is read."""
        stamp = None if self.timestamp_us == NO_TIMESTAMP else self.timestamp_us
        addresses = rising(self.address) if self.addresses is None else numbers(self.addresses)
        return records_of(self.columns, addresses, stamp, self.skip)

    def values(self) -> Rows:
        """As `records`, but only the values."""
        values = self.columns.values or lone(self.columns.value)
        return Rows(None, (binary(values),), self.skip, self.columns.records)


_make_frame = partial(tuple.__new__, RecordFrame)  # a third of the class's own call


class FrameRecords(NamedTuple):
    """A frame that is read record by record, and the position in it."""

    frame: RecordFrame
    rows: Callable[[RecordFrame], Rows]  # makes the records, or the values
    records: Rows  # which it made

    @property
    def is_read(self) -> bool:
        """Whether each of its records was returned."""
        return self.records.at >= self.frame.columns.records

    @property
    def position(self) -> Position:
        """Of the next record; after the last one, of the next frame."""
        return self.frame.position_of(self.records.at)

    def end(self) -> RecordFrame | None:
        """Ends the iteration over `records`. Returns the frame with its unread records, if any."""
        read = self.records.at
        self.records.stop()
        return self.frame.after(read)


class Batch:
    """Records in the order of the log. Views are valid as long as the batch exists.

    `len(batch)`, iteration over Records, `to_arrow`. frames: those that contain its records; small ones of
    the log are put together.
    """

    __slots__ = ("frames",)

    def __init__(self, frames: list[RecordFrame]) -> None:
        self.frames = frames

    def __len__(self) -> int:
        return sum(frame.columns.records - frame.skip for frame in self.frames)

    def __iter__(self) -> Iterator[Record]:
        return chain.from_iterable(frame.records() for frame in self.frames)

    @property
    def end(self) -> int:
        """The address after its last record."""
        return self.frames[-1].end

    def to_arrow(self, columns: Iterable[str] | None = None) -> pa.RecordBatch:
        """Columns `address` int64, `timestamp` timestamp[us, UTC], `key` binary, `value` binary,
        `headers` list<struct<key: string, value: binary>>, `topic` string; or the given columns
        in the given order. A single frame is not copied. Imports pyarrow. Raises UsageError for an
        unknown column, and for a column that exceeds Arrow's 2 GiB."""
        made: pa.RecordBatch = load_optional("aolog.read.arrow").to_arrow(self.frames, columns)
        return made

    def __repr__(self) -> str:
        return f"<aolog.Batch of {counted(len(self), 'record')}>"
