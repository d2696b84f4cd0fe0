"""Waiting for a log to grow: by inotify if it is available, otherwise by polling.

Set up a watch before reading the log: then no change between the two is missed.
"""

from __future__ import annotations

import select
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from inotify_simple import INotify

_EVENTS_BYTES = 4 << 10  # a read: a hundred events; remaining events wake the reader once more
_WAIT_S_MAX = 86_400.0  # poll takes a C int of milliseconds; a longer wait returns early
_POLL_S = 0.05  # maximum delay of a follower without inotify; 20 looks a second


class Watch:
    """Waits for a change of a directory."""

    def __init__(self, path: str) -> None:
        self._events = bytearray(_EVENTS_BYTES)
        self._inotify = _inotify(path)
        if self._inotify is not None:
            self._poll = select.poll()
            self._poll.register(self._inotify.fileno(), select.POLLIN)

    def wait(self, timeout_s: float | None) -> None:
        """Returns when something may have changed since the last call, or at the time-out; perhaps
        earlier."""
        if timeout_s is not None:
            timeout_s = max(0.0, min(timeout_s, _WAIT_S_MAX))
        if self._inotify is None:
            time.sleep(_POLL_S if timeout_s is None else min(_POLL_S, timeout_s))
        elif self._poll.poll(None if timeout_s is None else int(timeout_s * 1000)):
            self._inotify.readinto(self._events)  # not decoded: any event ends the wait

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
