"""Committer: the local cursor follows what is delivered, beside everything else.

A disk may take a second for a sync, in which a cluster can take a hundred thousand records. So a
thread of its own waits for it: one commit at a time, and the newest position next. A commit is the
cursor, then the lane notes, then pruning: in this order, each durable before the next.
"""

from __future__ import annotations

import contextvars
import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from bridge.engine import Position
    from bridge.source import Source

__all__ = ["Committer"]

PATIENCE_S = 10.0  # a disk that takes longer holds up the rest as well, so that it is seen


class Committer:
    """Of a source. told: called in the caller's thread with each position that is durable. notes:
    asked there for what saves the notes behind the cursor. The source must be open until `close`.
    What fails in a commit, `go_on` and `finish` raise."""

    def __init__(
        self,
        source: Source,
        told: Callable[[Position], None],
        notes: Callable[[], Callable[[], None]] | None = None,
    ) -> None:
        self._source = source
        self._told = told
        self._notes = notes
        self._wanted: Position | None = None
        self._under_way: _Commit | None = None

    def want(self, position: Position) -> None:
        """To be committed as soon as the one before is, unless a newer one is wanted by then."""
        if self._under_way is None or position != self._under_way.position:
            self._wanted = position
            self.go_on()

    def go_on(self) -> None:
        """Takes note of what is done, and begins what is next."""
        if self._under_way is not None:
            if self._under_way.late:
                self._under_way.wait()
            if self._under_way.is_alive():
                return
            done, self._under_way = self._under_way, None
            if done.error is not None:
                raise done.error
            self._told(done.position)
        if self._wanted is not None:
            position, self._wanted = self._wanted, None
            steps = [self._source.committing(position)]
            if self._notes is not None:
                steps.append(self._notes())
            self._under_way = _Commit(position, [*steps, self._source.prune])

    def finish(self) -> None:
        """Returns when all that was wanted is done."""
        while self._under_way is not None:
            self._under_way.wait()
            self.go_on()

    def close(self) -> None:
        """Waits for what is under way, and for nothing else; nobody is told whether it failed."""
        if self._under_way is not None:
            self._under_way.wait()


class _Commit(threading.Thread):
    """One, from now on; in the thread that asks, where no other is to be had. error: what it failed
    with, to be looked at when it has ended."""

    def __init__(self, position: Position, steps: list[Callable[[], None]]) -> None:
        super().__init__(name="aolog-bridge-commit", daemon=True)
        self.position = position
        self.error: BaseException | None = None
        self._steps = steps
        self._context = contextvars.copy_context()  # of which log it is, for what is logged
        self._late_at_s = time.monotonic() + PATIENCE_S
        try:
            self.start()
        except RuntimeError:
            self.run()

    def wait(self) -> None:
        """Returns when it has ended."""
        if self.ident is not None:  # else it was never begun as a thread
            self.join()

    @property
    def late(self) -> bool:
        return time.monotonic() > self._late_at_s

    def run(self) -> None:
        try:
            for step in self._steps:
                self._context.run(step)
        except BaseException as error:  # noqa: BLE001 -- raised in the caller's thread
            self.error = error
