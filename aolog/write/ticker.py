"""A thread of the writer's own: for what is to be done when nobody calls.

It holds the writer weakly, so that a forgotten writer can go; it sleeps without waking while
there is nothing to do. What it does and when is a method of the writer's.
"""

from __future__ import annotations

import queue
import threading
import weakref
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Ticker"]


class Ticker:
    """Calls a method from a thread of its own, which `wake` starts and wakes. tick: does what is
    due; seconds until the next call, None to sleep until `wake`."""

    def __init__(self, tick: Callable[[], float | None], name: str) -> None:
        # Its `put` is reentrant, which no Event's `set` is: what is collected in the middle of a
        # wait, and calls `close`, wakes whoever waits.
        self._wakes: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._stopped = False
        self._tick = weakref.WeakMethod(tick, lambda _: self._wakes.put(None))
        self._name = name
        self._thread: threading.Thread | None = None

    def wake(self) -> None:
        """There is something to do: ask when. Raises RuntimeError where no thread is to be had."""
        if self._thread is None and not self._stopped:
            thread = threading.Thread(
                target=_run,
                args=(self._tick, self._wakes, self),
                name=self._name,
                daemon=True,
            )
            thread.start()
            self._thread = thread  # not before: `stop` may come from another thread and join it
        self._wakes.put(None)

    def end(self) -> None:
        """The thread ends behind the tick that is going on, which nobody waits for."""
        self._stopped = True
        self._wakes.put(None)

    def stop(self) -> None:
        """The thread ends; waits for a tick that is going on, unless called from it."""
        self.end()
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join()
        self._thread = None


def _run(
    method: weakref.WeakMethod[Callable[[], float | None]],
    wakes: queue.SimpleQueue[None],
    ticker: Ticker,
) -> None:
    delay: float | None = None
    while True:
        with suppress(queue.Empty):
            wakes.get(timeout=delay)
            while True:  # several are one
                wakes.get_nowait()
        tick = method()
        if tick is None or ticker._stopped:  # noqa: SLF001 -- the thread's own half of Ticker
            wakes.put(None)  # for another one: where a signal ended `wake`, the next one started it
            return
        delay = tick()
        if delay is not None:
            delay = min(delay, threading.TIMEOUT_MAX)  # a longer one would end this thread
        del tick
