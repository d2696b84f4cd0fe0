"""Messages: the records of a batch as a producer takes them, column by column. Pure.

An object a record, and a call or two for each, cost more than to produce it. So what is done for
every record is done to columns: they are cut out of a frame's own where that can be, with numpy
for the numbers, and made of records where frames are small or have headers or topics of their own.
The arguments of the client's call are made of the columns one call at a time (`part`).
"""

from __future__ import annotations

import struct
from array import array
from itertools import repeat
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np  # here: to load it takes 150 ms, for which no record is to wait

from aolog.format.columns import BinaryColumn, lone
from aolog.format.native.speed import Rows
from bridge.kafka.origin import HEADER_NAME, STAMP, encode_stamp, encode_stamps, stamp_in

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from aolog import Record
    from aolog.read.batch import Batch, RecordFrame
    from bridge.kafka.lane import LaneKey

__all__ = ["Callback", "Messages", "messages_of", "milliseconds"]

Callback: TypeAlias = "Callable[..., None] | None"
"""What the client is to call when the record has arrived, or has not."""

_U32 = struct.Struct("<I")
_I64 = struct.Struct("<q")
_NUMPY_PAYS = 16  # records a frame, on average


class Messages(NamedTuple):
    """Columns of one length, in the order of the log. values: for the client alone: as they are,
    or columns of bytes, one behind the other. sizes: of value and key, in bytes. times_ms: Kafka's
    timestamps. stamps: one behind the other. headers: None where nothing but the stamp is one; else
    as the client takes them, the stamp last."""

    addresses: array[int]
    topics: list[str | None]
    keys: list[bytes | None]
    values: list[bytes | None] | list[BinaryColumn]
    sizes: array[int]
    times_ms: array[int]
    stamps: bytes
    headers: list[list[tuple[str, bytes | None]]] | None = None

    @property
    def records(self) -> int:
        """How many there are."""
        return len(self.addresses)

    @property
    def _kind_of_values(self) -> str:
        """As the client gets them: see speed.PythonRows."""
        return "v" if self.values and isinstance(self.values[0], BinaryColumn) else "o"

    def take(self, indices: Iterable[int]) -> Messages:
        """Some of them."""
        at = list(indices)
        addresses, topics, keys, values, sizes, times_ms, _, headers = self
        entries: list[bytes | None] = []
        for value in values:  # each column by itself: its views keep it, and no other, alive
            if isinstance(value, BinaryColumn):
                entries += Rows(None, "v", (value,), 0, value.entries)
            else:
                entries.append(value)
        return Messages(
            array("q", [addresses[i] for i in at]),
            [topics[i] for i in at],
            [keys[i] for i in at],
            [entries[i] for i in at],
            array("q", [sizes[i] for i in at]),
            array("q", [times_ms[i] for i in at]),
            b"".join(map(self.stamp, at)),
            None if headers is None else [headers[i] for i in at],
        )

    def first(self, count: int) -> Messages:
        """So many."""
        return self.take(range(min(count, self.records)))

    def stamp(self, i: int) -> bytes:
        """Of the record at i."""
        return stamp_in(self.stamps, i)

    def part(
        self,
        lanes: list[LaneKey],
        begin: int,
        end: int,
        callbacks: list[Callback] | Callback = None,
    ) -> Rows:
        """What the client's `produce` takes for each in [begin, end), and `_produce.c`: topic,
        value, key, partition, callback, None, milliseconds, headers. lanes, callbacks: of all, or
        one callback for each. Made as they go: thousands that are kept cost the collector dearly."""
        stamped = (HEADER_NAME, STAMP.size, self.stamps)
        kinds = f"1{self._kind_of_values}o2{'co'[isinstance(callbacks, list)]}cq"
        kinds += "oh"[self.headers is None]
        return Rows(
            tuple,
            kinds,
            (
                lanes,
                self.values,
                self.keys,
                lanes,
                callbacks,
                None,
                memoryview(self.times_ms).cast("B"),
                stamped if self.headers is None else self.headers,
            ),
            begin,
            end,
        )


def messages_of(
    batch: Batch, source: bytes, view: Callable[[Record], Record] | None = None
) -> Messages:
    """All of a batch. source: the UUID in the stamps. view: what becomes of each record."""
    frames = batch.frames
    if view is None and len(batch) >= _NUMPY_PAYS * len(frames) and all(map(_is_plain, frames)):
        return _of_frames(frames, source)
    return _of_records(batch if view is None else map(view, batch), source, frames[0].epoch)


def milliseconds(timestamp_us: int | None) -> int:
    """Kafka's timestamp: rounded down. 0 makes the client take the present, which is right for a
    record without one; what lies before 1970 Kafka cannot say, so it becomes its first
    millisecond and only the stamp has the truth."""
    if timestamp_us is None:
        return 0
    return max(1, timestamp_us // 1000)


def _is_plain(frame: RecordFrame) -> bool:
    """Whether it has no other columns than those that are read here, and can be cut where it
    begins. Not of format 1, which has no times."""
    _, _, values, _, keys, _, topics, headers = frame.columns
    return (
        headers is None
        and topics is None
        and frame.timestamp_us is not None
        and (frame.skip == 0 or not any(c and c.validity for c in (values, keys)))
    )


def _of_frames(frames: list[RecordFrame], source: bytes) -> Messages:
    """Numbers of all frames at once: numpy's calls cost as much as some hundred records."""
    values: list[BinaryColumn] = []
    keys: list[BinaryColumn] = []
    topics: list[str | None] = []
    firsts, counts = [], []
    times: list[bytes | memoryview] = []
    for frame in frames:
        columns, skip = frame.columns, frame.skip
        count = columns.records - skip
        firsts.append(frame.address + skip)
        counts.append(count)
        values.append(_behind(columns.values or lone(columns.value), skip))
        keys.append(_nothing(count) if columns.keys is None else _behind(columns.keys, skip))
        topics += [columns.topic] * count
        if columns.timestamps is not None:
            times.append(columns.timestamps[_I64.size * skip :])
        else:
            times.append(_I64.pack(frame.timestamp_us) * count)
    behind = np.cumsum(counts)
    records = int(behind[-1])
    addresses = np.repeat(firsts - behind + counts, counts) + np.arange(records)
    times_us = np.frombuffer(b"".join(times), np.int64)
    return Messages(
        array("q", addresses.tobytes()),
        topics,
        list(Rows(None, "b", (keys,), 0, records)),
        values,
        array("q", _sizes(values, keys, behind).tobytes()),
        array("q", np.maximum(1, times_us // 1000).tobytes()),
        encode_stamps(source, frames[0].epoch, addresses, times_us),
    )


def _behind(column: BinaryColumn, skip: int) -> BinaryColumn:
    """Its entries from there on. Not of one that has nulls."""
    if skip == 0:
        return column
    return column._replace(offsets=column.offsets[_U32.size * skip :])


def _nothing(count: int) -> BinaryColumn:
    """So many nulls."""
    zeros = memoryview(bytes(_U32.size * (count + 1)))
    return BinaryColumn(zeros[: (count + 7) // 8], zeros, zeros[:0])


def _sizes(values: list[BinaryColumn], keys: list[BinaryColumn], behind: np.ndarray) -> np.ndarray:
    """Of value and key, i64. behind: entries up to the end of each piece."""
    of_values, of_keys = (
        np.frombuffer(b"".join([piece.offsets for piece in column]), np.uint32)
        for column in (values, keys)
    )
    both = of_values + of_keys  # a frame has less than 4 GiB
    sizes = both[1:] - both[:-1]
    there = np.ones(len(sizes), bool)
    there[(behind + np.arange(len(behind)))[:-1]] = False  # from a piece's end to the next begin
    return sizes[there].astype(np.int64)


def _of_records(records: Iterable[Record], source: bytes, epoch: int) -> Messages:
    records = list(records)
    addresses, times_us, topics, keys, values, headers = (
        list(map(attrgetter(name), records))
        for name in ("address", "timestamp", "topic", "key", "value", "headers")
    )
    sizes = [len(k or b"") + len(v or b"") for k, v in zip(keys, values, strict=True)]
    stamps = list(map(encode_stamp, repeat(source), repeat(epoch), addresses, times_us))
    times_ms = array("q", map(milliseconds, times_us))
    all_headers = None
    if any(headers):
        all_headers = [[*own, (HEADER_NAME, s)] for own, s in zip(headers, stamps, strict=True)]
    return Messages(
        array("q", addresses),
        topics,
        keys,
        values,
        array("q", sizes),
        times_ms,
        b"".join(stamps),
        all_headers,
    )
