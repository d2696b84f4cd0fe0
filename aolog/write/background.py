"""What a writer's own threads do, and when: flush, sync, seal what has aged, mark, prune.

Each `_…_due_s` is when something is to be done, by `time.monotonic`; whoever brings one forward
wakes the first thread (ticker.py), which sleeps until the first of them. It leaves the interval's
syncs to the second: a disk may take long for one, and flushes go on. Who seals a slab waits.
"""

from __future__ import annotations

import time

from aolog import errors as notices
from aolog.errors import StorageError, SyncFailed
from aolog.storage import clock
from aolog.write.active_slab import FormatTwoSlab
from aolog.write.appending import Appending
from aolog.write.ticker import Ticker

__all__ = ["Upkeep"]

_RETRY_S = 1.0  # between attempts of the writer's own thread, after an error
_AGE_CHECK_S = 10.0  # how often max_age_s is looked at while nothing rolls
_NEVER_S = float("inf")


class Upkeep(Appending):
    """The part of a writer that nobody calls."""

    _flush_seconds: float | None
    _ticker: Ticker
    _syncer: Ticker

    def _begin_upkeep(self, flush_seconds: float | None) -> None:
        self._flush_seconds = flush_seconds
        self._flush_due_s = self._sync_due_s = self._mark_due_s = self._age_due_s = _NEVER_S
        self._alone = False
        self._new_tickers()

    def _new_tickers(self) -> None:
        self._looks_s = _NEVER_S  # when the thread looks next; never: when it is woken
        self._is_busy = False  # something was appended since it looked last
        self._ticker = Ticker(self._tick, f"aolog-writer {self.path}")
        self._syncer = Ticker(self._sync_written, f"aolog-sync {self.path}")

    def _begin_ticking(self) -> None:
        """Again, with the lock, where `_end_ticking` may have ended either thread, or none."""
        self._tell_to_end()
        self._new_tickers()
        self._wake_in_time()

    def _tell_to_end(self) -> None:
        """Waits for nothing."""
        self._ticker.end()
        self._syncer.end()

    def _end_ticking(self) -> None:
        """Waits for what is going on."""
        self._ticker.stop()
        self._syncer.stop()

    def _look_after_age(self) -> None:
        self._age_due_s = time.monotonic() + _AGE_CHECK_S
        self._wake_in_time()

    def _arm(self) -> None:
        """Something waits: the ticker is to look after it."""
        self._is_busy = True
        if self._flush_seconds is not None:
            due_s = time.monotonic() + self._flush_seconds
            self._flush_due_s = min(self._flush_due_s, due_s)
        self._mark_due_s = _NEVER_S
        if self._flush_due_s < self._looks_s:
            self._wake_in_time()

    def _wake_in_time(self) -> None:
        """The ticker may sleep for longer than what is due now allows."""
        due_s = self._next_due_s()
        if due_s < self._looks_s or self._alone:
            try:
                self._ticker.wake()
            except RuntimeError as error:  # none is to be had: the next call asks again
                if not self._alone:
                    notices.warn(
                        "%s: each append does its own flush and sync: %s", self.path, error
                    )
                self._alone = True
                self._close_batch_to_values()  # who joins it asks nobody
            else:
                self._alone = False
                self._looks_s = min(self._looks_s, due_s)

    def _next_due_s(self) -> float:
        due_s = min(self._flush_due_s, self._sync_due_s, self._mark_due_s, self._age_due_s)
        due_s = min(due_s, self._chain.unread.due_s)
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
            ticker = self._ticker
            is_due, end = now >= self._flush_due_s, self._end
            if is_due:
                self._flush_due_s = _NEVER_S
                if self._sync_policy != "flush":
                    self._quietly(self._flush_locked)
        if is_due and self._sync_policy == "flush":
            self._quietly(self._sync_to, end)
        with self._lock:
            if is_due and self._trouble is not None:
                self._flush_due_s = min(self._flush_due_s, now + _RETRY_S)
            self._tick_slab(now)
            unsynced = self._sync_policy != "never" and self._chain.durable < self._chain.written
            if not unsynced:  # by a call of the user's, for instance
                self._sync_due_s = _NEVER_S
        if unsynced and now >= self._sync_due_s:
            self._sync_due_s = _NEVER_S
            try:
                self._syncer.wake()
            except RuntimeError:  # no other thread is to be had
                self._sync_written()
        with self._lock:
            self._tick_mark(now)
            due_s = self._next_due_s()
            if self._is_busy and self._flush_seconds is not None:
                # Even if all is flushed: else the append behind each flush would wake the thread,
                # and that costs as much as the write.
                due_s = min(due_s, now + self._flush_seconds)
                self._is_busy = False
            if ticker is self._ticker:  # else another one looks by now
                self._looks_s = due_s
            return None if due_s == _NEVER_S else max(0.0, due_s - time.monotonic())

    def _sync_written(self) -> None:
        self._quietly(self._sync_to, self._chain.written)
        with self._lock:
            self._tick_mark(time.monotonic())
            self._wake_in_time()

    def _tick_slab(self, now: float) -> None:
        """Seals an aged slab, lets go what is too old."""
        chain = self._chain
        if chain.is_aged and self._batch is None:
            self._quietly(self._end_slab)
            chain.aged_at_s = _NEVER_S if chain.slab is None else now + _RETRY_S
        if now >= self._age_due_s:
            self._age_due_s = now + _AGE_CHECK_S
            chain.let_go()
        chain.unread.warn()

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
            if self._sync_policy != "never":
                self._sync_due_s = now
