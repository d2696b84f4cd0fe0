"""Messages: the records of a batch as a producer takes them, column by column. Pure.

An object a record, with a call or two each, costs more than producing it. So whatever is done for every
record is done to columns. They are cut out of a frame's own columns if that is possible, with numpy for
the numbers; they are made of records if frames are small, or have headers or topics of their own.
message_rows.py passes them to the client.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterable
from itertools import chain, repeat
from operator import attrgetter
from typing import NamedTuple, cast

import numpy as np  # here: loading it takes 150 ms, and no record should wait for that

from aolog import Record
from aolog.format.columns import BinaryColumn, lone
from aolog.format.native.speed import Rows, binary
from aolog.format.origin import HEADER_NAME, encode_stamps, stamp_in
from aolog.format.slab import NO_TIMESTAMP
from aolog.read.batch import Batch, RecordFrame
from bridge.kafka.stamp import digest, encode_stamp

_U32 = struct.Struct("<I")
_I64 = struct.Struct("<q")
_NUMPY_PAYS = 16  # records a frame, on average


class Messages(NamedTuple):
    """Columns of one length, in the order of the log."""

    addresses: array[int]
    topics: list[str | None]
    keys: list[bytes | None]
    values: list[bytes | None] | list[BinaryColumn]  # objects, or columns of bytes in order
    sizes: array[int]  # of value and key, in bytes
    times_ms: array[int]  # Kafka's timestamps
    stamps: bytes  # one after the other
    headers: list[list[tuple[str, bytes | None]]] | None = None  # the stamp last; None: no others

    @property
    def records(self) -> int:
        """How many there are."""
        return len(self.addresses)

    def take(self, indices: Iterable[int]) -> Messages:
        """The records at these indices."""
        at = list(indices)
        addresses, topics, keys, _, sizes, times_ms, _, headers = self
        entries = self.entries(0, self.records)
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

    def stamp(self, i: int) -> bytes:
        """Of the record at i."""
        return stamp_in(self.stamps, i)

    def digests(self) -> list[int]:
        """What tells each message from all others, see stamp.digest."""
        stamps = map(self.stamp, range(self.records))
        return list(map(digest, stamps, self.keys, self.entries(0, self.records)))

    def entries(self, begin: int, end: int) -> list[bytes | None]:
        """The values in this range, as objects."""
        if not self.values or not isinstance(self.values[0], BinaryColumn):
            return cast("list[bytes | None]", self.values[begin:end])
        entries: list[bytes | None] = []
        first = 0  # of the column
        for column in self.values:
            until = first + column.entries
            if begin < until and first < end:
                rows = max(begin - first, 0), min(end, until) - first
                entries += Rows(None, (binary(column),), *rows)
            first = until
        return entries


def messages_of(batch: Batch, source: bytes) -> Messages:
    """A whole batch. source: the UUID in the stamps."""
    frames = batch.frames
    as_read = type(batch) is Batch  # otherwise its records are not those of its frames
    if as_read and len(batch) >= _NUMPY_PAYS * len(frames) and all(map(_is_plain, frames)):
        return _of_frames(frames, source)
    return _of_records(batch, source, frames[0].epoch)


def milliseconds(timestamp_us: int | None) -> int:
    """Kafka's timestamp: rounded down. 0 makes the client use the present, for a record without one. Kafka cannot
    store a time before 1970, so that becomes its first millisecond, and only the stamp is exact."""
    if timestamp_us is None:
        return 0
    return max(1, timestamp_us // 1000)


def _is_plain(frame: RecordFrame) -> bool:
    """Whether the frame has times and only columns that are read here, and can be cut at its first record."""
    _, _, values, _, keys, _, topics, headers = frame.columns
    return (
        headers is None
        and topics is None
        and frame.timestamp_us is not None
        and (frame.skip == 0 or not any(c and c.validity for c in (values, keys)))
    )


def _of_frames(frames: list[RecordFrame], source: bytes) -> Messages:
    """Computes the numbers of all frames at once: each call of numpy costs as much as hundreds of records."""
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
        values.append(_from(columns.values or lone(columns.value), skip))
        keys.append(_nulls(count) if columns.keys is None else _from(columns.keys, skip))
        topics += [columns.topic] * count
        if columns.timestamps is not None:
            times.append(columns.timestamps[_I64.size * skip :])
        else:
            times.append(_I64.pack(frame.timestamp_us) * count)
    ends = np.cumsum(counts)
    records = int(ends[-1])
    addresses = np.repeat(firsts - ends + counts, counts) + np.arange(records)
    for frame, end, count in zip(frames, ends.tolist(), counts, strict=True):
        if frame.addresses is not None:
            addresses[end - count : end] = np.frombuffer(frame.addresses, np.int64)
    times_us = np.frombuffer(b"".join(times), np.int64)
    return Messages(
        array("q", addresses.tobytes()),
        topics,
        list(chain.from_iterable(map(BinaryColumn.to_list, keys))),
        values,
        array("q", _sizes(values, keys, ends).tobytes()),
        array(
            "q", np.where(times_us == NO_TIMESTAMP, 0, np.maximum(1, times_us // 1000)).tobytes()
        ),
        encode_stamps(source, frames[0].epoch, addresses, times_us),
    )


def _from(column: BinaryColumn, skip: int) -> BinaryColumn:
    """The column's entries from there on. It must have no nulls."""
    if skip == 0:
        return column
    return column._replace(offsets=column.offsets[_U32.size * skip :])


def _nulls(count: int) -> BinaryColumn:
    """A column of nulls."""
    zeros = memoryview(bytes(_U32.size * (count + 1)))
    return BinaryColumn(zeros[: (count + 7) // 8], zeros, zeros[:0])


def _sizes(values: list[BinaryColumn], keys: list[BinaryColumn], ends: np.ndarray) -> np.ndarray:
    """Of value and key, i64. ends: the number of entries up to the end of each piece."""
    of_values, of_keys = (
        np.frombuffer(b"".join([piece.offsets for piece in column]), np.uint32)
        for column in (values, keys)
    )
    both = of_values + of_keys  # a frame has less than 4 GiB
    sizes = both[1:] - both[:-1]
    inside = np.ones(len(sizes), bool)
    inside[(ends + np.arange(len(ends)))[:-1]] = False  # from a piece's end to the next one's start
    return sizes[inside].astype(np.int64)


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
