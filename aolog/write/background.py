"""The writer's own threads. When they have something to do: schedule.py.

The first thread sleeps until a task is due; a call that brings one forward wakes it. The second thread
does the interval's syncs, and earlier ones of many bytes: a disk may take long for one, and flushes go on meanwhile.

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
from aolog.storage import lifetime
from aolog.write.schedule import NEVER_S, State, Task, began, done, due, looked

if TYPE_CHECKING:
    from collections.abc import Callable

    from aolog.write.options import WriterOptions
    from aolog.write.schedule import Seen

# So many bytes are synced before the interval ends: the call that seals a slab would wait 30 ms and more for 64 MiB.
# With fewer there are more syncs, and little more is saved.
UNSYNCED_BYTES = 4 << 20


class Background:
    """The threads and the state of their schedule. The caller holds the writer's lock, except for `stop`.

    tick: does what is due; returns the seconds until the next look, None to sleep until woken.
    sync: syncs what was appended.
    """

    def __init__(
        self,
        path: str,
        options: WriterOptions,
        tick: Callable[[], float | None],
        sync: Callable[[], None],
    ) -> None:
        self._path = path
        self._options = options
        self._set(State())  # and `_due`: when each task is due
        self._is_needed = (  # and not started yet
            options.flush_seconds is not None
            or options.sync == "interval"
            or options.slab_seconds is not None
            or options.bounds.bounded
        )
        self.is_over = False  # no thread will do what becomes due
        self._woken_end = 0  # the log's end when `flushed` last woke the second thread
        self._looks_s = NEVER_S  # when the first thread looks next
        self._ticker = _Thread(tick, f"aolog-writer {path}")
        self._syncer = _Thread(sync, f"aolog-sync {path}")

    def start(self) -> None:
        """Starts the threads that the options need and that are not running. Starts none while the
        interpreter exits: it might not start, or be stopped in its work. Raises StorageFailed if the system
        has no thread left."""
        if not self._is_needed:
            return
        if lifetime.is_ending():
            self.is_over = True
            return
        try:
            self._ticker.start()
            if self._options.sync != "never":
                self._syncer.start()
        except RuntimeError as error:
            raise StorageFailed(
                f"cannot start the writer's thread: {error}",
                hint="raise the limit of processes (ulimit -u), or end other threads",
                path=self._path,
            ) from None
        self._is_needed = False

    def watch_age(self) -> None:
        """If there is a max_age_s: slabs age also while nobody appends."""
        if self._options.bounds.max_age_s is not None:
            with suppress(StorageFailed):  # the first append raises it
                self.start()
            self._become(done(self._state, Task.PRUNE, time.monotonic()))

    def begin_frame(self, slab: int, warn_s: float) -> None:
        """A frame begins in the slab with this base. Starts the threads, and raises as `start`. warn_s: of
        PrunedUnread."""
        if self._is_needed:
            self.start()
        state = self._state
        if state.waits_s == NEVER_S or state.slab != slab:
            self._become(began(state, time.monotonic(), slab, warn_s))

    def flushed(self, durable: int, end: int) -> None:
        """There is something to sync: what is between these addresses. Wakes the second thread if that is much."""
        if self._options.sync != "interval":
            return
        if self._state.unsynced_s == NEVER_S:
            self._become(self._state._replace(unsynced_s=time.monotonic()))
        if end - max(durable, self._woken_end) >= UNSYNCED_BYTES:
            self._woken_end = end
            self._syncer.wake()

    @property
    def looks_in_time(self) -> bool:
        """Whether the first thread will flush in time what joins the slab, although nobody calls
        `begin_frame`."""
        is_coming = self._options.flush_seconds is None or self._state.waits_s != NEVER_S
        return is_coming and not self.is_over

    @property
    def syncs_in_time(self) -> bool:
        """Whether it will sync in time what is flushed, although nobody calls `flushed`."""
        return self._options.sync != "interval" or self._state.unsynced_s != NEVER_S

    def is_due(self, task: Task) -> bool:
        """Whether it is, now."""
        at_s = self._due[task]
        return at_s != NEVER_S and time.monotonic() >= at_s

    def done(self, task: Task) -> None:
        """The task counts as done."""
        self._set(done(self._state, task, time.monotonic()))

    def look(self, seen: Seen) -> list[Task]:
        """The tasks that are due, besides FLUSH, in their order. They count as done, also if they fail; SEAL
        is due until the slab has ended. Wakes the second thread for a sync."""
        now_s = time.monotonic()
        self._set(looked(self._state, now_s, seen))
        tasks: list[Task] = [
            task for task in Task if self._due[task] <= now_s and task is not Task.FLUSH
        ]
        for task in tasks:
            self.done(task)
        if Task.SYNC in tasks:
            self._syncer.wake()
        return tasks

    def failed(self) -> None:
        """A write failed, in whichever thread: it is tried again soon."""
        self._become(self._state._replace(failed_s=time.monotonic()))

    def rest(self) -> float | None:
        """Seconds until the next look of the first thread, which calls this; None to sleep until woken."""
        now_s = time.monotonic()
        self._looks_s = min(self._due.values())
        return None if self._looks_s == NEVER_S else max(0.0, self._looks_s - now_s)

    def _set(self, state: State) -> None:
        self._state = state
        self._due = due(state, self._options)  # once a change: calls ask more often

    def _become(self, state: State) -> None:
        """Wakes the first thread if it would sleep for too long."""
        self._set(state)
        due_s = min(self._due.values())
        if due_s < self._looks_s:
            self._looks_s = due_s
            self._ticker.wake()

    def stop(self) -> None:
        """Both threads have ended on return, and none starts. Idempotent. Without the lock, which they
        may need to end."""
        self._is_needed, self.is_over = False, True
        self._ticker.stop()
        self._syncer.stop()
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
        self._is_stopping = False

    def start(self) -> None:
        """Does nothing if it runs. Raises RuntimeError if the system has no thread left."""
        if self._thread is not None:
            return
        thread = threading.Thread(target=self._run, name=self._name, daemon=True)
        thread.start()
        self._thread = thread

    def wake(self) -> None:
        self._wakes.put(None)

    def stop(self) -> None:
        self._is_stopping = True
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
            if method is None or self._is_stopping:
                return
            delay = method()
            if delay is not None:
                delay = min(delay, threading.TIMEOUT_MAX)  # a longer one raises
            del method
