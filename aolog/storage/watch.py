"""Waiting for a log to grow: by inotify if it is available, otherwise by polling.

Set up a watch before reading the log: then no change between the two is missed.
"""

from __future__ import annotations

import select
import time
from typing import TYPE_CHECKING, Protocol, Self

if TYPE_CHECKING:
    from inotify_simple import INotify

_EVENTS_BYTES = 4 << 10  # a read: a hundred events; remaining events wake the reader once more
_WAIT_S_MAX = 86_400.0  # poll takes a C int of milliseconds; a longer wait returns early
_POLL_FIRST_S = 0.001
_POLL_MAX_S = 0.05  # maximum delay of a follower without inotify; 20 looks a second


class Watch(Protocol):
    """Waits for a change of a directory."""

    def wait(self, timeout_s: float | None) -> None:
        """Returns when something may have changed since the last call, or at the time-out;
        perhaps earlier."""

    def close(self) -> None:
        """Idempotent."""

    def __enter__(self) -> Self: ...
    def __exit__(self, *_: object) -> None: ...


class _Closing:
    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Idempotent."""


class _Inotify(_Closing):
    _inotify: INotify | None = None

    def __init__(self, path: str) -> None:
        from inotify_simple import INotify, flags

        inotify = INotify(nonblocking=True)
        try:
            inotify.add_watch(path, flags.MODIFY | flags.MOVED_TO | flags.CREATE | flags.DELETE)
        except OSError:
            inotify.close()
            raise
        self._inotify = inotify
        self._events = bytearray(_EVENTS_BYTES)
        self._poll = select.poll()
        self._poll.register(inotify.fileno(), select.POLLIN)

    def wait(self, timeout_s: float | None) -> None:
        """Discards the events without decoding them, at half the cost: any event ends the wait."""
        assert self._inotify is not None
        if timeout_s is not None:
            timeout_s = max(0.0, min(timeout_s, _WAIT_S_MAX))
        if self._poll.poll(None if timeout_s is None else int(timeout_s * 1000)):
            self._inotify.readinto(self._events)

    def close(self) -> None:
        if self._inotify is not None:
            self._inotify.close()

    def __del__(self) -> None:
        self.close()  # for a reader that is dropped without `close`


class _Poll(_Closing):
    def __init__(self) -> None:
        self._delay_s = _POLL_FIRST_S

    def wait(self, timeout_s: float | None) -> None:
        delay_s = self._delay_s if timeout_s is None else min(self._delay_s, max(0.0, timeout_s))
        time.sleep(delay_s)
        self._delay_s = min(self._delay_s * 2, _POLL_MAX_S)


def watch(path: str) -> Watch:
    """A watch on a log's directory."""
    try:
        return _Inotify(path)
    except (ImportError, OSError):  # not Linux, or its limit of watches is reached
        return _Poll()
