"""Every way to read a log from its beginning, and what each costs in bytes of its files."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, NamedTuple

import aolog
from aolog.read.reader import view_of
from aolog.record import Gap, Record
from aolog.storage.file import File
from aolog.storage.storage import Storage

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa

    from aolog.storage.directory import Inside

__all__ = ["WAYS", "CountingStorage", "Seen", "read_split"]


class Seen(NamedTuple):
    """What a way of reading returned."""

    records: list[Record]
    gaps: list[Gap]


class _CountingFile(File):
    def __init__(self, storage: CountingStorage, path: str, fd: int) -> None:
        super().__init__(path, fd)
        self._storage = storage

    def pread(self, size: int, offset: int) -> bytes:
        data = super().pread(size, offset)
        self._storage.bytes_read += len(data)
        return data


class CountingStorage(Storage):
    """The real file system. bytes_read: of files opened for reading."""

    def __init__(self) -> None:
        self.bytes_read = 0

    def open_read(self, path: Inside) -> File:
        """As Storage.open_read; what is read is counted."""
        plain = super().open_read(path)
        fd, plain.fd = plain.fd, -1
        return _CountingFile(self, path, fd)


def one_by_one(reader: aolog.Reader) -> list[Record]:
    """`read` after `read`."""
    records = []
    while (record := reader.read()) is not None:
        records.append(record)
    return records


def by_iteration(reader: aolog.Reader) -> list[Record]:
    """`for record in reader`."""
    return list(reader)


def by_batch(reader: aolog.Reader) -> list[Record]:
    """`read_batch` with its own bound."""
    records: list[Record] = []
    while (batch := reader.read_batch()) is not None:
        assert len(batch) > 0
        records += batch
    return records


def by_small_batch(reader: aolog.Reader) -> list[Record]:
    """A frame a batch."""
    records: list[Record] = []
    while (batch := reader.read_batch(max_bytes=1)) is not None:
        records += batch
    return records


def by_arrow(reader: aolog.Reader) -> list[Record]:
    """`to_arrow`, and back."""
    records: list[Record] = []
    while (batch := reader.read_batch()) is not None:
        records += from_arrow(batch.to_arrow())
    return records


def from_arrow(table: pa.RecordBatch) -> list[Record]:
    """Arrow's rows as records."""
    stamps = table.column("timestamp").cast("int64").to_pylist()
    others = [table.column(name).to_pylist() for name in ("address", "key", "value", "topic")]
    return [
        Record(address, stamp, key, value, tuple((h["key"], h["value"]) for h in headers), topic)
        for address, key, value, topic, headers, stamp in zip(
            *others, table.column("headers").to_pylist(), stamps, strict=True
        )
    ]


def by_follow(reader: aolog.Reader) -> list[Record]:
    """`follow`, until it finds no further record."""
    return list(reader.follow(timeout=0.0))


def by_values(reader: aolog.Reader) -> list[Record]:
    """`values`: each value, and the position after it, are those of a second reader's record."""
    records: list[Record] = []
    storage = view_of(reader).log.storage  # a second reader of the same disk
    with aolog.Reader(reader.path, reader.tell(), storage=storage) as beside:
        for value in reader.values():
            record = beside.read()
            assert record is not None
            assert record.value == value
            assert reader.tell() == beside.tell()
            records.append(record)
    return records


def by_mixture(reader: aolog.Reader) -> list[Record]:
    """`read` and `read_batch` in turn, on one reader."""
    records: list[Record] = []
    turn = 0
    while True:
        turn += 1
        if turn % 3 == 0:
            batch = reader.read_batch(max_bytes=200)
            got = [] if batch is None else list(batch)
        else:
            record = reader.read()
            got = [] if record is None else [record]
        if not got:
            return records
        records += got


WAYS: dict[str, Callable[[aolog.Reader], list[Record]]] = {
    "one by one": one_by_one,
    "iteration": by_iteration,
    "batches": by_batch,
    "a frame a batch": by_small_batch,
    "follow": by_follow,
    "values": by_values,
    "mixture": by_mixture,
}
if find_spec("pyarrow") is not None:
    WAYS["arrow"] = by_arrow


def read_split(path: str, points: list[int]) -> list[tuple[int, Seen]]:
    """The log in ranges, as work is cut for many workers: each from one point to the next, the last to the
    end. Each with the point at which it begins."""
    ranges = []
    for begin, end in zip(points, [*points[1:], None], strict=True):
        with aolog.Reader(path, begin) as reader:
            records: list[Record] = []
            for record in reader:
                if end is not None and record.address >= end:
                    break
                records.append(record)
            ranges.append((begin, Seen(records, reader.gaps)))
    return ranges
