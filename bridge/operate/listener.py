"""The listening socket: closes connections that are too many as soon as they are accepted.

uvicorn's own bound counts requests: a connection that sends nothing is not bounded, and asyncio accepts
many before it makes anything of the first. So the bound is where the descriptor is made. A quarter of
the process's descriptors are left to logs and Kafka: only the first few connections, such as a probe's and
a scrape's, may take of them.
"""

from __future__ import annotations

import errno
import logging
import resource
import socket
import time
from typing import Any

from aolog.errors import UsageError

_log = logging.getLogger("bridge.http")
_EVENT = {"event": "connections_refused"}

_KEPT_FREE = 4  # one descriptor in this many; a log with its Kafka clients takes some 20
EXHAUSTED = {errno.EMFILE, errno.ENFILE}  # the process's descriptors, the system's
_ALWAYS = 4  # connections that the process's other descriptors do not shut out
_PAUSE_S = 0.5  # less than asyncio's pause (1 s), so that the next call after it is tried


class Listener(socket.socket):
    """Listens from its creation, or raises UsageError. most: connections at once. Used by one thread."""

    def __init__(self, where: str, host: str, port: int, most: int) -> None:
        super().__init__(socket.AF_INET6 if ":" in host else socket.AF_INET)
        self._most = most
        self._taken: list[socket.socket] = []  # some of them are closed by now
        self._exhausted_s = float("-inf")
        try:
            self.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self.bind((host, port))
            self.listen()
        except OSError as failed:
            self.close()
            raise UsageError(
                f"cannot listen on {where}: {failed.strerror}",
                hint="choose another HOST:PORT; if it is in use, a bridge may run already",
            ) from None

    def accept(self) -> tuple[socket.socket, Any]:
        """Overrides socket's method, which asyncio calls until it raises an OSError.

        Raises ConnectionAbortedError for a connection that it closed: asyncio calls again after its
        other work. Raises EMFILE once for each of asyncio's pauses, and BlockingIOError until then."""
        now_s = time.monotonic()
        if now_s - self._exhausted_s < _PAUSE_S:
            raise BlockingIOError(errno.EAGAIN, "no descriptor was free a moment ago")
        try:
            connection, address = super().accept()
        except OSError as error:
            if error.errno in EXHAUSTED:
                self._exhausted_s = now_s
                _log.warning("no connection can be accepted: %s", error.strerror, extra=_EVENT)
            raise
        # The lowest free descriptor is taken: a high one shows that few are left.
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        left = limit - connection.fileno()
        few = limit != resource.RLIM_INFINITY and left <= limit // _KEPT_FREE
        if few or len(self._taken) >= self._most:
            self._taken = [one for one in self._taken if one.fileno() >= 0]
        taken = len(self._taken)
        if taken < (min(self._most, _ALWAYS) if few else self._most):
            self._taken.append(connection)
            return connection, address
        connection.close()
        if few:
            why = "the process uses three quarters of its descriptors (raise ulimit -n)"
        else:
            why = f"at most {self._most} may be open"
        text = "too many connections: %s; %d are open, one was closed at once"
        _log.warning(text, why, taken, extra=_EVENT)
        raise ConnectionAbortedError(errno.ECONNABORTED, "too many connections")
