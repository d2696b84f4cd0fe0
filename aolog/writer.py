"""Writer: appends to a log. Batches in memory, frames in the page cache, records on the device.

A frame's place is fixed when its first record is taken: whether another slab begins is decided
then and never at a flush. The slabs, and what is durable, are the chain's (chain.py); this is
about records, batches and who looks after them when. Errors of the writer's own thread surface at
the next call.

Order of locks: `_lock`, around everything that is appended, before the chain's own, under which
a sync waits for the device. Nobody waits for a sync under `_lock` but who seals a slab.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NoReturn, Self, SupportsIndex

from aolog import clock, lifetime, queuefka
from aolog.active import FormatOneSlab, FormatTwoSlab
from aolog.batch import load_arrow
from aolog.chain import ChainOptions, SlabChain
from aolog.checks import (
    OFFSET_BYTES,
    check_options,
    check_record,
    check_topic,
    check_values,
    too_large,
)
from aolog.columns import encode_columns
from aolog.errors import (
    AologError,
    Forked,
    LogClosed,
    RecordRefused,
    StorageError,
    SyncFailed,
    UsageError,
)
from aolog.gather import OpenBatch
from aolog.retention import Retention
from aolog.speed import Gate
from aolog.storage import Storage
from aolog.ticker import Ticker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    import numpy as np
    import pyarrow as pa

    from aolog.frame import Buffer
    from aolog.opening import Opening
    from aolog.record import Headers

__all__ = ["Writer"]

_log = logging.getLogger("aolog")

SLAB_BYTES = 64 << 20  # a file large enough that opening one is rare, small enough to prune
BATCH_BYTES = 64 << 10  # smaller frames lose the advantage of batches, larger ones lose more
FLUSH_BYTES = 256 << 10  # a write of 64 KiB at any offset costs half as much again a byte
MAX_RECORD_BYTES = 64 << 20  # keeps a hostile length from allocating; raise it for larger ones
_RETENTION_POLL_S = 0.05  # how often a blocked append looks for room
_RETRY_S = 1.0  # between attempts of the writer's own thread, after an error
_UNBOUNDED = 1 << 62  # bytes or records: more than there can be, and a machine's integer
_AGE_CHECK_S = 10.0  # how often max_age_s is looked at while nothing rolls
_NEVER_S = float("inf")


class Writer(Gate):
    """The one writer of a log.

    Creates the directory where there is none. slab_bytes, slab_seconds: a slab that has grown
    or aged past them is sealed, whichever comes first. batch_bytes: records are gathered into
    frames of about this size; 0 makes every record a frame. flush_records, flush_bytes,
    flush_seconds: how long records may wait in memory, also when nobody appends. sync: "interval"
    syncs every sync_seconds while there is something to sync, "flush" at every flush, "never"
    only when a slab is sealed. topic: the log's default destination. preallocate: fills a slab
    with zeros when it begins. first_address: where a new log begins.

    Thread-safe. In a forked child it refuses every call (Forked) and touches nothing.
    Raises LogLocked, NotALog, NewerFormat, HeaderLost, TopicMismatch, UsageError, StorageError.
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
        storage: Storage | None = None,
    ) -> None:
        check_options(
            slab_bytes=slab_bytes,
            batch_bytes=batch_bytes,
            max_record_bytes=max_record_bytes,
            sync=sync,
            format=format,
            slab_seconds=slab_seconds,
            flush_records=flush_records,
            flush_bytes=flush_bytes,
            flush_seconds=flush_seconds,
            sync_seconds=sync_seconds,
        )
        self.path = str(Path(path).absolute())  # slabs to come do not move with the process
        self._format_1 = format == "queuefka"
        if first_address < 0 or first_address >= 1 << 63 or first_address % 8:
            raise UsageError(f"first_address={first_address}", hint="a multiple of 8 below 2^63")
        if self._format_1 and (topic is not None or preallocate):
            raise UsageError("format 1 has no place for a topic or for pre-allocation")
        topic, _ = check_topic(topic)
        self.retention = retention or Retention()
        max_bytes = self.retention.max_bytes
        if max_bytes is not None and max_bytes < 2 * slab_bytes:
            raise UsageError(
                f"Retention(max_bytes={max_bytes}) leaves no room for two slabs of {slab_bytes}",
                hint="make slabs smaller or the total larger",
            )
        self._batch_bytes = batch_bytes
        self._flush_records = min(flush_records or _UNBOUNDED, _UNBOUNDED)
        self._flush_bytes = min(flush_bytes or max(batch_bytes, FLUSH_BYTES), _UNBOUNDED)
        self._flush_seconds = flush_seconds
        self._sync_policy = sync
        self._sync_seconds = sync_seconds
        self._max_record_bytes = max_record_bytes
        # Else a value below the batch's bound may be over its own.
        self._values_join = max_record_bytes >= batch_bytes and not self._format_1

        self.storage = storage or Storage()
        self._lock = threading.RLock()
        self._room = threading.Condition(self._lock)
        self._batch: OpenBatch | None = None
        self._unflushed_records = 0  # in frames; the open batch has its own
        self._flush_due_s = self._sync_due_s = self._mark_due_s = _NEVER_S
        self._age_due_s = _NEVER_S
        self._looks_s = _NEVER_S  # when the ticker looks next; inf: when it is woken
        self._ticker = Ticker(self, f"aolog-writer {self.path}")

        self._chain = SlabChain(
            self.path,
            self.storage,
            ChainOptions(
                slab_bytes=slab_bytes,
                slab_seconds=slab_seconds,
                format_1=self._format_1,
                synced=sync != "never",
                preallocate=preallocate,
                retention=self.retention,
            ),
            first_address=first_address,
            topic=topic,
        )
        lifetime.opened(self)
        self._is_open = True
        if self.retention.max_age_s is not None:
            self._age_due_s = time.monotonic() + _AGE_CHECK_S
            self._wake_in_time()

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
        """Address behind everything appended, memory included. A new record's is not below."""
        with self._lock:
            return self._end

    @property
    def _end(self) -> int:
        """At least behind what the thread that asks has appended; the lock makes it exact."""
        batch = self._batch
        return self._chain.end if batch is None else batch.address + len(batch.values)

    @property
    def durable(self) -> int:
        """Everything before this address survives power loss."""
        return self._chain.durable

    _trouble: AologError | None = None  # what the next call has to face; set by `_meet`

    def _meet(self, error: AologError | None) -> None:
        with self._lock:  # else who lets values join just now opens what is closed here
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

    # --- appending --------------------------------------------------------------------------

    # `append` is Gate's: a value joins the open batch, anything else comes to `_append`.

    def _append(
        self,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Headers = (),
        timestamp: SupportsIndex | None = None,
        topic: str | None = None,
    ) -> int:
        with self._lock:
            if self._trouble is not None:
                self._face_trouble()
            value, key, headers, moment, topic, size = check_record(
                value, key, headers, timestamp, topic
            )
            if size - OFFSET_BYTES > self._max_record_bytes:  # the value's: it is always there
                raise too_large(size - OFFSET_BYTES, self._max_record_bytes)
            if self._format_1:
                address = self._append_format_1(value, key, headers, moment, topic)
            else:
                address = self._gather(value, key, headers, moment, topic, size)
            target = self._flush_or_let_values_join()
        if target:
            self._quietly(lambda: self._sync_to(target))
        return address

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
        if batch is None:
            batch = self._begin_batch()
        address = batch.address + len(batch.values)
        batch.add(value, key, headers, moment, topic, size)
        if batch.size >= self._batch_bytes:
            self._cut_batch()
        return address

    def append_many(self, values: Iterable[bytes | None]) -> np.ndarray:
        """Takes values as one frame, whatever its size: readers see all of them or none. Their
        addresses, uint64. Durability and errors as for `append`; none is taken on an error. (Format
        1 has no batches: there each value is a frame, and an error may come between two.)"""
        import numpy as np

        listed = check_values(values, self._max_record_bytes)
        columns, parts = encode_columns(listed) if listed and not self._format_1 else (0, [])
        with self._lock:
            if self._trouble is not None:
                self._face_trouble()
            if not listed:
                return np.empty(0, np.uint64)
            if self._format_1:
                for value in listed:
                    _refuse_format_1(value, None, (), None, None)
                addresses = np.array(
                    [self._append_format_1(v, None, (), None, None) for v in listed], np.uint64
                )
            else:
                first = self._add_frame(len(listed), columns, parts, clock.now_us())
                addresses = np.arange(first, first + len(listed), dtype=np.uint64)
            target = self._flush_or_let_values_join()
        if target:
            self._quietly(lambda: self._sync_to(target))
        return addresses

    def append_arrow(self, record_batch: pa.RecordBatch) -> np.ndarray:
        """Takes a batch of columns as one frame: `value` and, optional, `key`, `headers`,
        `timestamp`, `topic`, as `Batch.to_arrow` makes them (`address` is ignored). Their
        addresses, uint64. Durability and errors as for `append`; none is taken on an error."""
        import numpy as np

        taken = load_arrow().from_arrow(record_batch, self._max_record_bytes, clock.now_us())
        with self._lock:
            if self._trouble is not None:
                self._face_trouble()
            if self._format_1:
                raise RecordRefused("format 1 has no columns", hint="use append_many")
            if taken.records == 0:
                return np.empty(0, np.uint64)
            first = self._add_frame(
                taken.records,
                taken.columns,
                taken.parts,
                taken.greatest_us,
                least_us=taken.least_us,
            )
            target = self._flush_or_let_values_join()
        if target:
            self._quietly(lambda: self._sync_to(target))
        return np.arange(first, first + taken.records, dtype=np.uint64)

    def _add_frame(
        self,
        count: int,
        columns: int,
        parts: list[Buffer],
        timestamp_us: int,
        least_us: int | None = None,
    ) -> int:
        """A frame of its own; the open batch becomes one before it."""
        self._cut_batch()
        slab = self._slab_for_next()
        self._cut_batch()  # begun by another thread while this one waited for room
        address = slab.add_records(
            count,
            columns,
            parts,
            timestamp_us=timestamp_us,
            least_us=least_us,
            durable=self._chain.durable == slab.base + slab.offset,
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
        payload = _refuse_format_1(value, key, headers, timestamp, topic)
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
        """The batch that the next record joins."""
        slab = self._slab_for_next()
        if self._batch is not None:  # begun by another thread while this one waited for room
            self._close_batch_to_values()
            return self._batch
        self._batch = batch = OpenBatch(slab.base + slab.offset, clock.now_us())
        self._arm()
        return batch

    def _slab_for_next(self) -> FormatTwoSlab:
        """The slab that takes the next frame: decided here, when the frame's place is fixed."""
        if self._chain.is_over:
            self._roll()
        slab = self._chain.slab
        assert isinstance(slab, FormatTwoSlab)
        return slab

    def _cut_batch(self) -> None:
        """The open batch becomes a frame, in memory."""
        self._close_gate()
        batch, slab = self._batch, self._chain.slab
        if batch is None or not batch.values:  # its first record was interrupted
            self._batch = None
            return
        assert isinstance(slab, FormatTwoSlab)
        count, stamps = len(batch.values), batch.timestamps
        columns, parts = batch.encode()
        address = slab.add_records(
            count,
            columns,
            parts,
            timestamp_us=batch.greatest_us,
            least_us=None if stamps is None else min(stamps),
            durable=self._chain.durable == batch.address,
        )
        self._batch = None  # nothing is called in between: a signal's handler may raise
        self._unflushed_records += count
        assert address == batch.address

    # --- flush and sync ---------------------------------------------------------------------

    def flush(self) -> int:
        """Everything appended is in the operating system on return: it survives a crash of the
        process, not of the machine. The end address. Raises StorageFull, StorageFailed: nothing
        is lost, call again."""
        with self._lock:
            if self._trouble is not None:
                self._face_trouble()
            if self._sync_policy != "flush":
                self._flush_locked()
                return self._chain.end
            end = self.end
        return self._sync_to(end)

    def sync(self) -> int:
        """Everything appended is on the device on return: it survives power loss. The durable
        address. Concurrent callers share one frame, one write and one fdatasync. Raises
        SyncFailed: see `durable`, and what `flush` raises."""
        if self._trouble is not None:
            with self._lock:
                self._face_trouble()
        return self._sync_to(self._end)

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
        slab, batch = self._chain.slab, self._batch
        waiting = 0 if slab is None else slab.offset - slab.written
        records = self._unflushed_records
        if batch is not None:
            waiting += batch.size
            records += len(batch.values)
        if waiting >= self._flush_bytes or records >= self._flush_records:
            if self._sync_policy == "flush":
                return self._end
            self._quietly(self._flush_locked)
        elif batch is not None and batch.plain and self._trouble is None and self._values_join:
            limit = self._flush_bytes - waiting + batch.size
            limit = min(limit, self._batch_bytes)
            most = self._flush_records - self._unflushed_records - 1
            self._open_gate(batch.values, batch.address, batch.size, limit, most, OFFSET_BYTES)
        return 0

    def _quietly(self, call: Callable[[], object]) -> None:
        """What was taken stays taken: an error waits for the next call."""
        try:
            call()
        except AologError as error:
            if isinstance(error, StorageError):  # others are met again where they arise
                self._meet(self._trouble or error)
            _log.warning("%s: %s", self.path, error)

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

    # --- the writer's own thread ------------------------------------------------------------

    def _arm(self) -> None:
        """Something waits: the ticker is to look after it."""
        if self._flush_seconds is not None:
            due_s = time.monotonic() + self._flush_seconds
            self._flush_due_s = min(self._flush_due_s, due_s)
        self._mark_due_s = _NEVER_S
        if self._flush_due_s < self._looks_s:
            self._wake_in_time()

    def _wake_in_time(self) -> None:
        """The ticker may sleep for longer than what is due now allows."""
        due_s = self._next_due_s()
        if due_s < self._looks_s:
            self._looks_s = due_s
            self._ticker.wake()

    def _next_due_s(self) -> float:
        due_s = min(self._flush_due_s, self._sync_due_s, self._mark_due_s, self._age_due_s)
        if self._batch is None and self._chain.has_frames:
            due_s = min(due_s, self._chain.aged_at_s)
        return due_s

    def _tick(self) -> float | None:
        now = time.monotonic()
        with self._lock:
            if self._trouble is not None and not isinstance(self._trouble, StorageError):
                return None
            if isinstance(self._trouble, SyncFailed):
                return None
            is_due, end = now >= self._flush_due_s, self.end
            if is_due:
                self._flush_due_s = _NEVER_S
                if self._sync_policy != "flush":
                    self._quietly(self._flush_locked)
        if is_due and self._sync_policy == "flush":
            self._quietly(lambda: self._sync_to(end))
        with self._lock:
            if is_due and self._trouble is not None:
                self._flush_due_s = min(self._flush_due_s, now + _RETRY_S)
            self._tick_slab(now)
            written = self._chain.written
            unsynced = self._sync_policy == "interval" and self._chain.durable < written
            if not unsynced:  # by a call of the user's, for instance
                self._sync_due_s = _NEVER_S
        if unsynced and now >= self._sync_due_s:
            self._quietly(lambda: self._sync_and_forget(written))
        with self._lock:
            self._tick_mark(now)
            self._looks_s = due_s = self._next_due_s()
            return None if due_s == _NEVER_S else max(0.0, due_s - time.monotonic())

    def _sync_and_forget(self, target: int) -> None:
        self._sync_due_s = _NEVER_S
        self._sync_to(target)

    def _tick_slab(self, now: float) -> None:
        """Seals an aged slab, lets go what is too old."""
        chain = self._chain
        if chain.is_aged and self._batch is None:
            self._quietly(self._end_slab)
            chain.aged_at_s = _NEVER_S if chain.slab is None else now + _RETRY_S
        if now >= self._age_due_s:
            self._age_due_s = now + _AGE_CHECK_S
            chain.let_go()

    def _tick_mark(self, now: float) -> None:
        """A mark once everything is durable and nothing came for a while."""
        slab = self._chain.slab
        if (
            self._trouble is not None
            or self._batch is not None
            or not isinstance(slab, FormatTwoSlab)
            or slab.marked
            or self._chain.durable != self._chain.end
        ):
            self._mark_due_s = _NEVER_S
        elif self._mark_due_s == _NEVER_S:
            self._mark_due_s = now + self._sync_seconds
        elif now >= self._mark_due_s:
            slab.add_mark(clock.now_us())
            self._quietly(slab.write_pending)
            self._mark_due_s = _NEVER_S
            if self._sync_policy == "interval":
                self._sync_due_s = now

    # --- closing ----------------------------------------------------------------------------

    def close(self) -> None:
        """Flushes, seals, syncs, gives the log free. Idempotent. Raises StorageFull or
        StorageFailed with the log still open: nothing is lost, free space and call again. Raises
        SyncFailed, also for one that the writer's own thread met, with the log given free."""
        if isinstance(self._trouble, LogClosed | Forked):
            return
        self._ticker.stop()
        with self._lock:
            if isinstance(self._trouble, LogClosed):  # by another thread meanwhile
                return
            try:
                if self._trouble is not None:
                    self._face_trouble()
                self._flush_locked()
                self._end_slab()
            except SyncFailed:
                self._release()  # the slab as it is: the next writer recovers it
                raise
            except StorageError:
                self._ticker = Ticker(self, f"aolog-writer {self.path}")
                self._looks_s = _NEVER_S
                raise
            self._release()

    def _release(self) -> None:
        self._chain.release()
        self._meet(LogClosed("the writer is closed", hint="open another", path=self.path))
        self._room.notify_all()
        self._is_open = False
        lifetime.closed(self)

    def after_fork_in_child(self) -> None:
        """Called by `lifetime` in a forked child: the parent's file, buffers and lock are none
        of ours. Takes no lock: a thread of the parent's may have held it at the fork."""
        self._lock = threading.RLock()
        self._batch = None
        self._chain.release()
        self._is_open = False
        self._meet(
            Forked(
                "the writer was opened before a fork",
                hint="open a Writer of its own in the child, on another log",
                path=self.path,
            )
        )

    def __del__(self) -> None:
        if self._is_open:  # dropped without being closed: what it took is not lost
            lifetime.close_quietly(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Writer cannot be pickled or copied: a log has one")

    def __repr__(self) -> str:
        return f"<aolog.Writer {self.path} end={self.end} durable={self.durable}>"


def _refuse_format_1(
    value: bytes | None,
    key: bytes | None,
    headers: Headers,
    timestamp: int | None,
    topic: str | None,
) -> bytes:
    refused = queuefka.refusal(value, key, headers, timestamp, topic)
    if refused is not None:
        raise refused
    assert value is not None
    return value
