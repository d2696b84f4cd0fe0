"""Group commit: many threads ask for a sync, one sync answers all that came before it.

The turn to use the device goes from thread to thread, first in, first out. The holder syncs for all,
unless an earlier holder already synced what it needs, and passes the turn on. So a thread waits for
the sync that was under way when it came, and for one more at most, which covers it.

Each thread wakes up only the next one. While the turn travels along the line, those that had it
append again, and the next sync covers their new records too: nearly every sync is for all threads.
If all woke up at once, they would only wait again, for the interpreter's lock.
"""

from __future__ import annotations

import threading
from collections import deque


class GroupCommit:
    """The turn and the line of threads that wait for it.

    Call `enter`, and then `leave`, whatever happens in between. threads: those between the two; such
    a thread must not enter again (in a signal handler), it would wait for itself.
    """

    def __init__(self) -> None:
        self.threads: set[int] = set()
        self._mutex = threading.Lock()
        self._is_taken = False
        self._line: deque[threading.Lock] = deque()

    def enter(self) -> None:
        """Waits for the turn."""
        self.threads.add(threading.get_ident())
        with self._mutex:
            if not self._is_taken:
                self._is_taken = True
                return
            gate = threading.Lock()
            gate.acquire()
            self._line.append(gate)
        gate.acquire()

    def leave(self) -> None:
        """Passes the turn on."""
        with self._mutex:
            if self._line:
                self._line.popleft().release()
            else:
                self._is_taken = False
        self.threads.discard(threading.get_ident())

    def release_all(self) -> None:
        """Lets all go on at once: a thread was interrupted, and perhaps it had the turn."""
        with self._mutex:
            self._is_taken = False
            while self._line:
                self._line.popleft().release()
