"""Writer: what a user calls. The way of a record is in log_tail.py.

    append ─► inlet: the open frame ─► LogTail: active slab ─► file ─► device

The writer is its own inlet (format/native/inlet.py): its open frame. The lock is around everything else.
While no call holds it, records may join the open frame without it, and a plain flush or sync needs none of
the code below. So a call that changes something takes the lock and shuts the inlet. A sync waits for the
device without the lock. When the writer's own threads do something: schedule.py.

Fail-stop: a call finishes, raises an error of ours, or makes the writer failed. Exit: storage/lifetime.py.
"""

from __future__ import annotations

import threading
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar

from aolog import errors as notices
from aolog.errors import AologError, Forked, LogClosed, UsageError, not_copied
from aolog.format.compression import packer
from aolog.format.native.inlet import Inlet, Lock
from aolog.format.slab import NO_TIMESTAMP
from aolog.log.interruption import nested_call
from aolog.storage import clock, lifetime
from aolog.storage.storage import DIRECTORY_MODE, Storage, absolute
from aolog.write.background import Background
from aolog.write.group_commit import GroupCommit
from aolog.write.log_tail import LogTail, may_be_retried
from aolog.write.options import BATCH_BYTES, MAX_RECORD_BYTES, WriterOptions, documented
from aolog.write.record_columns import RecordChecks, array_of, put
from aolog.write.schedule import Task
from aolog.write.slab_chain import SlabChain

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable, Mapping

    import numpy as np
    import pyarrow as pa

    from aolog.format.columns import Columns
    from aolog.format.compression import Compression
    from aolog.format.native.inlet import Body
    from aolog.log.retention import Retention
    from aolog.record import Gap, Headers
    from aolog.write.active_slab import ActiveSlab
    from aolog.write.opening import Opening
    from aolog.write.options import Waiting
    from aolog.write.validate import CheckedRecord

_Result = TypeVar("_Result")
_RETENTION_POLL_S = 0.05  # how often a blocked append looks for room


@documented
class Writer(Inlet):
    """The one writer of a log.

    Creates the directory if there is none; one that exists keeps its mode.

    Thread-safe. Refuses every call in a forked child (Forked) and leaves the parent's log alone.
    Refuses a call from a signal handler, or a finalizer, that interrupts another call of the same
    thread (UsageError). An unexpected exception in the middle of a call, such as KeyboardInterrupt,
    makes the writer failed: later calls raise UsageError, and `close` releases the log, which the next
    Writer recovers. Its threads start with the first append that needs them; if the system has none
    left, that raises StorageFailed and takes nothing. At exit an open log is sealed and synced; later
    appends are flushed at once. Raises LogLocked, NotALog, NewerFormat, HeaderLost, TopicMismatch,
    UsageError, StorageError, CodecUnavailable.
    """

    _is_open = _is_settled = False

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        # how large
        slab_bytes: int | None = None,
        slab_seconds: float | None = None,
        batch_bytes: int = BATCH_BYTES,
        max_record_bytes: int = MAX_RECORD_BYTES,
        # how long in memory
        flush_records: int | None = None,
        flush_seconds: float | None = 1.0,
        # how safe
        sync: Literal["interval", "never", "flush"] = "interval",
        sync_seconds: float = 1.0,
        sync_records: int | None = None,
        # how much disk
        retention: Retention | None = None,
        compression: Compression = "none",
        compression_level: int | None = None,
        # a new log
        format: Literal["aolog", "queuefka"] = "aolog",  # noqa: A002 -- the design's name
        topic: str | None = None,
        mode: int = DIRECTORY_MODE,
        storage: Storage | None = None,
    ) -> None:
        given = locals()  # a test compares the names with the table
        options = WriterOptions._make(given[name] for name in WriterOptions._fields).checked()
        self.path = absolute(path)  # slabs to come do not move with the process
        self._options = options
        self._frame_bytes, self._syncs_each_flush = options.frame_bytes, options.sync == "flush"
        self._pack = packer(options.compression, options.compression_level)  # of frames; None: none
        self._checks = RecordChecks(options)
        self._begin(0, 0)
        self._commit = GroupCommit()
        self._background = Background(self.path, options, self._tick, self._sync_quietly)
        self._chain = chain = SlabChain(self.path, storage or Storage(), options)
        self._tail = LogTail(chain)
        self._new_lock()
        lifetime.opened(self, chain.storage.system, Writer._after_fork_in_child, Writer._settle)
        self._is_open = True
        self._background.watch_age()

    def _new_lock(self) -> None:
        self._lock = Lock()
        options, most = self._options, self._options.most_waiting
        locks = self._lock, self._tail.device, self._commit.mutex
        bounds = options.max_record_bytes, self._frame_bytes or most.bytes, most.records
        self._prepare(*locks, self._commit.threads, *bounds, self._syncs_each_flush)
        self._room = threading.Condition(self._lock)  # an append waits here if retention blocks
        # Whether this thread holds it. threading.Condition asks any lock this way.
        self._is_locked: Callable[[], bool] = self._lock._is_owned  # type: ignore[attr-defined]  # noqa: SLF001 -- as said

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
        """The address after everything appended, memory included. No later record gets a lower address."""
        with self._lock:
            return self._end or self._chain.end

    @property
    def durable(self) -> int:
        """Everything before this address was synced: it survives power loss. See SlabLost."""
        return self._tail.durable

    @property
    def pruned_unread(self) -> Mapping[str, Gap]:
        """The unread records that its retention removed (when_full="prune"), by protecting cursor."""
        return self._chain.unread.total

    # `append` is Inlet's: a record joins the open frame there, or is passed to `_append`.
    def _append(self, value: bytes | None, **fields: Any) -> int:
        record = self._checks.one(value, **fields)
        return self._taking(lambda: self._take_record(record))

    def _taking(self, take: Callable[[], _Result]) -> _Result:
        """Calls `take` under the lock, with the inlet shut; then does what has become due."""
        self._refuse_nested()
        with self._lock:
            try:
                self._shut()
                self._tail.refuse()
                result = take()
                must_sync = self._flush_if_full()
            except BaseException as error:
                self._after_error(error)
                raise
        if must_sync:
            self._sync_quietly()
        return result

    def _take_record(self, record: CheckedRecord) -> int:
        size = record[5]
        if not self._count or self._size + size > self._frame_bytes:
            slab = self._make_room(size)
            self._begin(slab.base + slab.offset, clock.now_us())
        address = self._put(*record)
        if self._size >= self._frame_bytes:
            self._cut_frame()
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
        uint64. Durable as by `append`, whose errors it raises; none is taken then, but in a log
        of queuefka."""
        columns = {"keys": keys, "headers": headers, "timestamps": timestamps, "topics": topics}
        return self._append_checked(self._checks.of(values, columns))

    def append_arrow(self, record_batch: pa.RecordBatch | Columns) -> np.ndarray:
        """As `append_many`, of a batch of columns: `value` and, optional, `key`, `headers` (lists of
        structs of `key` and `value`), `timestamp`, `topic`; `address` is ignored. Or of columns as frames
        have them (aolog.format.columns)."""
        return self._append_checked(self._checks.of_arrow(record_batch))

    def _append_checked(self, records: Body | list[bytes]) -> np.ndarray:
        return array_of(self._taking(lambda: put(records, self._make_room)))

    def _make_room(self, size: int = 0) -> ActiveSlab:
        """Cuts the open frame. Returns the slab, which has room for a frame. size: of the record that
        comes next. Waits if retention blocks. The inlet is shut."""
        tail, background = self._tail, self._background
        if self._count:
            self._cut_frame()
            # Flushes now: after the next record, that one would be a frame by itself.
            if size >= self._chain.left.bytes and not self._syncs_each_flush:
                self._quietly(self._write)
        while (slab := tail.make_room(seal=background.is_due(Task.SEAL))) is None:
            self._room.wait(_RETENTION_POLL_S)
            tail.refuse()
            self._shut()  # another thread may have admitted meanwhile
            self._cut_frame()
        background.begin_frame(slab.base, self._chain.unread.due_s)
        self._is_settled = False
        return slab

    def _cut_frame(self) -> None:
        """The open frame, if there is one, becomes a frame of the slab, in memory. It is also compressed under
        the lock: the next frame's address depends on its length."""
        first, address = self._first, self._cut(self._chain.slab, self._pack)
        assert address in {None, first}, "its records were promised other addresses"

    def _flush_if_full(self) -> bool:
        """After a call: flushes if a bound of what waits is reached, and opens the inlet. True: the caller
        must sync instead, without the lock."""
        chain, left = self._chain, self._chain.left
        must_sync = self._count >= left.unsynced
        is_full = self._size >= left.bytes or self._count >= left.records
        if is_full or must_sync or self._background.is_over:
            if self._syncs_each_flush or must_sync:
                return True
            self._quietly(self._write)
            left = chain.left
        if chain.must_roll:
            self._quietly(self._tail.make_room)
            left = chain.left
        self._open(left)
        return False

    def _open(self, left: Waiting) -> None:
        """Opens the inlet: records join, and are flushed, without the code below, up to the bounds; but only
        if the writer's threads will flush and sync them in time."""
        chain, slab, background = self._chain, self._chain.slab, self._background
        if slab is None or self._tail.trouble is not None or not background.looks_in_time:
            return
        is_plain = self._pack is None and clock.now_us is clock.SYSTEM
        if not self._count:
            if not is_plain or chain.is_full:
                return
            self._begin(chain.end, NO_TIMESTAMP)
        frames = () if self._frame_bytes else (slab,)
        limit = min(left.bytes, self._frame_bytes or left.bytes)
        self._admit(limit, min(left.records, left.unsynced), *frames)
        if is_plain and self._options.sync_records is None and background.syncs_in_time:
            self._admit_flush(slab, self._tail.looks_ns)

    # `flush` is Inlet's: it writes the open frame there, or calls this.
    def _flush(self) -> int:
        return self.sync() if self._syncs_each_flush else self._taking(self._write)

    def _write(self) -> int:
        """Everything appended is in the file on return. The end address."""
        self._shut()
        self._cut_frame()
        self._tail.flush()
        if self._tail.durable < self._chain.end:
            self._background.flushed(self._tail.durable, self._chain.end)
        return self._chain.end

    # `sync` is Inlet's: it does so there, if no other call is under way, or calls this.
    def _sync(self) -> int:
        self._refuse_nested()
        tail, target = self._tail, self._end or self._chain.end
        if tail.trouble is not None and not may_be_retried(tail.trouble):
            tail.refuse()  # before the turn, which a fork may have left taken
        elif tail.durable >= target:
            with self._lock:
                tail.look()
            return tail.durable
        try:
            self._commit.enter(target)
            if tail.durable >= target:  # synced by another thread
                return tail.durable
            with self._lock:
                tail.refuse()
                tail.look()
                if self._write_out() is None:
                    self._write()
                    self._open(self._chain.left)
                written = tail.take_device()
            if written is not None:  # otherwise the slab was sealed, and synced with that
                tail.sync_written(*written)
        except BaseException as error:
            tail.release_device()
            self._after_error(error)
            raise
        finally:
            try:
                self._commit.leave(tail.durable)
            except BaseException as error:  # an interrupt: the turn may be left taken
                self._after_error(error)
                raise
        return tail.durable

    def _refuse_nested(self) -> None:
        """A signal handler, or a finalizer, may run in the middle of another call of its thread."""
        if self._is_locked() or threading.get_ident() in self._commit.threads:
            raise nested_call()

    def _after_error(self, error: BaseException) -> None:
        """An exception in the middle of a call: the writer fails unless its state is as documented."""
        with self._lock:
            if self._tail.after_error(error):
                self._shut()
                self._commit.release_all()  # this thread may have had the turn

    def _quietly(self, call: Callable[[], object]) -> None:
        """After a record was taken: it stays taken, and an error waits for the next call."""
        try:
            call()
        except AologError as error:
            with self._lock:
                if self._tail.keep_for_later(error):
                    self._shut()
                    self._background.failed()
            if not isinstance(error, LogClosed):
                notices.warn("%s: %s", self.path, error)

    def _tick(self) -> float | None:
        """Does what is due. Returns the seconds until the next look, None to sleep until woken."""
        background, tail = self._background, self._tail
        if background.is_due(Task.FLUSH):
            with self._lock:
                self._shut()  # a record that joins after the flush is to make another one due
                background.done(Task.FLUSH)  # also if it fails
            self._quietly(self.flush)
        with self._lock:
            try:
                if not may_be_retried(tail.trouble):
                    return None
                self._shut()
                if background.is_due(Task.SEAL):
                    self._cut_frame()
                for task in background.look(tail.seen(is_open=self._count > 0)):
                    self._quietly(partial(tail.do, task))
                return background.rest()
            except BaseException as error:
                self._after_error(error)
                raise

    def _sync_quietly(self) -> None:
        self._quietly(self.sync)

    def close(self) -> None:
        """Flushes, seals, syncs, releases the log. Idempotent. Raises StorageFull or StorageFailed with
        the log still open: nothing is lost, free space and call again. Raises SyncFailed, also for one
        in the writer's own threads, and UsageError if the writer failed, with the log released."""
        failure = self._close_with(self._tail.finish) if self._is_open else None
        if failure is not None:
            raise failure

    def give_up(self) -> int:
        """Instead of another `close` after StorageFull or StorageFailed: releases the log with the whole frames in
        its files, and drops the rest. The address after them: records before it are in the log, and durable up to
        `durable`; others are not: append them again. Idempotent; raises UsageError within another call only."""
        end = self._close_with(self._tail.keep_whole_frames) if self._is_open else None
        return self._tail.kept if end is None else end

    def _close_with(self, finish: Callable[[], _Result]) -> _Result | None:
        """Calls `finish` and refuses later calls, unless another thread did; releases the log."""
        self._refuse_nested()
        result = None
        with self._lock:
            try:
                if not isinstance(self._tail.trouble, LogClosed):
                    self._cut_last_frame()
                    result = finish()
                    self._begin(0, 0)
                    closed = LogClosed("the writer is closed", hint="open another", path=self.path)
                    self._tail.trouble = closed
                    self._room.notify_all()
            except BaseException as error:
                self._after_error(error)
                raise
        self._background.stop()
        self._chain.release()
        self._chain.unread.warn(at_once=True)
        self._is_open = False
        lifetime.closed(self)
        return result

    def _cut_last_frame(self) -> None:
        self._shut()
        if may_be_retried(self._tail.trouble):
            self._cut_frame()

    def _settle(self) -> None:
        """As `close`, at exit: later records are taken, and each is flushed at once."""
        self._refuse_nested()
        self._background.stop()
        with self._lock:
            self._cut_last_frame()
            failure = self._tail.finish()
            self._is_settled = failure is None
        self._chain.unread.warn(at_once=True)
        if failure is not None:
            self._close_with(lambda: None)
            raise failure

    def _after_fork_in_child(self) -> None:
        """Changes nothing of the parent's. Takes no lock: one of its threads may have held it."""
        self._new_lock()
        self._shut()
        hint = "open a Writer of its own in the child, on another log"
        forked = Forked("the writer was opened before a fork", hint=hint, path=self.path)
        self._tail.trouble = forked
        self._chain.release()
        self._is_open = False

    def __del__(self) -> None:
        if self._is_open and not self._is_settled:  # dropped: what it took is not lost
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
