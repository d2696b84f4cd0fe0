"""The growing end of a log: frames in the slab that grows, and their way onto the device.

    slab (memory) ─► flush ─► file ─► datasync ─► device

`make_room` decides which slab a frame belongs to, before its first record is taken; a flush never
does. The caller holds the writer's lock in every call but `datasync` and `sync_written`, and has cut the
open frame, which the tail does not know.

A sync takes long, and appends go on meanwhile. So its caller takes the device while it still holds the
writer's lock, and releases it after `datasync`: no slab is closed under a sync. Never take the
writer's lock while holding the device.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from aolog import errors as notices
from aolog.errors import (
    AologError,
    CallInterrupted,
    Forked,
    LogClosed,
    SlabLost,
    StorageError,
    StorageFull,
    SyncFailed,
)
from aolog.format.native.inlet import Lock
from aolog.format.slab import ADDRESS_END, MAGIC, slab_name
from aolog.log.interruption import is_own, pass_on
from aolog.storage import clock
from aolog.storage.file import Displaced
from aolog.write.active_slab import FormatTwoSlab
from aolog.write.schedule import Seen, Task

if TYPE_CHECKING:
    from aolog.write.active_slab import ActiveSlab
    from aolog.write.slab_chain import SlabChain


_LOOK_S = 1.0  # between close looks at the slab's file


class LogTail:
    """See the module."""

    def __init__(self, chain: SlabChain) -> None:
        self.trouble: AologError | None = None  # what the next call of the writer has to raise
        self.failed: SyncFailed | None = None  # after which nothing is synced
        self._look_due_s = 0.0  # of the next close look at the slab's file
        self._lost_from = ADDRESS_END  # records from here on are not in the log: see SlabLost
        self.device = Lock()  # held by the thread that syncs, and while a slab is sealed
        self._chain = chain
        self._opened_end = chain.end  # where this writer began
        self._slab: ActiveSlab | None = None  # the last one that has grown here
        self._grows()

    def _grows(self) -> None:
        """The slab, if there is one, begins to grow: what is before it is durable."""
        if (slab := self._chain.slab) is not None:
            slab.durable = self._chain.end
            self._slab = slab

    @property
    def durable(self) -> int:
        """Every byte before this address survives power loss."""
        return self._opened_end if self._slab is None else self._slab.durable

    @property
    def kept(self) -> int:
        """Everything before this address is durable, and in the log as far as the writer knows."""
        return min(self.durable, self._lost_from)

    @property
    def looks_ns(self) -> int:
        """Until the next close look at the slab's file."""
        return int((self._look_due_s - time.monotonic()) * 1e9)

    def make_room(self, *, seal: bool = False) -> ActiveSlab | None:
        """The slab that grows, with room for a frame. seal: begins another one though this one is
        not full. None: retention has no room for a slab; call again later. Raises RetentionFull,
        StorageError; then call again."""
        chain = self._chain
        slab = chain.slab
        if slab is not None:
            if not seal and slab.offset < slab.full_at:
                return slab
            self.seal_slab()
        try:
            if not chain.begin_slab():
                return None
        except SyncFailed as error:
            raise self._fail(error) from error
        self._grows()
        return chain.slab

    # --- frames into the file, and onto the device -------------------------------------------------

    def flush(self) -> None:
        """Everything is in the page cache on return. On a full disk it prunes what retention lets it
        and tries again. After StorageError: call again. Looks closely once a second: raises SlabLost."""
        slab = self._chain.slab
        if slab is None:
            return
        if time.monotonic() >= self._look_due_s:
            self.look(closely=True)
        try:
            slab.write_pending()
        except StorageFull as error:
            pass_on(error)
            if not self._chain.prune_now(for_slab=True):
                raise
            slab.write_pending()

    def look(self, *, closely: bool = False) -> None:
        """Raises SlabLost, then and ever after, if another program removed, replaced or cut the slab's
        file; StorageError if that cannot be found out. Call it before a write: after the write a file that
        was cut has its size again. closely: looks at the file's beginning too, which is blank then."""
        slab, presence = self._chain.slab, self._chain.presence
        if slab is None or presence is None:
            return
        if presence.is_in_place(slab.written) and not closely:
            return  # the common case first: each sync comes here
        displaced = presence.check(slab.written)
        if closely:
            self._look_due_s = time.monotonic() + _LOOK_S
            if displaced is None and slab.data_begin and slab.file.is_blank(0, len(MAGIC)):
                displaced = Displaced("was cut, and its beginning is blank")
            if displaced is None:
                self._chain.warn_if_moved()
        if displaced is None:
            return
        self._lost_from = slab.base
        self.trouble = self.failed = SlabLost(
            f"{slab_name(slab.base)} {displaced.text}: appends are refused, records from address "
            f"{slab.base} on are not in the log, and those before {self.durable} had been synced",
            hint="find the program that changed the log's files; open the log again, and append again "
            "what it lacks",
            path=self._chain.path,
            durable=self.durable,
            lost_from=slab.base,
        )
        raise self.failed

    def take_device(self) -> tuple[ActiveSlab, int, int] | None:
        """Takes the device for `sync_written`. Returns its arguments: the slab, and the end address and the
        records of what is in its file. None, and the device is free, if there is no slab; so it is after
        StorageError."""
        slab = self._chain.slab
        if slab is None:
            return None
        if slab.written > slab.zeros_end:
            slab.fill_ahead()
        self.device.acquire()
        return slab, slab.base + slab.written, slab.flushed_records

    def sync_written(self, slab: ActiveSlab, end: int, records: int) -> None:
        """After `take_device`: as `datasync`, and releases the device. The caller holds no other lock."""
        try:
            self.datasync(slab, end)
            slab.synced_records = records
        finally:
            self.device.release()

    def release_device(self) -> None:
        """If this thread has it: an interrupt came between `take_device` and `sync_written`."""
        if self.device._is_owned():  # type: ignore[attr-defined]  # noqa: SLF001 -- as threading.Condition asks any lock
            self.device.release()

    def datasync(self, slab: ActiveSlab, end: int) -> None:
        """What was written of the slab, up to the address `end`, is on the device on return. The
        caller holds the device. Raises SyncFailed, then and ever after."""
        if self.failed is not None:  # the system reports it once: a second call would succeed
            raise self.failed.with_traceback(None)
        try:
            if slab.sync_errno:  # the compiled sync met it
                raise slab.file.sync_failed(OSError(slab.sync_errno, ""))
            slab.file.datasync()
        except SyncFailed as error:
            raise self._fail(error) from error
        slab.durable = max(slab.durable, end)

    def _fail(self, error: SyncFailed) -> SyncFailed:
        pass_on(error)
        self.failed = SyncFailed(
            f"{error.reason}: appends are refused, everything before address {self.durable} is "
            "durable",
            hint="check the device, then open the log again",
            path=self._chain.path,
            durable=self.durable,
        )
        return self.failed

    def seal_slab(self) -> None:
        """Flushes, syncs, seals the slab, syncs the seal. After StorageError: call again. Raises
        SlabLost."""
        self._look_due_s = 0.0
        self.flush()
        slab = self._chain.slab
        if slab is None:
            return
        with self.device:
            self.datasync(slab, slab.base + slab.offset)
            slab.seal(clock.now_us())
            self.look()  # for the last time
            if self.durable < slab.base + slab.offset:
                self.datasync(slab, slab.base + slab.offset)
            self._chain.close_slab(slab)

    def finish(self) -> BaseException | None:
        """Seals the slab, for a writer that closes. Returns the error that `close` raises after it has
        released the log: the slab stays as it is then, and the next writer recovers it. Raises StorageFull,
        StorageFailed: the log stays open; call again."""
        try:
            self.refuse()
            self.seal_slab()
        except BaseException as error:
            may_close_later = is_own(error) and may_be_retried(error)
            if may_close_later or isinstance(self.trouble, Forked):
                raise
            self.after_error(error)
            return error
        return None

    def keep_whole_frames(self) -> int:
        """For a writer that cannot write what is pending: cuts the file after its last whole frame,
        durably, so that half a frame is no torn tail and costs no address. The address there: records
        before it are in the log. Errors are logged and leave `durable` as it was."""
        slab, end = self._chain.slab, self.durable
        if slab is None or not may_be_retried(self.trouble):
            return self.kept
        try:
            self.look(closely=True)
            # What was written is never cut, even if the device has damaged it since.
            end = max(self._chain.end_of_whole_frames(slab.base), slab.base + slab.written)
            with self.device:
                slab.file.truncate(end - slab.base)
                self.datasync(slab, end)
        except AologError as error:
            pass_on(error)
            notices.warn("%s: %s", self._chain.path, error)
        return min(end, self._lost_from)

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
        """After an exception in the middle of a call. Returns whether the writer failed. The writer's own
        errors leave the state as documented, except SyncFailed."""
        if is_own(error):
            if not isinstance(error, SyncFailed):
                return False
            failure: AologError = error
        else:
            failure = CallInterrupted(
                f"the writer failed: {error!r} interrupted a call",
                hint="close it and open the log again, which recovers it",
                path=self._chain.path,
            )
        if not isinstance(self.trouble, LogClosed | Forked):
            self.trouble = failure
        return True

    def keep_for_later(self, error: AologError) -> bool:
        """After an error in a call that nobody waits for. Returns whether the next call raises it."""
        pass_on(error)
        if not isinstance(error, StorageError):  # the call that met it raises it again
            return False
        self.trouble = self.trouble or error
        return True

    # --- what is done in time: schedule.py ------------------------------------------------------------

    def seen(self, *, is_open: bool) -> Seen:
        """What the schedule depends on. is_open: whether a frame is."""
        chain, slab = self._chain, self._chain.slab
        is_durable = self.durable == chain.end
        lacks_mark = slab is not None and slab.lacks_mark
        return Seen(
            end=chain.end,
            has_slab=slab is not None,
            needs_mark=lacks_mark and not is_open and (is_durable or chain.syncs),
            is_durable=is_durable,
            is_synced=slab is None or not chain.syncs or self.durable >= slab.base + slab.written,
            warn_s=chain.unread.due_s,
        )

    def do(self, task: Task) -> None:
        """A task that is due, of those that write or prune. Raises what its calls raise."""
        slab = self._chain.slab
        if task is Task.SEAL:
            self.seal_slab()
        elif task is Task.PRUNE:
            self._chain.prune_now()
        elif task is Task.WARN:
            self._chain.unread.warn()
        elif task is Task.MARK and slab is not None and slab.lacks_mark:
            assert isinstance(slab, FormatTwoSlab)
            slab.add_mark(clock.now_us())
            self.flush()


def may_be_retried(trouble: BaseException | None) -> bool:
    """Whether the state is as documented: there is no trouble, or a write failed, whose bytes are
    written again."""
    is_storage = isinstance(trouble, StorageError) and not isinstance(trouble, SyncFailed)
    return trouble is None or is_storage
