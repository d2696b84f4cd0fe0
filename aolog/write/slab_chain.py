"""The slabs of a writer, one after another: opening the log, the next slab, retention's room.

It owns the log's lock, what the next slab's header says of the slabs before it, and the slab that
grows. Things become durable in this order: a slab's frames, its seal, the next slab's header, that
slab's name, its frames (log_tail.py syncs frames and seals, next_slab.py the rest). The caller holds
the writer's lock.
"""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING

from aolog import errors as notices
from aolog.errors import AologError, RetentionFull
from aolog.format.slab import slab_name
from aolog.log.directory import Log
from aolog.log.interruption import pass_on
from aolog.log.lock import lock_log
from aolog.log.retention import prune
from aolog.storage.file import Presence
from aolog.storage.mounts import warn_of_limits
from aolog.write.next_slab import begin_slab, header_after
from aolog.write.opening import open_for_append, roll_forward
from aolog.write.options import Waiting
from aolog.write.pruned_unread import PrunedUnread

if TYPE_CHECKING:
    from aolog.log.retention import Known, Pruned
    from aolog.storage.storage import Storage
    from aolog.write.active_slab import ActiveSlab
    from aolog.write.options import WriterOptions

_FULL_WARN_S = 1.0  # no warning before this: a cursor that moves makes room sooner


class SlabChain:
    """See the module. Opening takes the log's lock, recovers the log, and begins a slab if the log is
    new or begins an epoch. Raises what Writer raises."""

    def __init__(self, path: str, storage: Storage, options: WriterOptions) -> None:
        self.path = path
        # The one that grows; None until the next append begins one.
        self.slab: ActiveSlab | None = None
        self.presence: Presence | None = None  # of the slab's file
        self._is_moved = False  # and the warning is logged
        self.unread = PrunedUnread(path)  # what retention removed although a cursor had not read it
        self.storage = storage
        self.syncs = options.sync != "never"  # whether the policy is to sync at all
        self._options = options
        self._most = options.most_waiting  # bounds of what a slab's frames may keep waiting
        self._retention = options.bounds
        self._full_warn_at_s = 0.0  # 0: there was room; infinite: the warning is logged
        self._known_slabs: Known = {}  # sizes of slabs, so that pruning reads each one once
        self._directory = lock_log(path, storage, options.mode)
        if self.syncs:
            warn_of_limits(path, storage.mount_of(path))
        try:
            self._open()
        except BaseException:
            self.release()
            raise

    def _open(self) -> None:
        options = self._options
        with Log(self._directory, self.storage) as log:
            if log.published:
                roll_forward(log)
            self.opening, self._following, offset = open_for_append(
                log, has_headers=options.has_headers, topic=options.topic
            )
            for name in log.unborn:  # a slab that was never renamed holds no record
                self.storage.unlink(log.directory / name)
            fresh = not log.bases
        begins_epoch = self._following.base != self._following.predecessor_end
        if fresh or begins_epoch or offset is not None:
            self._create_slab(offset)

    # --- how far ------------------------------------------------------------------------------

    @property
    def topic(self) -> str | None:
        """The log's default topic."""
        return self._following.topic

    @property
    def end(self) -> int:
        """The address after the last frame, written or not."""
        slab = self.slab
        return self._following.base if slab is None else slab.base + slab.offset

    @property
    def left(self) -> Waiting:
        """How much more may be added to the slab's frames before something is due."""
        slab, most = self.slab, self._most
        if slab is None:
            return most
        return Waiting(
            most.bytes - (slab.offset - slab.written),
            most.records - (slab.records - slab.flushed_records),
            most.unsynced - (slab.records - slab.synced_records),
        )

    # --- from slab to slab ------------------------------------------------------------------------

    @property
    def is_full(self) -> bool:
        """Whether the next frame belongs to the next slab."""
        return self.slab is not None and self.slab.offset >= self.slab.full_at

    @property
    def must_roll(self) -> bool:
        """Whether the next slab begins now, and not with the next record."""
        return self.slab is not None and self.slab.rolls_at_once and self.is_full

    def close_slab(self, slab: ActiveSlab) -> None:
        """The slab is sealed and durable: the next one follows it."""
        self._following = header_after(self._following, slab.offset, slab.records, slab.greatest_us)
        self.slab = None
        slab.file.close()

    def begin_slab(self) -> bool:
        """The next slab exists on return; its header and name are durable. False: retention blocks
        until cursors have passed the oldest slab; call again later. Raises RetentionFull if it is to
        raise, and StorageError; then call again."""
        if not self._has_room():
            return False
        self._create_slab()
        return True

    def _create_slab(self, offset: int | None = None) -> None:
        """offset: continue the existing slab at this offset instead."""
        directory, storage = self._directory, self.storage
        slab = begin_slab(directory, storage, self._following, self._options, offset)
        self.slab = slab
        self.presence = Presence(slab.file, directory, slab_name(slab.base), storage.system)
        if slab.file.is_plain:
            slab.attach(slab.file.fd, *self.presence.where)

    def warn_if_moved(self) -> None:
        """Logs once that the log was moved and its path leads to another directory."""
        if not self._is_moved and self._directory.is_elsewhere():
            self._is_moved = True
            notices.warn(
                "%s: the log was moved, and another directory is in its place: the writer goes on in the "
                "log that it has opened",
                self.path,
            )

    # --- retention ----------------------------------------------------------------------------------

    def _has_room(self) -> bool:
        """Prunes what must go before a slab begins. False: the policy is to wait for cursors."""
        retention = self._retention
        if not retention.bounded:
            return True
        holder = self._prune(needed=self._options.full_bytes).holder
        if holder is None or retention.when_full == "prune":
            self._full_warn_at_s = 0.0
            return True
        self._warn_of_full_log(holder)
        if retention.when_full == "error":
            raise RetentionFull(
                f"the log's total of {retention.max_bytes} bytes is reached and cursors still need "
                "the oldest",
                hint="let them catch up, delete the ones that are not used, or raise the total",
                path=self.path,
            )
        return False

    def _warn_of_full_log(self, holder: str) -> None:
        """Logs once, after a while, that appends find no room: a caller that waits sees nothing else."""
        now_s = time.monotonic()
        self._full_warn_at_s = self._full_warn_at_s or now_s + _FULL_WARN_S
        if now_s < self._full_warn_at_s:
            return
        self._full_warn_at_s = math.inf
        notices.warn(
            "%s: appends wait: the log's total of %s bytes is reached, and cursor %r needs the oldest slab",
            self.path,
            self._retention.max_bytes,
            holder,
        )

    def prune_now(self, *, for_slab: bool = False) -> bool:
        """Prunes what may go now. Returns whether anything went. for_slab: makes room for one more
        slab. Errors are logged: the next roll meets them again."""
        if not self._retention.bounded:
            return False
        try:
            return self._prune(needed=self._options.full_bytes if for_slab else 0).slabs > 0
        except AologError as error:
            pass_on(error)
            notices.warn("nothing is pruned: %s", error)
            return False

    def _prune(self, *, needed: int) -> Pruned:
        pruned = prune(
            self._directory, self.storage, self._retention, needed=needed, known=self._known_slabs
        )
        self.unread.add(pruned.unread)
        return pruned

    # --- the end --------------------------------------------------------------------------------------

    def end_of_whole_frames(self, base: int) -> int:
        """The address after the last whole frame in the file of the slab at `base`."""
        with Log(self._directory, self.storage) as log:
            return base + log.slab(log.index_of(base)).end().offset

    def release(self) -> None:
        """Closes the files and releases the log's lock. Idempotent, takes no lock. In a forked child
        it leaves the parent's lock alone."""
        if self.slab is not None:
            self.slab.file.close()
        self.slab = None
        self._directory.close()
