"""Signals that ask append to stop, and waiting for input without missing one.

A handler only takes a note and writes into a pipe that the wait for input listens to: nothing is
torn out of the middle of an append. Asked a second time, the process dies at once, as the log
can bear.
"""

from __future__ import annotations

import os
import select
import signal
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Self

from aolog.errors import AologError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

__all__ = ["Stopping", "closed_when_stuck"]

_GRACE_S = 1.0  # how long a signal waits for an append that waits for room
_LOOK_S = 0.1  # how often it is looked for one, in that mode only
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Stopping:
    """While entered, the first SIGINT, SIGTERM or SIGHUP becomes `signum`. In a thread other
    than the main one signals are left alone, and so is one that is ignored (nohup)."""

    def __init__(self) -> None:
        self.signum: signal.Signals | None = None
        self._before: dict[signal.Signals, object] = {}
        self._wakes, self._waker = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for signum in _SIGNALS:
                if signal.getsignal(signum) is not signal.SIG_IGN:
                    self._before[signum] = signal.signal(signum, self._asked)
        return self

    def __exit__(self, *_: object) -> None:
        for signum, handler in self._before.items():
            signal.signal(signum, handler)  # type: ignore[arg-type]
        os.close(self._wakes)
        os.close(self._waker)

    def _asked(self, signum: int, _frame: FrameType | None) -> None:
        if self.signum is not None:
            signal.signal(signum, signal.SIG_DFL)
            os.kill(os.getpid(), signum)
            return
        self.signum = signal.Signals(signum)
        os.write(self._waker, b"!")

    def wait_readable(self, fd: int) -> bool:
        """Waits until there is something to read, or the end; False if asked to stop."""
        if self.signum is not None:
            return False
        poll = select.poll()
        poll.register(fd, select.POLLIN)
        poll.register(self._wakes, select.POLLIN)
        poll.poll()
        return self.signum is None

    @property
    def exit_status(self) -> int:
        """As a shell names a death by this signal."""
        assert self.signum is not None
        return 128 + self.signum


@contextmanager
def closed_when_stuck(close: Callable[[], None], stopping: Stopping) -> Iterator[None]:
    """An append that waits for room (when_full "block") cannot see that it is asked to stop:
    closing the writer from beside ends its wait. An error of that is met again at its own end."""
    finished = threading.Event()

    def look() -> None:
        while not finished.wait(_LOOK_S):
            if stopping.signum is not None:
                if not finished.wait(_GRACE_S):
                    with suppress(AologError):
                        close()
                return

    thread = threading.Thread(target=look, name="aolog-append-stop", daemon=True)
    thread.start()
    try:
        yield
    finally:
        finished.set()
        thread.join()
