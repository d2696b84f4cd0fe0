"""A thread of the writer's own: for what is to be done when nobody calls.

It holds the writer weakly, so that a forgotten writer can go; it sleeps without waking while
there is nothing to do. What it does and when is a method of the writer's.
"""

from __future__ import annotations

import threading
import weakref
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Ticker"]


class Ticker:
    """Calls a method from a thread of its own, which `wake` starts and wakes. tick: does what is
    due; seconds until the next call, None to sleep until `wake`."""

    def __init__(self, tick: Callable[[], float | None], name: str) -> None:
        self._event = threading.Event()
        self._stopped = False
        self._tick = weakref.WeakMethod(tick, lambda _: self._event.set())
        self._name = name
        self._thread: threading.Thread | None = None

    def wake(self) -> None:
        """There is something to do: ask when. Raises RuntimeError where no thread is to be had."""
        if self._thread is None and not self._stopped:
            thread = threading.Thread(
                target=_run,
                args=(self._tick, self._event, self),
                name=self._name,
                daemon=True,
            )
            thread.start()
            self._thread = thread  # not before: `stop` may come from another thread and join it
        self._event.set()

    def stop(self) -> None:
        """The thread ends; waits for a tick that is going on, unless called from it."""
        self._stopped = True
        self._event.set()
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join()
        self._thread = None


def _run(
    method: weakref.WeakMethod[Callable[[], float | None]],
    event: threading.Event,
    ticker: Ticker,
) -> None:
    delay: float | None = None
    while True:
        if event.wait(delay):
            event.clear()
        tick = method()
        if tick is None or ticker._stopped:  # noqa: SLF001 -- the thread's own half of Ticker
            event.set()  # for another one: where a signal ended `wake`, the next one started it
            return
        delay = tick()
        if delay is not None:
            delay = min(delay, threading.TIMEOUT_MAX)  # a longer one would end this thread
        del tick
