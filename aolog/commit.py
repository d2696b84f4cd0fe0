"""Group commit: many ask for the same slow thing, one does it for all.

A *leader* works, the others wait, each for a target of its own. Whoever comes while nobody leads
leads at once, and waits for nobody. When a leader is done, those whose target is settled go, and
the one that has waited longest leads next. So a waiter waits for the end of the work that was
going on when it came, and for the whole of one more, which began after it came and covers it.

Why nobody waits for ever. Everything below changes under the mutex, which is held for a few
instructions. Somebody waits only if somebody leads: a waiter is put in line only then, and
leading ends only with an empty line. Who leads comes to `_pass_on`, whatever happens to it,
and then the first in line leads. So it is enough that the work ends. It may take any lock, as
nobody may hold one of these when asking.

It knows nothing of logs: the work, and what is settled, are the caller's.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["GroupCommit"]


class _Waiter:
    """Somebody in line. gate: opened when it may go on. leads: to work, not to return."""

    __slots__ = ("gate", "leads", "target")

    def __init__(self, target: int) -> None:
        self.target = target
        self.leads = False
        self.gate = threading.Lock()
        self.gate.acquire()


class GroupCommit:
    """See the module. Thread-safe. settled: how far the answer is known, well or ill; read after
    a leader's work."""

    def __init__(self, settled: Callable[[], int]) -> None:
        self._settled = settled
        self._mutex = threading.Lock()
        self._has_leader = False
        self._line: deque[_Waiter] = deque()

    def reach(self, target: int, work: Callable[[], object]) -> None:
        """Returns once the target is settled. Does the work if nobody else does, or when its turn
        comes; what that raises is raised here, and whoever leads next tries for itself."""
        with self._mutex:
            if self._has_leader:
                waiter = _Waiter(target)
                self._line.append(waiter)
            else:
                waiter = None
                self._has_leader = True
        if waiter is not None and not self._is_to_lead(waiter):
            return
        try:
            work()
        finally:
            self._pass_on()

    def _is_to_lead(self, waiter: _Waiter) -> bool:
        """Waits; whether it leads now. What interrupts the wait takes it out of the line."""
        try:
            waiter.gate.acquire()
        except BaseException:  # KeyboardInterrupt, for instance
            with self._mutex:
                if not waiter.leads and waiter in self._line:
                    self._line.remove(waiter)
            if waiter.leads:
                self._pass_on()
            raise
        return waiter.leads

    def _pass_on(self) -> None:
        with self._mutex:
            settled = self._settled()
            going = [waiter for waiter in self._line if waiter.target <= settled]
            if going:
                self._line = deque(waiter for waiter in self._line if waiter.target > settled)
            heir = self._line.popleft() if self._line else None
            if heir is None:
                self._has_leader = False
            else:
                heir.leads = True
        if heir is not None:
            heir.gate.release()  # first, so that the device is not idle
        for waiter in going:
            waiter.gate.release()
