"""The growing end of a log: records become batches, batches frames, frames bytes on the device.

    add ─► OpenBatch ─► frame ─► active slab (memory) ─► flush ─► file ─► datasync ─► device

A frame's place is fixed when its first record is taken: `make_room` decides which slab it goes to,
before that record, and never a flush. The caller holds the writer's lock in every call but
`datasync`, and its gate is shut: nobody else adds values to the open batch.

A sync takes long, and appends go on meanwhile. So its caller takes the device while it still holds the
writer's lock, and releases it after `datasync`: no slab is closed under a sync. Never take the
writer's lock while holding the device.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from aolog import errors as notices
from aolog.errors import (
    AologError,
    Forked,
    LogClosed,
    StorageError,
    StorageFull,
    SyncFailed,
    UsageError,
)
from aolog.format.compression import packer
from aolog.storage import clock
from aolog.write.active_slab import FormatTwoSlab
from aolog.write.open_batch import OpenBatch
from aolog.write.options import FLUSH_BYTES, UNBOUNDED
from aolog.write.validate import OFFSET_BYTES

if TYPE_CHECKING:
    from aolog.format.frame import Buffer
    from aolog.write.active_slab import ActiveSlab
    from aolog.write.open_batch import Body
    from aolog.write.options import WriterOptions
    from aolog.write.slab_chain import SlabChain
    from aolog.write.validate import CheckedRecord


class LogTail:
    """See the module. batch: the open one. durable: every byte before this address survives power loss.
    trouble: what the next call of the writer has to raise. failed: the sync that failed, after which
    nothing is synced."""

    def __init__(self, chain: SlabChain, options: WriterOptions) -> None:
        self.batch: OpenBatch | None = None
        self._unflushed_records = 0  # in frames that are not written
        self.durable = chain.end
        self.trouble: AologError | None = None
        self.failed: SyncFailed | None = None
        self._device = threading.Lock()
        self._chain = chain
        self._options = options
        # Every record of format 1 is a frame.
        self.batch_bytes = 0 if options.format_1 else options.batch_bytes
        self._pack = packer(options.compression, options.compression_level)
        # 0: otherwise the gate, which does not check max_record_bytes, could accept an oversized record.
        self._gate_bytes = self.batch_bytes if self.batch_bytes <= options.max_record_bytes else 0
        # How much may wait in memory.
        self._flush_bytes = options.flush_bytes or max(options.batch_bytes, FLUSH_BYTES)
        self._flush_records = options.flush_records or UNBOUNDED

    @property
    def end(self) -> int:
        """The address after everything appended."""
        batch = self.batch
        return self._chain.end if batch is None else batch.address + len(batch.values)

    # --- records into batches, batches into frames ----------------------------------------------

    def make_room(self, *, end_slab: bool = False) -> bool:
        """No batch is open, and the slab has room for a frame, on return. end_slab: begins another
        one though this one is not full. False: retention has no room for a slab; call again later.
        Raises RetentionFull, StorageError; then call again."""
        if self.batch is not None:
            self.cut_batch()
        chain = self._chain
        slab = chain.slab
        if slab is not None:
            if not end_slab and slab.offset < slab.full_at:
                return True
            self.end_slab()
        try:
            if not chain.begin_slab():
                return False
        except SyncFailed as error:
            raise self._fail(error) from error
        self.durable = chain.end
        return True

    def add(self, record: CheckedRecord) -> int:
        """Takes a record into the open batch, which has room for it, or into a new one after
        `make_room`. Returns its address."""
        batch = self.batch
        if batch is None:
            now_us, slab = clock.now_us(), self._chain.slab
            assert slab is not None
            value, size = record[0], record[5]
            if size >= self.batch_bytes and value is not None and size == len(value) + OFFSET_BYTES:
                # Only a value, and a batch by itself: a frame at once takes half the time.
                codec = 0
                parts: list[Buffer] = [value]
                if self._pack is not None:
                    codec, parts = self._pack(1, parts)
                self._unflushed_records += 1
                return slab.add_records(1, 0, codec, parts, now_us, now_us, self.durable)
            self.batch = batch = OpenBatch(slab.base + slab.offset, now_us)
        address = batch.add(record)
        if batch.size >= self.batch_bytes:
            self.cut_batch()
        return address

    def add_frame(self, body: Body) -> range:
        """Adds a frame after `make_room`. Returns its records' addresses."""
        slab = self._chain.slab
        assert slab is not None
        address = slab.add_records(*body, self.durable)
        self._unflushed_records += body.records
        return range(address, address + body.records)

    def cut_batch(self) -> None:
        """The open batch becomes a frame, in memory."""
        batch, slab = self.batch, self._chain.slab
        if batch is None:
            return
        assert slab is not None
        body = batch.encode()
        if self._pack is not None:  # under the lock: the next address depends on it
            body = body.packed(self._pack)
        address = slab.add_records(*body, self.durable)
        assert address == batch.address
        self.batch = None
        self._unflushed_records += body.records

    # --- when a flush is due ----------------------------------------------------------------------

    def is_due(self, size: int) -> bool:
        """Whether a flush is due before a record of this size is taken."""
        return self._chain.unwritten + size >= self._flush_bytes

    def gate(self) -> tuple[list[bytes | None], int, int, int, int, int]:
        """What `Gate._open_gate` takes: values may join the open batch until something is due."""
        batch = self.batch
        assert batch is not None
        limit = min(self._flush_bytes - self._chain.unwritten, self._gate_bytes)
        most = self._flush_records - self._unflushed_records - 1
        return batch.values, batch.address, batch.size, limit, most, OFFSET_BYTES

    def must_flush(self) -> bool:
        """Whether a flush is due."""
        batch, slab, records = self.batch, self._chain.slab, self._unflushed_records
        waiting = 0 if slab is None else slab.offset - slab.written
        if batch is not None:
            waiting += batch.size
            records += len(batch.values)
        return waiting >= self._flush_bytes or records >= self._flush_records

    # --- frames into the file, and onto the device -------------------------------------------------

    def flush(self) -> None:
        """Everything is in the page cache on return. On a full disk it prunes what retention lets it
        and tries again. After StorageError: call again."""
        self.cut_batch()
        slab = self._chain.slab
        if slab is not None:
            try:
                slab.write_pending()
            except StorageFull:
                if not self._chain.prune_now(for_slab=True):
                    raise
                slab.write_pending()
        self._unflushed_records = 0

    def take_device(self) -> tuple[ActiveSlab, int] | None:
        """For `sync_written`: the slab and the end of what is written of it, with the device held; None if
        there is no slab. Raises StorageError, without the device."""
        slab = self._chain.slab
        if slab is None:
            return None
        if slab.written > slab.zeros_end:
            slab.fill_ahead()
        self._device.acquire()
        return slab, slab.base + slab.written

    def sync_written(self, slab: ActiveSlab, end: int) -> None:
        """After `take_device`: as `datasync`, and releases the device. The caller holds no other lock."""
        try:
            self.datasync(slab, end)
        finally:
            self._device.release()

    def datasync(self, slab: ActiveSlab, end: int) -> None:
        """What was written of the slab, up to the address `end`, is on the device on return. The
        caller holds the device. Raises SyncFailed, then and ever after."""
        if self.failed is not None:  # the system reports it once: a second call would succeed
            raise self.failed
        try:
            slab.file.datasync()
        except SyncFailed as error:
            raise self._fail(error) from error
        if self.durable < end:  # noqa: PLR1730 -- max() takes ten times as long
            self.durable = end

    def _fail(self, error: SyncFailed) -> SyncFailed:
        self.failed = SyncFailed(
            f"{error.reason}: appends are refused, everything before address {self.durable} is "
            "durable",
            hint="check the device, then open the log again",
            path=self._chain.path,
            durable=self.durable,
        )
        return self.failed

    def end_slab(self) -> None:
        """Flushes, syncs, seals the slab, syncs the seal. After StorageError: call again."""
        self.flush()
        slab = self._chain.slab
        if slab is None:
            return
        with self._device:
            self.datasync(slab, slab.base + slab.offset)
            slab.seal(clock.now_us())
            if self.durable < slab.base + slab.offset:
                self.datasync(slab, slab.base + slab.offset)
            self._chain.close_slab(slab)

    def finish(self) -> BaseException | None:
        """Ends the slab, for a writer that closes. What `close` has to raise although it is over: the
        slab stays as it is then, and the next writer recovers it. Raises StorageFull, StorageFailed;
        then nothing is over, call again."""
        try:
            self.refuse()
            self.end_slab()
        except BaseException as error:
            if may_be_retried(error) or isinstance(self.trouble, Forked):
                raise
            return error
        return None

    def keep_whole_frames(self) -> int:
        """For a writer that cannot write what is pending: cuts the file after its last whole frame,
        durably, so that half a frame is no torn tail and costs no address. The address there: records
        before it are in the log. Errors are logged and leave `durable` as it was."""
        self.batch = None
        slab, end = self._chain.slab, self.durable
        if slab is None or not may_be_retried(self.trouble):
            return end
        try:
            # What was written is never cut, even if the device has damaged it since.
            end = max(self._chain.end_of_whole_frames(slab.base), slab.base + slab.written)
            with self._device:
                slab.file.truncate(end - slab.base)
                self.datasync(slab, end)
        except AologError as error:
            notices.warn("%s: %s", self._chain.path, error)
        return end

    # --- what keeps the writer from going on ----------------------------------------------------------

    def refuse(self) -> None:
        """Raises the trouble, if there is any. A failed write is tried again first."""
        trouble = self.trouble
        if trouble is None:
            return
        if not may_be_retried(trouble):
            raise type(trouble)(trouble.reason, hint=trouble.hint, **trouble.details)
        self.trouble = None
        try:
            self.flush()
        except StorageError as error:
            self.trouble = error
            raise

    def after_error(self, error: BaseException) -> bool:
        """After an exception in the middle of a call. Returns whether the writer failed. An AologError
        leaves the state as documented, unless it is SyncFailed or comes from a signal handler that
        interrupted the call."""
        if isinstance(error, AologError) and not error.details.get("nested"):
            if not isinstance(error, SyncFailed):
                return False
            failure: AologError = error
        else:
            failure = UsageError(
                f"the writer failed: {error!r} interrupted a call",
                hint="close it and open the log again, which recovers it",
                path=self._chain.path,
            )
        if not isinstance(self.trouble, LogClosed | Forked):
            self.trouble = failure
        return True

    def keep_for_later(self, error: AologError) -> bool:
        """After an error in a call that nobody waits for. Returns whether the next call raises it."""
        if error.details.get("nested"):
            raise error
        if not isinstance(error, StorageError):  # others arise again where they came from
            return False
        self.trouble = self.trouble or error
        return True

    def end_with(self, error: AologError) -> None:
        """From now on every call raises this; what is in memory is dropped."""
        self.trouble = error
        self.batch = None

    # --- the mark ----------------------------------------------------------------------------------

    @property
    def lacks_mark(self) -> bool:
        """Whether a mark is to follow the last frame, once everything is durable."""
        slab = self._chain.slab
        return slab is not None and slab.lacks_mark and self.batch is None

    def write_mark(self) -> None:
        """Writes a mark: everything before it is durable. After StorageError: call `flush`."""
        slab = self._chain.slab
        assert isinstance(slab, FormatTwoSlab)
        slab.add_mark(clock.now_us())
        self.flush()


def may_be_retried(trouble: BaseException | None) -> bool:
    """Whether the state is as documented: there is no trouble, or a write failed, whose bytes are
    written again."""
    is_storage = isinstance(trouble, StorageError) and not isinstance(trouble, SyncFailed)
    return trouble is None or is_storage
