"""Records become batches, batches frames, frames what the chain's slab holds: all under one lock.

A frame's place is fixed when its first record is taken: whether another slab begins is decided
then and never at a flush. The slabs, and what is durable, are the chain's (rolling.py).

Order of locks: `_lock`, around everything that is appended, before the chain's own, under which
a sync waits for the device. Nobody waits for a sync under `_lock` but who seals a slab.
"""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal

from aolog import errors as notices
from aolog.errors import AologError, Forked, LogClosed, StorageError, SyncFailed
from aolog.format import format1
from aolog.format.native.speed import Gate
from aolog.storage import clock
from aolog.write.active_slab import FormatOneSlab, FormatTwoSlab
from aolog.write.open_batch import OpenBatch
from aolog.write.validate import OFFSET_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from aolog.format.compression import Packer
    from aolog.format.frame import Buffer
    from aolog.record import Headers
    from aolog.write.rolling import SlabChain

__all__ = ["BATCH_BYTES", "Appending", "refuse_format_1"]

BATCH_BYTES = 64 << 10  # smaller frames lose the advantage of batches, larger ones lose more
# Frames begin where they like, the page cache likes multiples of its pages: of 64 KiB at once such a
# write takes 1.8 times as long as an aligned one, of 256 KiB 1.3, of a MiB 1.1, of two no less.
FLUSH_BYTES = 1 << 20
_RETENTION_POLL_S = 0.05  # how often a blocked append looks for room
_UNBOUNDED = 1 << 62  # bytes or records: more than there can be, and a machine's integer
_NEVER_S = float("inf")


class Appending(Gate):
    """What a writer does with records. A class to derive from: `_chain` is set before anything is
    appended, and `background.py` says what happens when nobody calls."""

    path: str
    _chain: SlabChain
    _flush_due_s: float  # when the writer's own threads are to do what (background.py)
    _sync_due_s: float
    _looks_s: float
    _alone: bool  # no thread was to be had: who appends flushes and syncs
    _arm: Callable[[], None]
    _wake_in_time: Callable[[], None]

    def __init__(
        self,
        *,
        format_1: bool,
        batch_bytes: int,
        flush_records: int | None,
        flush_bytes: int | None,
        sync: Literal["interval", "never", "flush"],
        sync_seconds: float,
        max_record_bytes: int,
        pack: Packer,
    ) -> None:
        self._pack = pack
        self._format_1 = format_1
        self._batch_bytes = batch_bytes
        self._flush_records = min(flush_records or _UNBOUNDED, _UNBOUNDED)
        self._flush_bytes = min(flush_bytes or max(batch_bytes, FLUSH_BYTES), _UNBOUNDED)
        self._sync_policy = sync
        self._sync_seconds = sync_seconds
        self._max_record_bytes = max_record_bytes
        # Else a value below the batch's bound may be over its own.
        self._values_join = max_record_bytes >= batch_bytes and not format_1
        self._take_lock()
        self._room = threading.Condition(self._lock)
        self._batch: OpenBatch | None = None
        self._unflushed_records = 0  # in frames; the open batch has its own

    def _take_lock(self) -> None:
        self._lock = threading.RLock()
        # By the thread that asks. threading.Condition asks its lock this way, whatever it is.
        self._is_locked: Callable[[], bool] = self._lock._is_owned  # type: ignore[attr-defined]  # noqa: SLF001 -- as said

    # --- how far, and what stands in the way ------------------------------------------------

    @property
    def _end(self) -> int:
        """At least behind what the thread that asks has appended; the lock makes it exact."""
        batch = self._batch
        return self._chain.end if batch is None else batch.address + len(batch.values)

    _trouble: AologError | None = None  # what the next call has to face; set by `_meet`

    def _meet(self, error: AologError | None) -> None:
        with self._lock:  # else who lets values join just now opens what is closed here
            if not isinstance(self._trouble, LogClosed | Forked):  # there is no way back from these
                self._trouble = error
            self._close_batch_to_values()

    def _close_batch_to_values(self) -> None:
        """The next append looks at everything first."""
        size = self._close_gate()
        if size and self._batch is not None:
            self._batch.size = size

    def _face_trouble(self) -> None:
        """Raises what stands in the way. After a failed write: tries it again first."""
        trouble = self._chain.failed or self._trouble
        if isinstance(self._trouble, LogClosed | Forked):
            trouble = self._trouble
        if isinstance(trouble, StorageError) and not isinstance(trouble, SyncFailed):
            self._meet(None)
            try:
                self._flush_locked()
            except StorageError as error:
                self._meet(self._trouble or error)
                raise
        elif trouble is not None:
            raise type(trouble)(trouble.reason, hint=trouble.hint, **trouble.details)

    # --- records and frames -----------------------------------------------------------------

    def _gather(
        self,
        value: bytes | None,
        key: bytes | None,
        headers: Headers,
        moment: int | None,
        topic: str | None,
        size: int,
    ) -> int:
        """Into the open batch, or into the next if that would be too large."""
        batch = self._batch
        if batch is not None:
            batch.size = self._close_gate() or batch.size
            if batch.size + size > self._batch_bytes:
                self._cut_batch()
                batch = None
                # A flush that the record brings about: behind it, it would be a frame by itself.
                if self._sync_policy != "flush" and self._waiting + size >= self._flush_bytes:
                    self._quietly(self._flush_locked)
        if batch is None:
            if (
                size >= self._batch_bytes
                and value is not None
                and size == len(value) + OFFSET_BYTES
            ):
                # Only a value, and a batch by itself: a frame at once, for half the time.
                codec, parts = self._pack(1, [value])
                now_us = clock.now_us()
                return self._add_frame(1, 0, codec, parts, now_us, now_us)
            batch = self._begin_batch()
        address = batch.address + len(batch.values)
        batch.add(value, key, headers, moment, topic, size)
        if batch.size >= self._batch_bytes:
            self._cut_batch()
        return address

    def _add_frame(
        self,
        count: int,
        columns: int,
        codec: int,
        parts: list[Buffer],
        timestamp_us: int,
        least_us: int,
    ) -> int:
        """A frame of its own; the open batch becomes one before it."""
        if self._batch is not None:
            self._cut_batch()
        chain = self._chain
        if chain.is_over:
            self._roll()
        slab = chain.slab
        if TYPE_CHECKING:
            assert isinstance(slab, FormatTwoSlab)
        if self._batch is not None:  # begun by another thread while this one waited for room
            self._cut_batch()
        address = slab.add_records(
            count, columns, codec, parts, timestamp_us, least_us, chain.durable
        )
        self._unflushed_records += count
        self._arm()
        return address

    def _append_format_1(
        self,
        value: bytes | None,
        key: bytes | None,
        headers: Headers,
        timestamp: int | None,
        topic: str | None,
    ) -> int:
        payload = refuse_format_1(value, key, headers, timestamp, topic)
        if self._chain.slab is None:
            self._roll()
        slab = self._chain.slab
        assert isinstance(slab, FormatOneSlab)
        address = slab.add_payload(payload)
        self._unflushed_records += 1
        self._arm()
        if self._chain.is_over:
            self._quietly(self._roll)  # at once, as the Go program does: its last slab may be empty
        return address

    def _begin_batch(self) -> OpenBatch:
        """The batch that the next record joins. Which slab takes it is decided here."""
        chain = self._chain
        if chain.is_over:
            self._roll()
        slab = chain.slab
        if TYPE_CHECKING:
            assert isinstance(slab, FormatTwoSlab)
        if self._batch is not None:  # begun by another thread while this one waited for room
            self._close_batch_to_values()
            return self._batch
        batch = OpenBatch(slab.base + slab.offset, clock.now_us())
        self._arm()  # first: what joins a batch that is there arms nothing
        self._batch = batch
        return batch

    def _cut_batch(self) -> None:
        """The open batch becomes a frame, in memory."""
        self._close_gate()
        batch, slab = self._batch, self._chain.slab
        if batch is None or not batch.values:  # its first record was interrupted
            self._batch = None
            return
        if TYPE_CHECKING:  # as elsewhere: a call costs as much as a line of this
            assert isinstance(slab, FormatTwoSlab)
        count, stamps = len(batch.values), batch.timestamps
        greatest_us = least_us = batch.timestamp_us
        if stamps is not None:
            greatest_us, least_us = max(stamps), min(stamps)
        columns, parts = batch.encode()
        codec, parts = self._pack(count, parts)  # under the lock: the next address depends on it
        address = slab.add_records(
            count, columns, codec, parts, greatest_us, least_us, self._chain.durable
        )
        self._batch = None  # nothing is called in between: a signal's handler may raise
        self._unflushed_records += count
        assert address == batch.address

    @property
    def _waiting(self) -> int:
        """Bytes of frames that are not written yet."""
        slab = self._chain.slab
        return 0 if slab is None else slab.offset - slab.written

    # --- flush and sync ---------------------------------------------------------------------

    def _flush_locked(self) -> None:
        self._cut_batch()
        self._chain.write_pending()
        self._unflushed_records = 0
        self._flush_due_s = _NEVER_S
        if (
            self._sync_policy == "interval"
            and self._sync_due_s == _NEVER_S
            and self._chain.durable < self._chain.end
        ):
            self._sync_due_s = time.monotonic() + self._sync_seconds
        if self._sync_due_s < self._looks_s or self._chain.aged_at_s < self._looks_s:
            self._wake_in_time()

    def _flush_or_let_values_join(self) -> int:
        """Flushes what is due. If nothing is, values may join the open batch until a bound is
        reached at which there is more to do. Where the policy is to sync at a flush: how far that
        is to be done once the lock is free, by one thread for all. Else 0."""
        if self._alone:
            self._wake_in_time()
            if self._alone:  # still: nobody else would
                return self._flush_alone()
        batch, slab, records = self._batch, self._chain.slab, self._unflushed_records
        waiting = 0 if slab is None else slab.offset - slab.written
        if batch is not None:
            waiting += batch.size
            records += len(batch.values)
        if waiting >= self._flush_bytes or records >= self._flush_records:
            if self._sync_policy == "flush":
                return self._end
            self._quietly(self._flush_locked)
            if self._alone:  # as was found just now
                return self._flush_alone()
        elif batch is not None and batch.plain and self._trouble is None and self._values_join:
            limit = self._flush_bytes - waiting + batch.size
            if limit > self._batch_bytes:  # noqa: PLR1730 -- min() takes ten times as long
                limit = self._batch_bytes
            most = self._flush_records - self._unflushed_records - 1
            self._open_gate(batch.values, batch.address, batch.size, limit, most, OFFSET_BYTES)
        return 0

    def _flush_alone(self) -> int:
        """As the writer's own thread would, but at once; how far it is to be synced."""
        if self._sync_policy != "never":
            return self._end
        self._quietly(self._flush_locked)
        return 0

    def _quietly(self, call: Callable[..., object], *given: object) -> None:
        """What was taken stays taken: an error waits for the next call."""
        try:
            call(*given)
        except AologError as error:
            if isinstance(error, StorageError):  # others are met again where they arise
                with self._lock:  # others may close it meanwhile
                    self._meet(self._trouble or error)
            notices.warn("%s: %s", self.path, error)

    def _sync_to(self, target: int) -> int:
        """Never under the lock, which whoever syncs for all has to take."""
        try:  # not with _noting_failed_syncs: a context manager costs more than the lock
            return self._chain.sync_to(target, self._lock, self._flush_locked)
        except SyncFailed as error:
            with self._lock:
                if not isinstance(self._trouble, LogClosed | Forked):  # closed meanwhile
                    self._meet(error)
            raise

    # --- from slab to slab --------------------------------------------------------------------

    def _roll(self) -> None:
        """Ends the slab and begins the next. After an error it goes on where it stopped."""
        self._end_slab()
        while not self._chain.has_room():
            self._room.wait(_RETENTION_POLL_S)
            if self._trouble is not None:
                self._face_trouble()
        if self._chain.unread.due_s < self._looks_s:  # a loss was added within the quiet minute
            self._wake_in_time()
        if self._chain.slab is None:  # else begun by another thread while this one waited
            with self._noting_failed_syncs():
                self._chain.begin_slab()

    def _end_slab(self) -> None:
        self._cut_batch()
        with self._noting_failed_syncs():
            self._chain.end_slab()

    @contextmanager
    def _noting_failed_syncs(self) -> Iterator[None]:
        """From now on every call raises it."""
        try:
            yield
        except SyncFailed as error:
            self._meet(error)
            raise


def refuse_format_1(
    value: bytes | None,
    key: bytes | None,
    headers: Headers,
    timestamp: int | None,
    topic: str | None,
) -> bytes:
    """The value, of a record that format 1 has a place for. Raises RecordRefused."""
    refused = format1.refusal(value, key, headers, timestamp, topic)
    if refused is not None:
        raise refused
    assert value is not None
    return value
