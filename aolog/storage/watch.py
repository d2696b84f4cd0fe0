"""Waiting for a log to grow: by inotify if it is available, otherwise by polling.

Set up a watch before reading the log: then no change between the two is missed. inotify does not report
each change: not what another machine or the host writes (NFS, 9p, virtiofs), nor what is written to an
overlay's lower layer. So look after each wait, and wait from WAIT_S_MIN up to WAIT_S_MAX, twice as long
each time: a change that is not reported is then seen about as soon as the one before it, and at the latest
after a second.
"""

from __future__ import annotations

import select
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from inotify_simple import INotify

_EVENTS_BYTES = 4 << 10  # a read: a hundred events; remaining events wake the reader once more
WAIT_S_MIN, WAIT_S_MAX = 0.1, 1.0  # one look a second costs nothing measurable
_POLL_S = 0.05  # maximum delay of a follower without inotify; 20 looks a second


class Watch:
    """Waits for a change of a directory."""

    def __init__(self, path: str) -> None:
        self._events = bytearray(_EVENTS_BYTES)
        self._inotify = _inotify(path)
        if self._inotify is not None:
            self._poll = select.poll()
            self._poll.register(self._inotify.fileno(), select.POLLIN)

    def wait(self, timeout_s: float) -> bool:
        """Returns at a change since the last call, or at the time-out; without inotify perhaps earlier.
        Whether a change was reported."""
        if self._inotify is None:
            time.sleep(min(_POLL_S, timeout_s))
            return False
        if not self._poll.poll(int(timeout_s * 1000)):
            return False
        self._inotify.readinto(self._events)  # not decoded: any event ends the wait
        return True

    def close(self) -> None:
        """Idempotent."""
        if self._inotify is not None:
            self._inotify.close()

    def __del__(self) -> None:
        self.close()  # for a reader that is dropped without `close`


def _inotify(path: str) -> INotify | None:
    """An inotify of the directory; None if this is not Linux, or its limit of watches is reached."""
    try:
        from inotify_simple import INotify, flags

        inotify = INotify(nonblocking=True)
    except (ImportError, OSError):
        return None
    try:
        inotify.add_watch(path, flags.MODIFY | flags.MOVED_TO | flags.CREATE | flags.DELETE)
    except OSError:
        inotify.close()
        return None
    return inotify
