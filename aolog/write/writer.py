"""Writer: what a user calls. The way of a record is in log_tail.py.

    append ─► gate ─► LogTail: open batch ─► frame ─► active slab ─► file ─► device

The lock is around everything that is appended. While no call holds it, the gate (format/native) may be
open: a value then joins the open batch without the lock. So a call that changes something takes the
lock and shuts the gate. A sync waits for the device without the lock.

Fail-stop. A call finishes, or raises one of our errors with the state as documented. If anything else
interrupts it (KeyboardInterrupt, MemoryError, a bug), the writer has failed: every later call says so,
and reopening recovers the log.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Literal, Self, SupportsIndex, TypeVar

from aolog import errors as notices
from aolog.errors import AologError, Forked, LogClosed, UsageError, nested_call, not_copied
from aolog.format.format1 import check_storable
from aolog.format.native.speed import Gate
from aolog.log import lifetime
from aolog.log.pruned_records import NEVER_S
from aolog.storage.storage import DIRECTORY_MODE, Storage, absolute
from aolog.write.background import Background
from aolog.write.group_commit import GroupCommit
from aolog.write.log_tail import LogTail, may_be_retried
from aolog.write.options import BATCH_BYTES, MAX_RECORD_BYTES, SLAB_BYTES, WriterOptions
from aolog.write.record_columns import RecordBatches, array_of
from aolog.write.slab_chain import SlabChain
from aolog.write.validate import OFFSET_BYTES, check_record, too_large

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable, Mapping

    import numpy as np
    import pyarrow as pa

    from aolog.format.compression import Compression
    from aolog.log.retention import Retention
    from aolog.record import Gap, Headers
    from aolog.write.open_batch import Body
    from aolog.write.opening import Opening
    from aolog.write.validate import CheckedRecord

_Result = TypeVar("_Result")
_RETENTION_POLL_S = 0.05  # how often a blocked append looks for room


class Writer(Gate):
    """The one writer of a log.

    Creates the directory if there is none. slab_bytes, slab_seconds: a slab that is larger, or that
    got its first record longer ago, is sealed. batch_bytes: records are gathered into frames of about
    this size; 0 makes every record a frame. flush_records, flush_bytes, flush_seconds: how long
    records may wait in memory, also when nobody appends. sync: "interval" syncs every sync_seconds
    while there is something to sync, "flush" at every flush, "never" only when a slab is sealed.
    topic: the log's default destination. max_record_bytes: of value, key, headers and topic together,
    with a few bytes for each. preallocate: fills a new slab with zeros. first_address: where a new log
    begins. compression: of frames' bodies, by the extra `compression`; compression_level: zstd's 1 to
    22 (default 1), or lz4's 1 to 12 for its slow mode. Small bodies, and those that do not shrink, are
    stored as they are. mode: of the log's directory, and of those above it, if they are created,
    whatever the umask; an existing one keeps its mode. Files in the log get their directory's bits.

    Thread-safe. Refuses every call in a forked child (Forked) and leaves the parent's log alone.
    Refuses a call from a signal handler, or a finalizer, that interrupts another call of the same
    thread (UsageError). An exception from a handler (KeyboardInterrupt) in the middle of a call, or
    any other unexpected one, makes the writer failed: later calls raise UsageError, and `close`
    releases the log, which the next Writer recovers. The writer's own threads start with the first
    append that needs them; if the system has no thread left, it raises StorageFailed and takes nothing.

    Raises LogLocked, NotALog, NewerFormat, HeaderLost, TopicMismatch, UsageError, StorageError,
    CodecUnavailable.
    """

    _is_open = False

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        slab_bytes: int = SLAB_BYTES,
        slab_seconds: float | None = None,
        batch_bytes: int = BATCH_BYTES,
        flush_records: int | None = None,
        flush_bytes: int | None = None,
        flush_seconds: float | None = 1.0,
        sync: Literal["interval", "never", "flush"] = "interval",
        sync_seconds: float = 1.0,
        retention: Retention | None = None,
        format: Literal["aolog", "queuefka"] = "aolog",  # noqa: A002 -- the design's name
        topic: str | None = None,
        max_record_bytes: int = MAX_RECORD_BYTES,
        preallocate: bool = False,
        first_address: int = 0,
        compression: Compression = "none",
        compression_level: int | None = None,
        mode: int = DIRECTORY_MODE,
        storage: Storage | None = None,
    ) -> None:
        options = WriterOptions(
            slab_bytes=slab_bytes, slab_seconds=slab_seconds, batch_bytes=batch_bytes,
            flush_records=flush_records, flush_bytes=flush_bytes, flush_seconds=flush_seconds,
            sync=sync, sync_seconds=sync_seconds, retention=retention, format=format, topic=topic,
            max_record_bytes=max_record_bytes, preallocate=preallocate, first_address=first_address,
            compression=compression, compression_level=compression_level, mode=mode,
        ).checked()  # fmt: skip  # passed on as they are
        self.path = absolute(path)  # slabs to come do not move with the process
        self._format_1, self._max_record_bytes = options.format_1, options.max_record_bytes
        self._syncs_each_flush = options.sync == "flush"
        self._batches = RecordBatches(options)
        self._new_lock()
        self._commit = GroupCommit()
        self._background = Background(self.path, options, self._tick, self._sync_quietly)
        self._chain = SlabChain(self.path, storage or Storage(), options)
        self._tail = LogTail(self._chain, options)
        lifetime.opened(self, self._chain.storage.system, Writer._after_fork_in_child)
        self._is_open = True
        self._background.check_age()

    def _new_lock(self) -> None:
        self._lock = threading.RLock()
        self._room = threading.Condition(self._lock)
        # Whether this thread holds it. threading.Condition asks any lock this way.
        self._is_locked: Callable[[], bool] = self._lock._is_owned  # type: ignore[attr-defined]  # noqa: SLF001 -- as said

    # --- state ------------------------------------------------------------------------------

    @property
    def topic(self) -> str | None:
        """The log's default topic."""
        return self._chain.topic

    @property
    def opening(self) -> Opening:
        """How the log was found when it was opened, and what was done."""
        return self._chain.opening

    @property
    def end(self) -> int:
        """The address after everything appended, memory included. A new record's is not below."""
        with self._lock:
            return self._tail.end

    @property
    def durable(self) -> int:
        """Everything before this address survives power loss."""
        return self._tail.durable

    @property
    def pruned_unread(self) -> Mapping[str, Gap]:
        """The records that this writer's retention removed although a protecting cursor had not
        read them, by cursor: only `Retention(max_bytes=…, when_full="prune")` does so."""
        return self._chain.unread.total

    # --- append: records into the open batch --------------------------------------------------

    # `append` is Gate's: a value joins the open batch, or is passed to `_append_value`; anything
    # else is passed to `_append`.

    def _append(
        self,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Headers = (),
        timestamp: SupportsIndex | None = None,
        topic: str | None = None,
    ) -> int:
        return self._take(check_record(value, key, headers, timestamp, topic))

    def _append_value(self, value: bytes) -> int:
        return self._take((value, None, (), None, None, len(value) + OFFSET_BYTES))

    def _take(self, record: CheckedRecord) -> int:
        self._refuse_nested()
        size = record[5]
        if size - OFFSET_BYTES > self._max_record_bytes:  # every record has a value's offset
            raise too_large(size - OFFSET_BYTES, self._max_record_bytes)
        if self._format_1:
            check_storable(*record[:5])
        with self._lock:
            try:
                tail = self._tail
                if tail.trouble is not None:
                    tail.refuse()
                batch = tail.batch
                if batch is not None and batch.plain:  # otherwise the gate is shut
                    batch.size = self._close_gate() or batch.size
                if batch is None or batch.size + size > tail.batch_bytes:
                    self._make_room(size)
                address = tail.add(record)
                must_sync = self._flush_or_open_gate()
            except BaseException as error:
                self._after_error(error)
                raise
        if must_sync:
            self._sync_quietly()
        return address

    def append_many(
        self,
        values: Iterable[bytes | None],
        *,
        keys: Iterable[bytes | None] | None = None,
        headers: Iterable[Headers] | None = None,
        timestamps: Iterable[int | None] | None = None,
        topics: Iterable[str | None] | None = None,
    ) -> np.ndarray:
        """Takes values as one frame, whatever its size: readers see all of them or none. keys,
        headers, timestamps, topics: an entry for each value, as for `append`. Returns their addresses,
        uint64. Durability and errors as for `append`; none is taken on an error. (Format 1 has no
        batches: each value is a frame there, and an error may come between two.)"""
        return self._append_frames(self._batches.of(values, keys, headers, timestamps, topics))

    def append_arrow(self, record_batch: pa.RecordBatch) -> np.ndarray:
        """As `append_many`, of a batch of columns: `value` and, optional, `key`, `headers` (lists of
        structs of `key` and `value`), `timestamp`, `topic`; `address` is ignored."""
        return self._append_frames(self._batches.of_arrow(record_batch))

    def _append_frames(self, bodies: list[Body]) -> np.ndarray:
        """Takes frames as they are. Returns the addresses of their records."""
        self._refuse_nested()
        taken: list[range] = []
        with self._lock:
            try:
                self._tail.refuse()
                self._shut_gate()
                for body in bodies:
                    self._make_room()
                    taken.append(self._tail.add_frame(body))
                must_sync = self._flush_or_open_gate()
            except BaseException as error:
                self._after_error(error)
                raise
        if must_sync:
            self._sync_quietly()
        return array_of(taken)

    def _make_room(self, size: int = 0) -> None:
        """Ends the open batch; the slab has room for a frame on return. size: of the record that
        comes next. Waits if retention blocks. With the gate shut."""
        tail, background = self._tail, self._background
        if tail.batch is not None:
            tail.cut_batch()
            # Now and not after the next record, which would then be a frame by itself.
            if not self._syncs_each_flush and tail.is_due(size):
                self._quietly(self._flush_locked)
        while not tail.make_room(end_slab=background.is_seal_due()):
            self._room.wait(_RETENTION_POLL_S)
            tail.refuse()
            self._shut_gate()  # opened by another thread meanwhile
        background.arm(self._chain)

    def _flush_or_open_gate(self) -> bool:
        """After an append: flushes what is due. If nothing is, values may join the open batch until
        something will be. True: call `sync` without the lock, as the policy is to sync."""
        tail = self._tail
        if tail.must_flush():
            if self._syncs_each_flush:
                return True
            self._quietly(self._flush_locked)
        elif tail.batch is not None and tail.batch.plain and tail.trouble is None:
            self._open_gate(*tail.gate())
        if self._format_1 and self._chain.is_full:
            self._quietly(tail.make_room)  # at once, as the Go program does
        return False

    def _shut_gate(self) -> None:
        """The next append takes the lock, and looks at everything."""
        size = self._close_gate()
        if size and self._tail.batch is not None:
            self._tail.batch.size = size

    # --- flush and sync -----------------------------------------------------------------------

    def flush(self) -> int:
        """Everything appended survives a crash of the process, not of the machine, on return. The end
        address. Raises StorageFull, StorageFailed: nothing is lost, call again."""
        if self._syncs_each_flush:
            return self.sync()
        self._refuse_nested()
        with self._lock:
            try:
                self._tail.refuse()
                self._flush_locked()
            except BaseException as error:
                self._after_error(error)
                raise
            return self._chain.end

    def _flush_locked(self) -> None:
        tail, background = self._tail, self._background
        self._close_gate()  # the batch ends: its size is of no interest
        tail.flush()
        background.flush_due_s = NEVER_S
        if background.sync_due_s == NEVER_S and not self._syncs_each_flush:
            background.sync_in_time(needed=tail.durable < self._chain.end)

    def sync(self) -> int:
        """Everything appended is on the device on return: it survives power loss. The durable
        address. Concurrent callers share one frame, one write and one fdatasync. Raises
        SyncFailed: see `durable`, and what `flush` raises."""
        self._refuse_nested()
        tail = self._tail
        target = tail.end
        if tail.trouble is None:
            if tail.durable >= target:
                return tail.durable
        elif not may_be_retried(tail.trouble):  # before the turn, which a fork may have left taken
            tail.refuse()
        try:
            self._commit.enter(target)
            if tail.durable >= target:  # synced by another thread
                return tail.durable
            with self._lock:
                if tail.trouble is not None:
                    tail.refuse()
                self._flush_locked()
                written = tail.take_device()
            if written is not None:  # otherwise the slab was sealed, and synced with that
                tail.sync_written(*written)
        except BaseException as error:
            self._after_error(error)
            raise
        finally:
            self._commit.leave(tail.durable)
        return tail.durable

    # --- what keeps the writer from going on ------------------------------------------------------

    def _refuse_nested(self) -> None:
        """A signal handler, or a finalizer, may run in the middle of another call of its thread."""
        if self._is_locked() or threading.get_ident() in self._commit.threads:
            raise nested_call()

    def _after_error(self, error: BaseException) -> None:
        """Call it for an exception in the middle of a call: the writer fails unless its state is as
        documented."""
        with self._lock:
            if self._tail.after_error(error):
                self._shut_gate()
                self._commit.release_all()  # this thread may have had the turn

    def _quietly(self, call: Callable[[], object]) -> None:
        """After a record was taken: it stays taken, and an error waits for the next call."""
        try:
            call()
        except AologError as error:
            with self._lock:
                if self._tail.keep_for_later(error):
                    self._shut_gate()
            if not isinstance(error, LogClosed):
                notices.warn("%s: %s", self.path, error)

    # --- what the writer's own threads do -----------------------------------------------------------

    def _tick(self) -> float | None:
        """Does what is due. Returns the seconds until the next look, None to sleep until woken."""
        background, tail, now = self._background, self._tail, time.monotonic()
        if now >= background.flush_due_s:
            background.flush_due_s = NEVER_S
            self._quietly(self.flush)
        with self._lock:
            try:
                if not may_be_retried(tail.trouble):
                    return None
                self._shut_gate()
                self._quietly(lambda: background.tend(self._chain, tail, now))
                return background.sleep(self._chain.unread.due_s)
            except BaseException as error:
                self._after_error(error)
                raise

    def _sync_quietly(self) -> None:
        self._quietly(self.sync)

    # --- closing ----------------------------------------------------------------------------

    def close(self) -> None:
        """Flushes, seals, syncs, releases the log. Idempotent. Raises StorageFull or StorageFailed
        with the log still open: nothing is lost, free space and call again. Raises SyncFailed, also
        for one in a thread of the writer's own, and UsageError if the writer failed, with the log
        released."""
        failure = self._end(self._tail.finish) if self._is_open else None
        if failure is not None:
            raise failure

    def give_up(self) -> int:
        """Instead of `close`, if that raises StorageFull or StorageFailed and will not be called
        again: releases the log with the whole frames that are in its files, and drops what is only
        in memory. The address after those frames: records before it are in the log, and durable if
        `durable` says so; others are not, and may be appended again. Idempotent; raises UsageError
        within another call, and nothing else."""
        end = self._end(self._tail.keep_whole_frames) if self._is_open else None
        return self._tail.durable if end is None else end

    def _end(self, finish: Callable[[], _Result]) -> _Result | None:
        """Calls `finish` and refuses later calls, unless another thread did; releases the log."""
        self._refuse_nested()
        result = None
        with self._lock:
            if not isinstance(self._tail.trouble, LogClosed):
                self._shut_gate()
                result = finish()
                closed = LogClosed("the writer is closed", hint="open another", path=self.path)
                self._tail.end_with(closed)
                self._room.notify_all()
                self._background.end()
        self._background.join()  # without the lock, which the threads may need to end
        self._chain.release()
        self._chain.unread.warn(at_once=True)
        self._is_open = False
        lifetime.closed(self)
        return result

    def _after_fork_in_child(self) -> None:
        """The parent's file, buffers and log lock stay as they are. Takes no lock: a thread of the
        parent may have held it at the fork."""
        self._new_lock()
        self._close_gate()
        hint = "open a Writer of its own in the child, on another log"
        forked = Forked("the writer was opened before a fork", hint=hint, path=self.path)
        self._tail.end_with(forked)
        self._chain.release()
        self._is_open = False

    def __del__(self) -> None:
        if self._is_open:  # dropped without being closed: what it took is not lost
            lifetime.close_quietly(self)

    __reduce__ = not_copied("open a Writer where it is used, on a log of its own")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        try:
            self.close()
        except UsageError:  # the writer failed
            if error is None:
                raise

    def __repr__(self) -> str:
        trouble = self._tail.trouble
        state = f"{trouble.code}," if isinstance(trouble, LogClosed | Forked) else f"end={self.end}"
        return f"<aolog.Writer {self.path} {state} durable={self.durable}>"
