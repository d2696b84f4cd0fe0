"""The slabs that a writer makes, one after another, and how far they are durable.

It owns the log's lock, what the next slab's header says of the slabs before it, the slab that is
being written, and the order in which things become durable: a slab's frames before its seal,
its seal before its successor's header, that before its name, that before any of its frames.

Its caller's lock is around every call but `sync_to`, which takes it itself, and only to write
what waits in memory: appends go on while the device works, and become one write and one sync for
all who wait for them (group_commit.py). A second lock is held while the device works, so that the
slab that it works on is not closed: it is taken under the caller's and outlasts it. What is being
written changes only under both.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, NamedTuple

from aolog import errors as notices
from aolog.errors import AologError, RetentionFull, StorageFull, SyncFailed
from aolog.format.slab import ADDRESS_END
from aolog.log import retention as retention_module
from aolog.log.directory import Log
from aolog.log.lock import lock_log
from aolog.log.pruned_records import PrunedUnread
from aolog.log.walk import Tail
from aolog.log.writer_checks import give_modes, refuse_foreign, warn_of_limits
from aolog.storage import clock
from aolog.write.active_slab import FormatOneSlab, FormatTwoSlab
from aolog.write.group_commit import GroupCommit
from aolog.write.opening import (
    Predecessor,
    begin_format_1_slab,
    is_there,
    make_slab,
    name_slab,
    open_for_append,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from aolog.log.retention import Retention
    from aolog.storage.storage import Storage

__all__ = ["ChainOptions", "SlabChain"]

_NEVER_S = float("inf")


class ChainOptions(NamedTuple):
    """The writer's options that concern slabs. synced: its policy is not "never". compressed:
    bodies may be."""

    slab_bytes: int
    slab_seconds: float | None
    format_1: bool
    synced: bool
    preallocate: bool
    compressed: bool
    retention: Retention


class SlabChain:
    """See the module. Opening takes the log's lock, recovers it, and begins a slab where the log
    must say at once who it is or where an epoch begins. Raises what Writer says."""

    def __init__(
        self,
        path: str,
        storage: Storage,
        options: ChainOptions,
        *,
        first_address: int,
        topic: str | None,
        mode: int,
    ) -> None:
        self.path = path
        self.slab: FormatTwoSlab | FormatOneSlab | None = None
        self._unnamed: FormatTwoSlab | None = None  # made, and perhaps not named yet
        self._room_for: int | None = None  # the base of the slab that was begun last
        self.durable = 0
        self.failed: SyncFailed | None = None
        self.aged_at_s = _NEVER_S
        self.unread = PrunedUnread(path)
        self._storage = storage
        self._options = options
        self._sync_lock = threading.RLock()  # knows whose it is: see _sync_written
        self._commit = GroupCommit(self._settled, self._sync_written)
        self._known_slabs: retention_module.Known = {}  # asked for at each roll of a bounded log
        self._directory = lock_log(path, storage, mode)
        if options.synced:
            warn_of_limits(path, storage)
        try:
            self._open(first_address, topic)
        except BaseException:
            self.release()
            raise

    # --- opening ------------------------------------------------------------------------------

    def _open(self, first_address: int, topic: str | None) -> None:
        log = Log(self._directory, self._storage)
        try:
            if log.published:
                from aolog.log.publications import roll_forward

                roll_forward(log)
            refuse_foreign(log, format_1=self._options.format_1)
            self.opening, self._before, offset = open_for_append(
                log,
                first_base=first_address,
                fresh_uuid=lambda: self._storage.random_bytes(16),
                topic=topic,
            )
            for name in log.unborn:  # it holds no record
                self._storage.unlink(log.directory / name)
            fresh = not log.bases
            give_modes(log)
        finally:
            log.close()
        next_base = self._before.next_base
        if offset is not None or (self._options.format_1 and fresh):
            self.slab = begin_format_1_slab(
                self._directory, self._storage, next_base, offset, self._options.slab_bytes
            )
            self._begun()
        elif fresh or next_base != self._before.end:
            self.begin_slab()
        self.durable = self.end

    # --- how far ------------------------------------------------------------------------------

    @property
    def topic(self) -> str | None:
        """The log's default topic."""
        return self._before.topic

    @property
    def end(self) -> int:
        """Address behind the last frame, whether it is written yet or not."""
        slab = self.slab
        return self._before.next_base if slab is None else slab.base + slab.offset

    @property
    def written(self) -> int:
        """Address up to which everything is in the operating system."""
        slab = self.slab
        return self._before.next_base if slab is None else slab.base + slab.written

    @property
    def has_frames(self) -> bool:
        """Whether there is a slab and anything in it."""
        return self.slab is not None and self.slab.offset > self.slab.data_begin

    @property
    def is_aged(self) -> bool:
        """Whether the slab has lived as long as it may."""
        return self.has_frames and time.monotonic() >= self.aged_at_s

    @property
    def is_over(self) -> bool:
        """Whether the next frame belongs into another slab than this."""
        slab = self.slab
        if slab is None or slab.offset >= slab.full_at:
            return True
        return self.aged_at_s != _NEVER_S and self.is_aged

    # --- from memory to the device ------------------------------------------------------------

    def write_pending(self) -> None:
        """Everything is in the page cache on return. On a full disk, what retention lets go makes
        room. After an error: call again."""
        if self.slab is None:
            return
        try:
            self.slab.write_pending()
        except StorageFull:
            if not self.let_go(needed=self._options.slab_bytes):
                raise
            self.slab.write_pending()

    def sync_to(
        self, target: int, lock: AbstractContextManager[object], write: Callable[[], None]
    ) -> int:
        """Everything before `target` is on the device on return; the durable address. Any thread,
        without the caller's lock: it is passed, and `write`, which is called under it and after
        which the target must be written. Raises SyncFailed, then and ever after, and what `write`
        raises."""
        if self.durable < target:
            self._commit.reach(target, (lock, write))
            if self.durable < target and self.failed is not None:
                raise self.failed
        return self.durable

    def _settled(self) -> int:
        return self.durable if self.failed is None else ADDRESS_END

    def _sync_written(
        self, target: int, given: tuple[AbstractContextManager[object], Callable[[], None]]
    ) -> None:
        """By one thread at a time. Never waits for the second lock: who else takes it holds the
        first one for as long."""
        lock, write = given
        try:
            with lock:
                if self.durable >= target:
                    return
                if self.failed is not None:
                    raise self.failed
                write()
                slab = self.slab
                if slab is None:  # ended, and with that synced
                    return
                slab.fill_ahead()
                written = slab.base + slab.written
                self._sync_lock.acquire()
            if self.durable < written:
                self._datasync(slab)
                if self.durable < written:  # noqa: PLR1730 -- max() takes ten times as long
                    self.durable = written
        finally:
            # Not a flag of our own: a signal that raises may come before it is set.
            try:  # noqa: SIM105 -- suppress() is a call, at which a signal may be handled
                self._sync_lock.release()
            except RuntimeError:  # not acquired
                pass

    def _datasync(self, slab: FormatTwoSlab | FormatOneSlab) -> None:
        if self.failed is not None:  # the system tells a failure once: a second call would succeed
            raise self.failed
        try:
            slab.file.datasync()
        except SyncFailed as error:
            raise self._fail(error) from error

    def _fail(self, error: SyncFailed) -> SyncFailed:
        self.failed = SyncFailed(
            f"{error.reason}: appends are refused, everything before address {self.durable} is "
            "durable",
            hint="check the device, then open the log again",
            path=self.path,
            durable=self.durable,
        )
        return self.failed

    def refuse_nested(self) -> None:
        """Raises UsageError if the thread that calls is in the middle of `sync_to`."""
        self._commit.refuse_nested()

    # --- from slab to slab --------------------------------------------------------------------

    def end_slab(self) -> None:
        """Writes what is pending, syncs it, seals the slab, syncs that. After an error it may be
        called again and goes on where it stopped."""
        slab = self.slab
        if slab is None:
            return
        self.refuse_nested()  # else the slab is closed under the sync that works on it
        self.write_pending()
        with self._sync_lock:
            self._datasync(slab)
            self.durable = slab.base + slab.offset
            slab.seal(clock.now_us())
            if isinstance(slab, FormatTwoSlab):
                self._datasync(slab)
            self.durable = end = slab.base + slab.offset
            before = self._before
            behind = Predecessor(
                next_base=end,
                topic_uuid=before.topic_uuid,
                topic=before.topic,
                epoch=before.epoch,
                ordinal=before.ordinal + slab.records,
                ordinal_unsure=before.ordinal_unsure,
                base=slab.base,
                end=end,
                cut=0,
                greatest_us=max(before.greatest_us, slab.greatest_us),
            )
            # No call between these, and none before them that cannot be repeated: signals.
            self._before = behind
            self.slab = None
            slab.file.close()

    def begin_slab(self) -> None:
        """The next slab is there, header and name durable. After an error: call again."""
        options = self._options
        slab: FormatTwoSlab | FormatOneSlab
        self._room_for = self._before.next_base
        try:
            if options.format_1:
                slab = begin_format_1_slab(
                    self._directory, self._storage, self._before.next_base, None, options.slab_bytes
                )
            else:
                slab = self._named_slab()
        except SyncFailed as error:
            raise self._fail(error) from error
        with self._sync_lock:
            self.slab, self._unnamed = slab, None
            self._begun()
            self.durable = slab.base + slab.offset

    def _named_slab(self) -> FormatTwoSlab:
        """The one of an earlier attempt, if there was one."""
        options, again = self._options, self._unnamed is not None
        if self._unnamed is not None and not is_there(
            self._directory, self._storage, self._unnamed
        ):
            removed, self._unnamed, again = self._unnamed, None, False  # before it had a name
            removed.file.close()
        if self._unnamed is None:
            self._unnamed = make_slab(
                self._directory,
                self._storage,
                self._before,
                salt=int.from_bytes(self._storage.random_bytes(4), "little"),
                now_us=clock.now_us(),
                slab_bytes=options.slab_bytes,
                synced=options.synced,
                preallocate=options.preallocate,
                compressed=options.compressed,
            )
        name_slab(self._directory, self._storage, self._unnamed, again=again)
        return self._unnamed

    def _begun(self) -> None:
        if self._options.slab_seconds is not None:
            self.aged_at_s = time.monotonic() + self._options.slab_seconds

    # --- room ---------------------------------------------------------------------------------

    def has_room(self) -> bool:
        """Prunes what must go before a slab may begin; False where the policy is to wait until
        cursors have passed the oldest. Raises RetentionFull where it is to raise."""
        retention = self._options.retention
        if not retention.bounded or self._room_for == self._before.next_base:  # it was made
            return True
        needed = self._options.slab_bytes
        pruned = retention_module.prune(
            self.path, self._storage, retention, needed=needed, known=self._known_slabs
        )
        self.unread.add(pruned.unread)
        if pruned.room or retention.when_full == "prune":
            return True
        if retention.when_full == "error":
            raise RetentionFull(
                f"the log's total of {retention.max_bytes} bytes is reached and cursors still need "
                "the oldest",
                hint="let them catch up, delete the ones that are not used, or raise the total",
                path=self.path,
            )
        return False

    def let_go(self, *, needed: int = 0) -> bool:
        """Prunes what may go now; whether anything went. Its errors are met by whoever appends
        when a slab is to begin."""
        if not self._options.retention.bounded:
            return False
        try:
            pruned = retention_module.prune(
                self.path,
                self._storage,
                self._options.retention,
                needed=needed,
                known=self._known_slabs,
            )
        except AologError as error:
            notices.warn("nothing is pruned: %s", error)
            return False
        self.unread.add(pruned.unread)
        return pruned.slabs > 0

    # --- the end ------------------------------------------------------------------------------

    def keep_whole_frames(self) -> int:
        """For when what is pending cannot be written: the slab's file ends behind the last whole
        frame that is in it, on the device too, so that half a frame is no torn end and costs no
        address. The address there: what is before it is read, nothing behind it is. To be released
        next. Errors are told, and leave `durable` where it was."""
        slab = self.slab
        if slab is None or self.failed is not None:
            return self.durable
        end = self.durable
        try:
            # What was written is never cut, though the device may have damaged it since.
            end = max(self._end_of_whole_frames(slab.base), slab.base + slab.written)
            with self._sync_lock:
                slab.file.truncate(end - slab.base)
                self._datasync(slab)
                self.durable = end
        except AologError as error:
            notices.warn("%s: %s", self.path, error)
        return end

    def _end_of_whole_frames(self, base: int) -> int:
        log = Log(self._directory, self._storage)
        try:
            slab = log.open_slab(log.position(base))
        finally:
            log.close()
        try:
            walker = slab.walker()
            while not isinstance(outcome := walker.next(), Tail):
                pass
            return base + outcome.begin
        finally:
            slab.close()

    def release(self) -> None:
        """Gives files and the log's lock free, as they are. Idempotent. Also in a forked child,
        where it leaves the parent's alone; takes no lock."""
        for slab in (self.slab, self._unnamed):
            if slab is not None:
                slab.file.close()
        self.slab = self._unnamed = None
        self._directory.close()
