"""Group commit: one sync makes the records of many waiting threads durable.

The turn to use the device goes from thread to thread, first in, first out. The holder syncs for all,
unless an earlier holder already synced what it needs, and passes the turn on. So a thread waits for
the sync that is running when it arrives, and for at most one more, which covers its records.

Threads whose records are durable then leave two at a time: while one wakes up, the other one appends
again, and the next sync covers their new records too. So nearly every sync is for all threads. If all
woke up at once, they would only wait for the interpreter's lock.
"""

from __future__ import annotations

import threading
from collections import deque

from aolog.format.native.inlet import Lock


class GroupCommit:
    """The turns and the line of threads that wait for one.

    Call `enter`, and then `leave`, whatever happens in between. At most one thread whose target is not
    durable has a turn; it alone may sync. threads: those between the two calls. Such a thread must not
    enter again, in a signal handler: it would wait for itself. mutex: the compiled sync holds it instead of a
    turn, while there are no such threads; those that come then wait in `enter`.
    """

    def __init__(self) -> None:
        self.threads: set[int] = set()
        self.mutex = Lock()
        self._turns = 0  # taken: one, or two by threads whose targets are durable
        self._line: deque[tuple[int, threading.Lock]] = deque()

    def enter(self, target: int) -> None:
        """Waits for a turn. target: the address before which all must be durable."""
        self.threads.add(threading.get_ident())
        with self.mutex:
            if not self._turns:
                self._turns = 1
                return
            gate = threading.Lock()
            gate.acquire()
            self._line.append((target, gate))
        gate.acquire()

    def leave(self, durable: int) -> None:
        """Passes the turn on. durable: every byte before this address is."""
        with self.mutex:
            turns, line = self._turns - 1, self._line
            while line and (turns < 1 or (turns < 2 and line[0][0] <= durable)):
                line.popleft()[1].release()
                turns += 1
            self._turns = max(turns, 0)  # after `release_all` it is 0 already
        self.threads.discard(threading.get_ident())

    def release_all(self) -> None:
        """Lets all go on at once: this thread was interrupted, and perhaps it had the turn. It has left."""
        with self.mutex:
            self._turns = 0
            while self._line:
                self._line.popleft()[1].release()
        self.threads.discard(threading.get_ident())
