"""Signals that stop `aolog append`, and a wait for input that no signal can miss.

The handler only sets a flag and writes into a pipe, which the wait for input polls. So a signal never
interrupts the middle of an append. A later signal kills the process at once; the log survives that.
"""

from __future__ import annotations

import os
import select
import signal
import threading
import time
from types import FrameType
from typing import Self

# timeout(1) sends its signal twice, systemd's SendSIGHUP a SIGHUP after SIGTERM: that is one stop.
_ONE_STOP_S = 0.5
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class StopSignals:
    """Inside the `with` block, the first SIGINT, SIGTERM or SIGHUP is stored in `signum`. Handles no
    signal that is ignored (nohup), and none outside the main thread."""

    def __init__(self) -> None:
        self.signum: signal.Signals | None = None
        self._stopped_s = 0.0
        self._before: dict[signal.Signals, object] = {}
        self._wakes, self._waker = os.pipe()
        os.set_blocking(self._wakes, False)
        os.set_blocking(self._waker, False)

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for signum in _SIGNALS:
                if signal.getsignal(signum) is not signal.SIG_IGN:
                    self._before[signum] = signal.signal(signum, self._stop)
        return self

    def __exit__(self, *_: object) -> None:
        for signum, handler in self._before.items():
            signal.signal(signum, handler)  # type: ignore[arg-type]
        os.close(self._wakes)
        os.close(self._waker)

    def _stop(self, signum: int, _frame: FrameType | None) -> None:
        if self.signum is None:
            self.signum, self._stopped_s = signal.Signals(signum), time.monotonic()
            os.write(self._waker, b"!")
        elif time.monotonic() - self._stopped_s > _ONE_STOP_S:
            signal.signal(signum, signal.SIG_DFL)
            os.kill(os.getpid(), signum)

    def wait(self, timeout_s: float) -> bool:
        """Waits for a stop signal, at most so long. Whether there was one."""
        if self.signum is None:
            poll = select.poll()
            poll.register(self._wakes, select.POLLIN)
            poll.poll(timeout_s * 1000)
        return self.signum is not None

    def wait_readable(self, fd: int) -> bool:
        """Waits for input or its end; False after a stop signal."""
        if self.signum is not None:
            return False
        poll = select.poll()
        poll.register(fd, select.POLLIN)
        poll.register(self._wakes, select.POLLIN)
        poll.poll()
        return self.signum is None
