"""The slab of format 1 that grows: each value is a frame, gathered in memory and then written to the file.

There is no header, no seal and no mark, and the format does not count records. `Payloads` makes the
frames: compiled if the build found the system's xxhash.h (format/native/_payloads.h); the Python twin is
the reference. The writer owns locks, policies and syncs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aolog.format.native.speed import compiled
from aolog.format.slab import NO_TIMESTAMP
from aolog.queuefka.format1 import PAYLOAD_LEN_MAX, encode_record

if TYPE_CHECKING:
    from collections.abc import Callable

    from aolog.format.frame import Buffer
    from aolog.storage.directory import Directory, Inside
    from aolog.storage.file import File
    from aolog.storage.storage import Storage


class PythonPayloads:
    """The frames of a slab that grows, from `written` on in memory. The fields are those of
    native/inlet.py's PythonFrames, as far as the format has them. Not thread-safe."""

    def __init__(self, base: int, offset: int, full_at: int) -> None:
        self.base, self.offset, self.written, self.full_at = base, offset, offset, full_at
        self.durable = -1
        self.records = 0  # added here: the format does not count those that it had before
        self.flushed_records = self.synced_records = 0  # of `records`
        self.pending: list[Buffer] = []

    @staticmethod
    def are_storable(values: list[Any], most: int) -> bool:
        """Whether each is bytes, not empty, and has at most `most` bytes."""
        most = min(most, PAYLOAD_LEN_MAX)
        return all(type(value) is bytes and 0 < len(value) <= most for value in values)

    def add_values(self, values: list[bytes], begin: int) -> bytearray:
        """Adds a frame for each value from the index `begin` on, up to where the slab is full, at least one.
        Returns their addresses, a u64 each. The values can be stored."""
        addresses = bytearray()
        for at in range(begin, len(values)):
            addresses += (self.base + self.offset).to_bytes(8, "little")
            frame = encode_record(values[at])
            self.pending += frame
            self.offset += sum(map(len, frame))
            self.records += 1
            if self.offset >= self.full_at:
                break
        return addresses


Payloads = PythonPayloads
if not TYPE_CHECKING:
    Payloads = getattr(compiled, "Payloads", PythonPayloads)


class QueuefkaSlab(Payloads):
    """A slab of format 1: one record a frame."""

    data_begin = 0
    rolls_at_once = True  # once it is full the next slab begins, as the Go program does
    greatest_us = NO_TIMESTAMP
    lacks_mark = False  # nor does it have marks
    zeros_end = 1 << 63  # none: a reader of the format would take zeros for records
    sync_errno = 0  # no sync is compiled

    def __init__(self, file: File, base: int, offset: int, slab_bytes: int) -> None:
        # The Go program begins the next slab once this one is larger.
        super().__init__(base, offset, slab_bytes + 1)
        self.file = file

    def add_records(self, records: int, columns: int, parts: list[Buffer], *_: int) -> int:
        """Adds a frame of one value, which is all that the format can hold. Returns its address."""
        assert (records, columns, len(parts)) == (1, 0, 1)
        return int.from_bytes(self.add_values([bytes(parts[0])], 0), "little")

    def write_pending(self) -> None:
        """Everything is in the page cache on return. After StorageError: call again."""
        if pending := self.pending:
            self.file.pwrite_all(pending, self.written)
            self.written = self.offset
            self.flushed_records = self.records
            pending.clear()

    def attach(self, *_: object) -> None:
        """Nothing: Python writes the file."""

    def fill_ahead(self) -> None:
        """Nothing: see zeros_end."""

    def seal(self, now_us: int) -> None:
        """Nothing but a write: the format has no seal."""
        del now_us
        self.write_pending()


def begin_slab(
    directory: Directory,
    storage: Storage,
    name: Inside,
    base: int,
    offset: int | None,
    slab_bytes: int,
) -> QueuefkaSlab:
    """A new slab at `base`, its name durable on return. offset: continues the existing slab at this offset
    instead."""
    file = storage.create(name) if offset is None else storage.open_write(name)
    try:
        storage.sync_directory(directory)  # its creator may have been killed before this
    except BaseException:
        file.close()
        raise
    return QueuefkaSlab(file, base, offset or 0, slab_bytes)


def put_values(values: list[bytes], make_room: Callable[[], QueuefkaSlab]) -> list[bytearray]:
    """Adds a frame for each value. Returns the addresses of each slab's. make_room: returns the slab that
    grows, with room for a frame."""
    addresses: list[bytearray] = []
    begin = 0
    while begin < len(values):
        added = make_room().add_values(values, begin)
        addresses.append(added)
        begin += len(added) // 8
    return addresses
