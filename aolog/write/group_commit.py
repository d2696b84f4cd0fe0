"""Group commit: many ask for the same slow thing, one does it for all.

A *leader* works, the others wait, each for a target of its own. Whoever comes while nobody leads
and nobody is held back leads at once. When a leader is done, those whose target is settled go, and
one of those that wait leads next. So a waiter waits for the end of the work that was going on when
it came, and for the whole of one more at most, which began after it came and covers it.

They go nearly one by one: the leader opens the first gate, each opens the next one's on its way
out, and the next leader's is the last. All at once, they would only wait again, for the
interpreter's lock. Where more than two go, the leader opens two: a thread wakes up while another one
appends. By the time the next leader works, those before it may be back with another target, which
its work then covers. So who is back while gates are shut does not lead: it would work for itself
alone, and all others only after it; nearly every second sync was of one record.

Why nobody waits for ever. Everything below changes under the mutex, which is held for a few
instructions. Somebody waits in line only if somebody leads, is to go, or is in `_leave`: a waiter is
put in line only then; and before the last gate of those that go is opened, those in line that are
settled go behind them, and behind these goes one of the others, as leader. Who leads comes to
`_leave`, whatever happens to it. Of those that go, each that leaves opens a gate, also one whose
wait a signal ends before its own is open: so at least one gate more than have left is open, and one
who may go is still there, until all are gone. So it is enough that the work ends. It may take any
lock, as nobody may hold one of these when asking. A signal whose handler raises (KeyboardInterrupt)
may end `_leave` itself: it is then done again, which is why each of its steps may be repeated. (A
second one that raises just then is one too many.) A handler that asks itself, or a finalizer, would
wait for the thread that it keeps from going on: it is refused.

It knows nothing of logs: the work, and what is settled, are the caller's.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING, Generic, TypeVar

from aolog.errors import nested_call

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["GroupCommit"]


_Given = TypeVar("_Given")


class _Waiter:
    """Somebody who asks. gate: opened when it may go on, to lead or because it is settled; None
    for who leads at once."""

    __slots__ = ("gate", "target")  # set by `reach`: an initializer would take thrice as long

    target: int
    gate: threading.Lock | None

    def open(self) -> None:
        """Under the mutex. May be repeated: who passed does not look at its gate again."""
        if self.gate is not None and self.gate.locked():
            self.gate.release()


class GroupCommit(Generic[_Given]):
    """See the module. Thread-safe. settled: how far the answer is known, well or ill; read
    where somebody leaves. work: for a target, by whoever leads."""

    def __init__(self, settled: Callable[[], int], work: Callable[[int, _Given], object]) -> None:
        self._settled = settled
        self._work = work
        self._mutex = threading.Lock()
        self._leader: _Waiter | None = None
        self._line: deque[_Waiter] = deque()
        self._going: deque[_Waiter] = deque()  # out of the line, their gates not opened yet
        self._threads: set[int] = set()  # of those that ask

    def reach(self, target: int, given: _Given) -> None:
        """Returns once the target is settled. Does the work if nobody else does, or when its turn
        comes, and is given what is passed here; what that raises is raised here, and whoever leads
        next tries for itself. Raises UsageError from within a call of the same thread's."""
        self.refuse_nested()
        one = _Waiter()
        one.target = target
        one.gate = None
        thread = threading.get_ident()
        try:
            self._threads.add(thread)
            self._enter(one)
            if one.gate is not None:
                one.gate.acquire()
            if self._leader is one:
                self._work(target, given)
        finally:
            try:
                self._leave(one)
            except BaseException:  # KeyboardInterrupt, for instance
                self._leave(one)
                raise
            finally:
                self._threads.discard(thread)

    def refuse_nested(self) -> None:
        """Raises UsageError if the thread that calls is in the middle of `reach`."""
        if threading.get_ident() in self._threads:
            raise nested_call()

    def _enter(self, one: _Waiter) -> None:
        with self._mutex:
            if self._leader is None and not self._going:
                self._leader = one
            else:
                one.gate = threading.Lock()
                one.gate.acquire()
                self._line.append(one)

    def _leave(self, one: _Waiter) -> None:
        """Whoever it was, nobody waits for it any more on return, and the next one may go."""
        with self._mutex:
            led = self._leader is one
            if led:
                self._leader = None
            elif one in self._line:  # interrupted before its turn
                self._line.remove(one)
            if self._line and self._leader is None and len(self._going) <= 1:
                self._appoint()
            for _ in range(2 if led and len(self._going) > 2 else 1):
                if self._going:
                    self._going[0].open()
                    self._going.popleft()

    def _appoint(self) -> None:
        """Under the mutex, where nobody leads: who is settled goes, and the first of the others leads,
        behind all that go."""
        settled = self._settled()
        staying = deque(waiter for waiter in self._line if waiter.target > settled)
        heir = staying.popleft() if staying else None
        going = self._going.copy()  # the last of them at most
        going.extend(waiter for waiter in self._line if waiter.target <= settled)
        if heir is not None:
            going.append(heir)
        # No call in between, so no signal is handled there.
        self._line, self._going, self._leader = staying, going, heir
