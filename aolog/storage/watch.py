"""Waiting for a log to grow: inotify where there is one, else looking again and again.

A watch is set up before the log is looked at, so that nothing that happens in between is missed.
"""

from __future__ import annotations

import select
import time
from typing import TYPE_CHECKING, Protocol, Self

if TYPE_CHECKING:
    from inotify_simple import INotify

__all__ = ["Watch", "watch"]

_EVENTS_BYTES = 4 << 10  # a read: a hundred events; what is left of more wakes once again
_WAIT_S_MAX = 86_400.0  # poll takes a C int of milliseconds; who waits for longer asks again
_POLL_FIRST_S = 0.001
_POLL_MAX_S = 0.05  # how late a follower may be without inotify; costs 20 looks a second


class Watch(Protocol):
    """Something that waits."""

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
        """What happened does not matter: events are thrown away unread, at half the cost."""
        assert self._inotify is not None
        if timeout_s is not None:
            timeout_s = max(0.0, min(timeout_s, _WAIT_S_MAX))
        if self._poll.poll(None if timeout_s is None else int(timeout_s * 1000)):
            self._inotify.readinto(self._events)

    def close(self) -> None:
        if self._inotify is not None:
            self._inotify.close()

    def __del__(self) -> None:
        self.close()  # a dropped reader's too, as its files


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
