"""Committer: makes the local cursor durable in a thread of its own.

A disk may take a second for a sync, in which a cluster takes a hundred thousand records. So one thread
waits for the disk: one commit at a time, and the newest position next. A commit is the cursor, then
the checkpoints, then pruning: in this order, each durable before the next.
"""

from __future__ import annotations

import contextvars
import logging
import time
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING

from bridge.kafka.telemetry import COMMIT_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable

    from bridge.deliver.log_source import LogSource
    from bridge.deliver.position import Position

_log = logging.getLogger("bridge")

PATIENCE_S = 10.0  # after this the delivery waits for the disk too, so that the stall is visible


class Committer:
    """Of a source, which must stay open until `close`. on_durable: called with each durable position, in
    the caller's thread. checkpoints: called there for a function that saves them. `go_on` and `finish`
    raise what a commit raised. Not thread-safe."""

    def __init__(
        self,
        source: LogSource,
        on_durable: Callable[[Position], None],
        checkpoints: Callable[[], Callable[[], None]] | None = None,
    ) -> None:
        self._source = source
        self._on_durable = on_durable
        self._checkpoints = checkpoints
        self._thread = ThreadPoolExecutor(1, "aolog-bridge-commit")
        self._wanted: Position | None = None
        self._under_way: Position | None = None
        self._done: Future[None] = Future()  # of the commit under way
        self._late_at_s = 0.0

    def want(self, position: Position) -> None:
        """Commits it as soon as the commit before has ended, unless a newer one is wanted by then."""
        if position != self._under_way:
            self._wanted = position
            self.go_on()

    def go_on(self) -> None:
        """Reports a commit that has ended, and begins the next."""
        if self._under_way is not None:
            if not self._done.done() and time.monotonic() <= self._late_at_s:
                return
            position, self._under_way = self._under_way, None
            self._done.result()
            self._on_durable(position)
        if self._wanted is not None:
            position, self._wanted = self._wanted, None
            steps = [self._source.committing(position)]
            if self._checkpoints is not None:
                steps.append(self._checkpoints())
            # The context names the log in log lines.
            run = contextvars.copy_context().run
            self._done = self._thread.submit(run, _all, [*steps, self._source.prune])
            self._under_way, self._late_at_s = position, time.monotonic() + PATIENCE_S

    def finish(self) -> None:
        """Returns when everything that was wanted is durable."""
        while self._under_way is not None:
            self._late_at_s = 0.0
            self.go_on()

    def close(self) -> None:
        """Waits for the commit under way, and logs its error."""
        self._thread.shutdown()
        if self._under_way is not None and (error := self._done.exception()) is not None:
            _log.error("a commit failed: %s", error)


def _all(steps: list[Callable[[], None]]) -> None:
    with COMMIT_SECONDS.time():
        for step in steps:
            step()
