"""Writer: appends to a log. Batches in memory, frames in the page cache, records on the device.

This is what a user calls, and how a writer begins and ends. What becomes of records is in
appending.py, what the writer's own threads do in background.py, slabs and what is durable in
rolling.py. Errors of the writer's own threads surface at the next call.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NoReturn, Self, SupportsIndex

from aolog.errors import (
    Forked,
    LogClosed,
    RecordRefused,
    SyncFailed,
    UsageError,
    load_optional,
    nested_call,
)
from aolog.format.columns import encode_columns
from aolog.format.compression import packer
from aolog.log import lifetime
from aolog.log.retention import check_retention
from aolog.storage import clock
from aolog.storage.storage import DIRECTORY_MODE, Storage, absolute
from aolog.write.appending import BATCH_BYTES, refuse_format_1
from aolog.write.background import Upkeep
from aolog.write.record_columns import columns_of
from aolog.write.rolling import ChainOptions, SlabChain
from aolog.write.validate import (
    OFFSET_BYTES,
    check_mode,
    check_options,
    check_record,
    check_topic,
    check_values,
    too_large,
)

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Mapping

    import numpy as np
    import pyarrow as pa

    from aolog.format.compression import Compression
    from aolog.format.frame import Buffer
    from aolog.log.retention import Retention
    from aolog.record import Gap, Headers
    from aolog.write.arrow import ArrowFrame
    from aolog.write.opening import Opening
    from aolog.write.record_columns import RecordColumns

__all__ = ["Writer", "append_body"]

SLAB_BYTES = 64 << 20  # a file large enough that opening one is rare, small enough to prune
MAX_RECORD_BYTES = 64 << 20  # keeps a hostile length from allocating; raise it for larger ones


class Writer(Upkeep):
    """The one writer of a log.

    Creates the directory where there is none. slab_bytes, slab_seconds: a slab that has grown
    or aged past them is sealed, whichever comes first. batch_bytes: records are gathered into
    frames of about this size; 0 makes every record a frame. flush_records, flush_bytes,
    flush_seconds: how long records may wait in memory, also when nobody appends. sync: "interval"
    syncs every sync_seconds while there is something to sync, "flush" at every flush, "never"
    only when a slab is sealed. topic: the log's default destination. preallocate: fills a slab
    with zeros when it begins. first_address: where a new log begins. compression: of frames' bodies,
    by the extra `compression`; compression_level: zstd's 1 to 22 (1 unless given), or lz4's 1 to 12
    for its slow mode. Small bodies, and such that do not shrink, are stored as they are. mode: of the
    log's directory, and of those above it, if they are created; whatever the umask. A directory that
    is there keeps its mode. Files in the log have their directory's bits for reading and writing.

    Thread-safe. Where the system gives no thread, each append flushes and syncs for itself, as the
    policy says, until one is to be had. In a forked child it refuses every call (Forked) and
    touches nothing. A signal's handler, or a finalizer, that calls it in the middle of another call
    is refused (UsageError). Raises LogLocked, NotALog, NewerFormat, HeaderLost, TopicMismatch, UsageError, StorageError,
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
        check_mode(mode)
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
        self.path = absolute(path)  # slabs to come do not move with the process
        self._format_1 = format == "queuefka"
        if first_address < 0 or first_address >= 1 << 63 or first_address % 8:
            raise UsageError(f"first_address={first_address}", hint="a multiple of 8 below 2^63")
        if self._format_1 and (topic is not None or preallocate):
            raise UsageError("format 1 has no place for a topic or for pre-allocation")
        if self._format_1 and compression != "none":
            raise UsageError(
                "format 1 has no compression", hint='use format="aolog", or compression="none"'
            )
        topic, _ = check_topic(topic)
        self._retention = check_retention(retention)
        max_bytes = self._retention.max_bytes
        if max_bytes is not None and max_bytes < 2 * slab_bytes:
            raise UsageError(
                f"Retention(max_bytes={max_bytes}) leaves no room for two slabs of {slab_bytes}",
                hint="make slabs smaller or the total larger",
            )
        super().__init__(
            format_1=self._format_1,
            batch_bytes=batch_bytes,
            flush_records=flush_records,
            flush_bytes=flush_bytes,
            sync=sync,
            sync_seconds=sync_seconds,
            max_record_bytes=max_record_bytes,
            pack=packer(compression, compression_level),
        )
        self._begin_upkeep(flush_seconds)
        self._storage = storage or Storage()
        self._chain = SlabChain(
            self.path,
            self._storage,
            ChainOptions(
                slab_bytes=slab_bytes,
                slab_seconds=slab_seconds,
                format_1=self._format_1,
                synced=sync != "never",
                preallocate=preallocate,
                compressed=compression != "none",
                retention=self._retention,
            ),
            first_address=first_address,
            topic=topic,
            mode=mode,
        )
        lifetime.opened(self, self._storage.system, Writer._after_fork_in_child)
        self._is_open = True
        if self._retention.max_age_s is not None:
            self._look_after_age()

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
    def durable(self) -> int:
        """Everything before this address survives power loss."""
        return self._chain.durable

    @property
    def pruned_unread(self) -> Mapping[str, Gap]:
        """The records that this writer's retention removed although a protecting cursor had not
        read them, by cursor: only `Retention(max_bytes=…, when_full="prune")` does so."""
        return self._chain.unread.total

    def _refuse_nested(self) -> None:
        if self._is_locked():
            raise nested_call()
        if self._alone:  # what is appended within a sync would be flushed by nobody
            self._chain.refuse_nested()

    # --- appending --------------------------------------------------------------------------

    # `append` is Gate's: a value joins the open batch, or comes to `_append_value`, anything else
    # to `_append`.

    def _append_value(self, value: bytes) -> int:
        self._refuse_nested()
        with self._lock:
            if self._trouble is not None:
                self._face_trouble()
            if len(value) > self._max_record_bytes:
                raise too_large(len(value), self._max_record_bytes)
            if self._format_1:
                address = self._append_format_1(value, None, (), None, None)
            else:
                address = self._gather(value, None, (), None, None, len(value) + OFFSET_BYTES)
            target = self._flush_or_let_values_join()
        if target:
            self._quietly(self._sync_to, target)
        return address

    def _append(
        self,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Headers = (),
        timestamp: SupportsIndex | None = None,
        topic: str | None = None,
    ) -> int:
        self._refuse_nested()
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
            self._quietly(self._sync_to, target)
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
        headers, timestamps, topics: an entry for each value, as for `append`. Their addresses,
        uint64. Durability and errors as for `append`; none is taken on an error. (Format 1 has no
        batches: there each value is a frame, and an error may come between two.)"""
        import numpy as np

        self._refuse_nested()
        if any(column is not None for column in (keys, headers, timestamps, topics)):
            body = columns_of(
                values, keys, headers, timestamps, topics,
                max_record_bytes=self._max_record_bytes, now_us=clock.now_us(),
            )  # fmt: skip  # passed on as they are
            return self._append_columns(body)
        listed = check_values(values, self._max_record_bytes)
        if listed and not self._format_1:
            columns, parts = encode_columns(listed)
            codec, parts = self._pack(len(listed), parts)  # others append meanwhile
        with self._lock:
            if self._trouble is not None:
                self._face_trouble()
            if not listed:
                return np.empty(0, np.uint64)
            if self._format_1:
                for value in listed:
                    refuse_format_1(value, None, (), None, None)
                addresses = np.array(
                    [self._append_format_1(v, None, (), None, None) for v in listed], np.uint64
                )
            else:
                now_us = clock.now_us()
                first = self._add_frame(len(listed), columns, codec, parts, now_us, now_us)
                addresses = np.arange(first, first + len(listed), dtype=np.uint64)
            target = self._flush_or_let_values_join()
        if target:
            self._quietly(self._sync_to, target)
        return addresses

    def append_arrow(self, record_batch: pa.RecordBatch) -> np.ndarray:
        """Takes a batch of columns as one frame: `value` and, optional, `key`, `headers`,
        `timestamp`, `topic`, as `Batch.to_arrow` makes them (`address` is ignored). Their
        addresses, uint64. Durability and errors as for `append`; none is taken on an error."""
        self._refuse_nested()
        taken = load_optional("aolog.write.arrow").from_arrow(
            record_batch, self._max_record_bytes, clock.now_us()
        )
        return self._append_columns(taken)

    def _append_columns(self, taken: ArrowFrame | RecordColumns) -> np.ndarray:
        import numpy as np

        codec, parts = self._pack(taken.records, taken.parts)
        first = self._append_body(
            taken.records, taken.columns, codec, parts, taken.greatest_us, taken.least_us
        )
        return np.arange(first, first + taken.records, dtype=np.uint64)

    def _append_body(
        self,
        records: int,
        columns: int,
        codec: int,
        parts: list[Buffer],
        greatest_us: int,
        least_us: int,
    ) -> int:
        """Takes what is a frame's body already, its columns' bits and its codec with it; the address
        of the first of its records, whose timestamps lie between the two. Nothing is checked: for
        `append_arrow`, and for frames that go to another log as they are."""
        with self._lock:
            if self._trouble is not None:
                self._face_trouble()
            if self._format_1:
                raise RecordRefused("format 1 has no columns", hint="use append_many")
            if records == 0:
                return self._end
            first = self._add_frame(records, columns, codec, parts, greatest_us, least_us)
            target = self._flush_or_let_values_join()
        if target:
            self._quietly(self._sync_to, target)
        return first

    # --- flush and sync ---------------------------------------------------------------------

    def flush(self) -> int:
        """Everything appended is in the operating system on return: it survives a crash of the
        process, not of the machine. The end address. Raises StorageFull, StorageFailed: nothing
        is lost, call again."""
        self._refuse_nested()
        with self._lock:
            if self._trouble is not None:
                self._face_trouble()
            if self._sync_policy != "flush":
                self._flush_locked()
                if not self._alone or self._sync_policy == "never":
                    return self._chain.end
            end = self.end
        return self._sync_to(end)

    def sync(self) -> int:
        """Everything appended is on the device on return: it survives power loss. The durable
        address. Concurrent callers share one frame, one write and one fdatasync. Raises
        SyncFailed: see `durable`, and what `flush` raises."""
        self._refuse_nested()
        if self._trouble is not None:
            with self._lock:
                self._face_trouble()
        return self._sync_to(self._end)

    # --- closing ----------------------------------------------------------------------------

    def close(self) -> None:
        """Flushes, seals, syncs, gives the log free. Idempotent. Raises StorageFull or
        StorageFailed with the log still open: nothing is lost, free space and call again. Raises
        SyncFailed, also for one that a thread of the writer's own met, with the log given free."""
        if self._is_over():
            return
        self._refuse_nested()
        self._chain.refuse_nested()  # a thread of the writer's own may wait for this one's sync
        try:
            self._end_ticking()
            with self._lock:
                if isinstance(self._trouble, LogClosed):  # by another thread meanwhile
                    return
                if self._trouble is not None:
                    self._face_trouble()
                self._flush_locked()
                self._end_slab()
                self._release()
        except BaseException as error:
            with self._lock:
                if isinstance(error, SyncFailed):
                    self._release()  # the slab as it is: the next writer recovers it
                elif not isinstance(self._trouble, LogClosed | Forked):
                    self._begin_ticking()  # it is open: what it takes is flushed in time
            raise

    def give_up(self) -> int:
        """Instead of `close`, where that raises StorageFull or StorageFailed and nobody will call
        it again: gives the log free with the whole frames that are in its files, and drops what is
        in memory only. The address behind those frames: records before it are in the log, and
        durable if `durable` says so; others are not, and may be appended again. Idempotent; never
        raises."""
        if self._is_over():
            return self._chain.durable
        self._end_ticking()
        with self._lock:
            if isinstance(self._trouble, LogClosed | Forked):
                return self._chain.durable
            self._close_gate()
            self._batch = None
            end = self._chain.keep_whole_frames()
            self._release()
            return end

    def _is_over(self) -> bool:
        """Whether it was closed, or forked. Gives free what a close that was interrupted left."""
        if not isinstance(self._trouble, LogClosed | Forked):
            return False
        if self._is_open and not self._is_locked():
            with self._lock:
                if self._is_open:
                    self._release()
        return True

    def _release(self) -> None:
        """With the lock. Where it is interrupted nothing is taken any more; call it again."""
        self._meet(LogClosed("the writer is closed", hint="open another", path=self.path))
        self._tell_to_end()
        self._chain.release()
        self._chain.unread.warn(at_once=True)
        self._room.notify_all()
        self._is_open = False
        lifetime.closed(self)

    def _after_fork_in_child(self) -> None:
        """Called by `lifetime` in a forked child: the parent's file, buffers and lock are none
        of ours. Takes no lock: a thread of the parent's may have held it at the fork."""
        self._take_lock()
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
        match self._trouble:
            case LogClosed():
                state = "closed,"
            case Forked():
                state = "forked,"
            case _:
                state = f"end={self.end}"
        return f"<aolog.Writer {self.path} {state} durable={self.durable}>"


def append_body(
    writer: Writer,
    records: int,
    columns: int,
    codec: int,
    parts: list[Buffer],
    greatest_us: int,
    least_us: int,
) -> int:
    """Internal: `Writer._append_body`, for copies of logs."""
    return writer._append_body(  # noqa: SLF001 -- the same module
        records, columns, codec, parts, greatest_us, least_us
    )
