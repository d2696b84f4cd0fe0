"""The writer's own threads, and when they have something to do.

Each `…_due_s` is a time by `time.monotonic`. The first thread sleeps until the first of them. A call
that brings one forward wakes it up with `look_by`. The second thread does the interval's syncs: a
disk may take long for one, and flushes go on meanwhile.

What is done then is the writer's own business: it passes two of its methods, which the threads hold
weakly, so that a forgotten writer can be collected.
"""

from __future__ import annotations

import queue
import threading
import time
import weakref
from contextlib import suppress
from typing import TYPE_CHECKING

from aolog.errors import StorageFailed
from aolog.log import lifetime
from aolog.log.pruned_records import NEVER_S

if TYPE_CHECKING:
    from collections.abc import Callable

    from aolog.write.active_slab import ActiveSlab
    from aolog.write.log_tail import LogTail
    from aolog.write.options import WriterOptions
    from aolog.write.slab_chain import SlabChain

_RETRY_S = 1.0  # between the thread's attempts after an error
_AGE_CHECK_S = 10.0  # how often max_age_s is checked while no slab begins


class Background:
    """Threads and due times. The caller holds the writer's lock, except for `stop`.

    tick: does what is due; returns the seconds until the next look, None to sleep until woken.
    sync: syncs what is written. flush_due_s, sync_due_s: of records. seal_due_s: of the slab.
    mark_due_s: of the mark after the last record. age_due_s: of a check of retention's max_age_s.
    """

    def __init__(
        self,
        path: str,
        options: WriterOptions,
        tick: Callable[[], float | None],
        sync: Callable[[], None],
    ) -> None:
        self.flush_due_s = self.sync_due_s = NEVER_S
        self.seal_due_s = self.mark_due_s = self.age_due_s = NEVER_S
        self._path = path
        self._options = options
        self._syncs = options.sync != "never"
        self._aging: ActiveSlab | None = None  # whose seal_due_s it is
        self._is_needed = (  # and not started yet
            options.flush_seconds is not None
            or options.sync == "interval"
            or options.slab_seconds is not None
            or options.bounds.bounded
        )
        self.is_over = False  # no thread will do what becomes due
        self._looks_s = NEVER_S  # when the first thread looks next
        self._is_busy = False  # something was appended since it last looked
        self._ticker = _Thread(tick, f"aolog-writer {path}")
        self._syncer = _Thread(sync, f"aolog-sync {path}")

    def start(self) -> None:
        """Starts the threads that the options need and that are not running; none if the interpreter
        ends, as it would not start, or not run to its end. Raises StorageFailed if the system has no
        thread left."""
        if not self._is_needed:
            return
        if lifetime.is_ending():
            self.is_over = True
            return
        try:
            self._ticker.start()
            if self._syncs:
                self._syncer.start()
        except RuntimeError as error:
            raise StorageFailed(
                f"cannot start the writer's thread: {error}",
                hint="raise the limit of processes (ulimit -u), or end other threads",
                path=self._path,
            ) from None
        self._is_needed = False

    def check_age(self) -> None:
        """The next check of max_age_s is due in ten seconds, if there is such a bound: slabs age also
        while nobody appends."""
        if self._options.bounds.max_age_s is not None:
            with suppress(StorageFailed):  # the first append raises it
                self.start()
            self.age_due_s = time.monotonic() + _AGE_CHECK_S
            self.look_by(self.age_due_s)

    def arm(self, chain: SlabChain) -> None:
        """A batch or a frame begins in the chain's slab: it is to be flushed, and the slab to be
        sealed, in time. Starts the threads. Raises StorageFailed if there is none."""
        if self._is_needed:
            self.start()
        self._is_busy = True
        self.mark_due_s = NEVER_S
        if self.flush_due_s == NEVER_S and self._options.flush_seconds is not None:
            self.flush_due_s = time.monotonic() + self._options.flush_seconds
            self.look_by(self.flush_due_s)
        if self._options.slab_seconds is not None and self._aging is not chain.slab:
            self._aging = chain.slab
            self.seal_due_s = time.monotonic() + self._options.slab_seconds
            self.look_by(self.seal_due_s)
        if chain.unread.due_s < self._looks_s:  # a loss was added within the quiet minute
            self.look_by(chain.unread.due_s)

    def flushed(self, *, needs_sync: bool) -> None:
        """A flush has happened: the next interval's sync is due, if there is something to sync."""
        self.flush_due_s = NEVER_S
        if needs_sync and self._options.sync == "interval" and self.sync_due_s == NEVER_S:
            self.sync_due_s = time.monotonic() + self._options.sync_seconds
            self.look_by(self.sync_due_s)

    def look_by(self, due_s: float) -> None:
        """Wakes the first thread if it would sleep for longer."""
        if due_s < self._looks_s:
            self._looks_s = due_s
            self._ticker.wake()

    def tend(self, chain: SlabChain, tail: LogTail, now: float, *, is_open: bool) -> None:
        """Seals an aged slab, prunes old ones, adds a mark once everything is durable and nothing was
        appended for a while. is_open: whether a frame is. Raises what the tail raises."""
        if tail.trouble is not None:
            self.flush_due_s = now + _RETRY_S
        if now >= self.seal_due_s:
            self.seal_due_s = now + _RETRY_S
            tail.end_slab()
            self.seal_due_s = NEVER_S
        if now >= self.age_due_s:
            self.check_age()
            chain.prune_now()
        chain.unread.warn()
        is_durable = tail.durable == chain.end
        if (
            is_open
            or tail.trouble is not None
            or not tail.lacks_mark
            or not (is_durable or self._syncs)
        ):
            self.mark_due_s = NEVER_S
        elif self.mark_due_s == NEVER_S or not is_durable:
            self.mark_due_s = now + self._options.sync_seconds
        elif now >= self.mark_due_s:
            self.mark_due_s, self.sync_due_s = NEVER_S, now
            tail.write_mark()
        if not self._syncs or tail.durable >= chain.end - chain.unwritten:
            self.sync_due_s = NEVER_S

    def sleep(self, until_s: float) -> float | None:
        """Wakes the second thread if a sync is due. Returns the seconds until the first has something to
        do: at a due time, or at `until_s`."""
        now = time.monotonic()
        if now >= self.sync_due_s:
            self.sync_due_s = NEVER_S
            self._syncer.wake()
        due_s = min(until_s, self.flush_due_s, self.sync_due_s, self.seal_due_s, self.mark_due_s,
                    self.age_due_s)  # fmt: skip  # one thing, one line
        if self._is_busy and self._options.flush_seconds is not None:
            # Even if all is flushed: otherwise the first append after each flush would wake the
            # thread, which costs as much as the write.
            due_s = min(due_s, now + self._options.flush_seconds)
            self._is_busy = False
        self._looks_s = due_s
        return None if due_s == NEVER_S else max(0.0, due_s - now)

    def is_seal_due(self) -> bool:
        """Whether the slab that grows has reached slab_seconds."""
        return self.seal_due_s != NEVER_S and time.monotonic() >= self.seal_due_s

    def stop(self) -> None:
        """Both threads have ended on return, and none starts. Idempotent. Without the lock, which they
        may need to end."""
        self._is_needed, self.is_over = False, True
        self._ticker.end()
        self._syncer.end()
        self._ticker.join()
        self._syncer.join()


class _Thread:
    """Calls a method each time it is woken, and when the seconds that the method returned are over."""

    def __init__(self, method: Callable[[], float | None], name: str) -> None:
        # SimpleQueue, because its `put` is re-entrant, which no Event's `set` is: a writer may be
        # collected, and closed, in the middle of a wait for the same queue.
        self._wakes: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._method = weakref.WeakMethod(method, lambda _: self._wakes.put(None))
        self._name = name
        self._thread: threading.Thread | None = None
        self._is_ending = False

    def start(self) -> None:
        """Does nothing if it runs. Raises RuntimeError if the system has no thread left."""
        if self._thread is not None:
            return
        thread = threading.Thread(target=self._run, name=self._name, daemon=True)
        thread.start()
        self._thread = thread

    def wake(self) -> None:
        self._wakes.put(None)

    def end(self) -> None:
        self._is_ending = True
        self._wakes.put(None)

    def join(self) -> None:
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    def _run(self) -> None:
        delay: float | None = None
        while True:
            with suppress(queue.Empty):
                self._wakes.get(timeout=delay)
                while True:  # several wake-ups are one
                    self._wakes.get_nowait()
            method = self._method()
            if method is None or self._is_ending:
                return
            delay = method()
            if delay is not None:
                delay = min(delay, threading.TIMEOUT_MAX)  # a longer one raises
            del method
