"""The open frame of a writer, and the frames of the slab that grows: compiled, and the Python twins.

`Inlet` is the base class of Writer. It holds the columns of the records taken so far. Its `append` takes one
more, its `flush` writes them and its `sync` waits for the device, without any Python if nothing else is due.
`Frames` is the base class of a slab of format 2: it turns columns into frames. `body_of` makes the body of many records at once.
`Door` appends for a program that keeps its records. `Lock` is the lock that `flush` and `sync` take.
They know no policies. The compiled ones do only what is plain; they leave the rest to Python: odd types, a bound that is reached, an error, another call under way.

Frames are compiled only if the build found the system's xxhash.h. The Python twins are the reference.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, NamedTuple, SupportsIndex

import xxhash

from aolog.format.columns import encode_columns
from aolog.format.frame import CODEC_SHIFT, FLAG_DURABLE, KIND_RECORDS, Buffer, encode_frame
from aolog.format.native.speed import compiled
from aolog.format.slab import NO_TIMESTAMP, ORDINALS_MAX, Index

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from aolog.format.compression import Packer
    from aolog.record import Headers

# A slab takes no further frame once its ordinals might not suffice for two of a gigabyte.
_ORDINALS_FULL = ORDINALS_MAX - (1 << 30)


class Body(NamedTuple):
    """A frame's body: the number of records, the columns' bits, the parts, the range of timestamps, and the
    codec of the parts, 0 for none."""

    records: int
    columns: int
    parts: list[Buffer]
    greatest_us: int
    least_us: int
    codec: int = 0

    def packed(self, pack: Packer) -> Body:
        """The same, compressed if that saves enough."""
        codec, parts = pack(self.records, self.parts)
        return self._replace(codec=codec, parts=parts)


def encode_records(
    values: Sequence[bytes | None],
    keys: Sequence[bytes | None] | None,
    headers: Sequence[Headers] | None,
    moments: Sequence[int | None] | None,
    topics: Sequence[str | None] | None,
    now_us: int,
) -> Body:
    """The body of checked records, at least one. A column exists only if a record uses it. now_us: the
    timestamp of a record that has none."""
    stamps = None
    if moments is not None and not _are_none(moments):
        stamps = [now_us if moment is None else moment for moment in moments]
    bits, parts = encode_columns(
        values,
        timestamps=stamps,
        keys=None if keys is None or _are_none(keys) else keys,
        topics=None if topics is None or _are_none(topics) else topics,
        headers=None if headers is None or not any(headers) else headers,
    )
    if stamps is None:
        return Body(len(values), bits, parts, now_us, now_us)
    return Body(len(values), bits, parts, max(stamps), min(stamps))


def _are_none(entries: Sequence[object]) -> bool:
    return all(entry is None for entry in entries)


class PythonInlet:
    """The columns of records that are not yet in a frame. Base class of Writer, which defines `_append`, `_flush`
    and `_sync`.

    `append`, `flush` and `sync` are thread-safe. The caller of each other method holds the writer's lock.
    """

    _append: Callable[..., int]  # as `append`; checks, takes the lock, and calls `_put`
    _flush: Callable[[], int]  # as `flush`; takes the lock
    _sync: Callable[[], int]  # as `sync`; takes a turn, the lock and the device
    _first = 0  # address of the first record
    _count = 0  # records
    _end = 0  # the address after the last record, 0 if there is none; any thread may read it
    _size = 0  # their bytes, as they were measured
    _now_us = 0  # the timestamp of a record that has none
    _records: list[tuple[Any, ...]]

    def append(
        self,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Headers = (),
        timestamp: SupportsIndex | None = None,
        topic: str | None = None,
    ) -> int:
        """Appends a record; returns its address. The record is in memory on return. It survives a crash
        of the process after `flush`, and power loss after `sync`.

        timestamp: microseconds since the epoch; default: the time of the batch. Raises RecordRefused,
        RecordTooLarge, StorageFull and StorageFailed (the record is not appended; earlier records are
        kept, and the next call writes them), SyncFailed, LogClosed, Forked.
        """
        return self._append(value, key=key, headers=headers, timestamp=timestamp, topic=topic)

    def _join(
        self,
        value: bytes | None,
        key: bytes | None,
        headers: Headers,
        timestamp: SupportsIndex | None,
        topic: str | None,
    ) -> int | None:
        """As `append`, if that would not call `_append`; otherwise None, and nothing has changed. Never waits."""

    def flush(self) -> int:
        """Everything appended survives a crash of the process, not of the machine, on return. The end
        address. Raises StorageFull, StorageFailed: nothing is lost, call again; SlabLost."""
        return self._flush()

    def sync(self) -> int:
        """Everything appended survives power loss on return. The durable address. Concurrent callers
        share one frame, one write, one fdatasync. Raises as `flush`, and SyncFailed: see `durable`."""
        return self._sync()

    def _prepare(
        self,
        lock: threading.RLock,
        device: threading.RLock,
        turn: threading.RLock,
        syncing: set[int],
        record_max: int,
        limit: int,
        most: int,
        syncs: bool,  # noqa: FBT001 -- the compiled half takes no keywords
    ) -> None:
        """What does not change while the writer is open: the locks that the compiled `flush` and `sync` take,
        which are the writer's, log_tail's device and group_commit's mutex; the threads that sync; the greatest
        size of a record, without its value's offset; what `_admit` takes while no frame waits in memory; and
        whether each flush is a sync."""

    def _begin(self, first: int, now_us: int) -> None:
        """An empty frame begins at this address, and is shut."""
        self._first, self._now_us, self._count, self._size, self._end = first, now_us, 0, 0, 0
        self._records = []

    def _admit(self, limit: int, most: int, frames: object = None) -> None:
        """Plain records join in `append` itself from now on, as long as they are fewer than `most` and have
        fewer than `limit` bytes together. frames: of a slab, if each record becomes a frame at once; only
        compiled ones take it. The Python twin takes no record in `append`: all go to `_append`."""

    def _admit_flush(self, frames: object, for_ns: int) -> None:
        """For so many nanoseconds, `flush`, `_write_out` and `sync` do all by themselves: the open frame joins
        these frames, and they are written to the file. Then records join an empty frame, whose time is that of
        its first record. The Python twin does not: all flushes go to `_flush`, all syncs to `_sync`."""

    def _write_out(self) -> int | None:
        """As `flush`, for a caller that holds the lock. None if something is left to do, for `_flush`."""
        return None

    def _shut(self) -> None:
        """No record joins from now on: all go to `_append`, and all flushes and syncs to `_flush` and `_sync`."""

    def _put(
        self,
        value: bytes | None,
        key: bytes | None,
        headers: Headers,
        timestamp: int | None,
        topic: str | None,
        size: int,
    ) -> int:
        """Takes a checked record of this size. Returns its address."""
        self._records.append((value, key, headers, timestamp, topic))
        self._size += size
        self._count += 1
        self._end = self._first + self._count
        return self._end - 1

    def _cut(self, frames: Any, pack: Packer | None) -> int | None:
        """The records become a frame; it is empty and shut then. Returns the frame's address, None if
        there are no records. pack: compresses the body."""
        if not self._count:
            return None
        body = _body_of_rows(self._records, self._now_us)
        address: int = frames.add_records(*(body if pack is None else body.packed(pack)))
        self._begin(0, 0)  # only now: `_end` never goes back
        return address


def _body_of_rows(records: list[tuple[Any, ...]], now_us: int) -> Body:
    values, keys, headers, stamps, topics = zip(*records, strict=True)
    return encode_records(values, keys, headers, stamps, topics, now_us)


class PythonDoor:
    """Takes records for an inlet, and keeps each that joined in a list, as (topic, value, key), until the
    program has flushed it. Thread-safe.

    is_open: records may join, as long as there is room; not from the start. room: bytes of records that may still be
    kept, each with 100 more than its value and key have. otherwise: takes all others, with the same arguments.
    waits: whether to call `wake` after a record that joined."""

    def __init__(
        self,
        _inlet: PythonInlet,
        _kept: list[tuple[Any, ...]],
        otherwise: Callable[..., None],
        _wake: Callable[[], None],
    ) -> None:
        self.is_open = self.waits = False
        self.room = 0
        # A plain record joins the open frame and is kept; everything else goes to `otherwise`. No record joins the
        # Python twin of an inlet.
        self.send = otherwise


class PythonFrames:
    """The frames of a slab that grows, from `written` on in memory. Base class of a slab of format 2. Not
    thread-safe."""

    def __init__(self, base: int, offset: int, full_at: int, salt: int, index: Index) -> None:
        self.base = base  # address of the slab
        self.offset = offset  # where the next frame begins
        self.written = offset  # the file has the bytes before this offset
        self.full_at = full_at  # a frame at this offset or later belongs to the next slab
        self.index = index  # grows with the frames
        # Every byte before this address is on the device; log_tail.py sets it too.
        self.durable = -1
        self.records = self.frames = 0  # all, written or not
        self.flushed_records = self.synced_records = 0  # of `records`: in the file, on the device
        self.zeros_end = 0  # the file is filled with zeros up to here; set by active_slab.py
        # Of a compiled sync that failed: nothing is synced after it; 0 if none did.
        self.sync_errno = 0
        self.least_us = self.greatest_us = NO_TIMESTAMP  # of the records' timestamps
        self.last_kind = 0  # of the last frame; 0 if there is none
        self._salt = salt
        self._headers = xxhash.xxh3_64()  # of the headers of all frames, for the seal
        self.pending: list[Buffer] = []  # buffers that are not written, in order

    def add_records(
        self,
        records: int,
        columns: int,
        parts: list[Buffer],
        greatest_us: int,
        least_us: int,
        codec: int,
    ) -> int:
        """Adds a frame of records. Returns its address. codec: of `parts`."""
        offset, ordinal = self.offset, self.records
        address = self.base + offset
        flags = codec << CODEC_SHIFT | (FLAG_DURABLE if self.durable == address else 0)
        # Positional: keywords take twice as long.
        frame, length = encode_frame(
            offset, self._salt, parts, KIND_RECORDS, flags, greatest_us, ordinal, records, columns
        )
        self.index.note(offset, ordinal, self.greatest_us)
        self.greatest_us = max(self.greatest_us, greatest_us)
        if not ordinal or least_us < self.least_us:
            self.least_us = least_us
        self.frames += 1
        self.last_kind = KIND_RECORDS
        self.records = ordinal + records
        self.put(frame, length)
        if ordinal > _ORDINALS_FULL:
            self.full_at = 0
        return address

    def put(self, frame: list[Buffer], length: int) -> None:
        """Adds the bytes of a frame: its header first."""
        self._headers.update(frame[0])
        self.pending.extend(frame)
        self.offset += length

    def headers_hash(self) -> int:
        """XXH3 of the headers of all frames."""
        return self._headers.intdigest()

    def attach(self, fd: int, directory: int, name: str, inode: int, device: int) -> None:
        """Where the slab's file is: compiled code may write and sync it. The Python twin never does."""


# --- which half -------------------------------------------------------------------------------

Inlet = PythonInlet
Door = PythonDoor
Frames = PythonFrames
Lock = threading.RLock
join: Callable[..., int | None] = PythonInlet._join  # noqa: SLF001 -- for callers that must not wait
# (bytes of all records, of the largest, (records, bits, body, greatest, least timestamp)) of five columns: lists
# with an entry a record, or None, but for the first. None if an entry is not plain. The third is None if a frame
# cannot hold it.
body_of: Callable[..., tuple[int, int, tuple[int, int, bytes, int, int] | None] | None] | None = (
    None
)
if not TYPE_CHECKING and compiled is not None:
    Inlet, Door, Lock, body_of = compiled.Inlet, compiled.Door, compiled.Lock, compiled.body
    Frames = getattr(compiled, "Frames", PythonFrames)
    join = getattr(Inlet, "_join", join)
