"""Committer: makes the local cursor durable in a thread of its own.

A disk may take a second for a sync, in which a cluster takes a hundred thousand records. So one thread
waits for the disk: one commit at a time, and the newest position next. A commit is the cursor, then
the checkpoints, then pruning: in this order, each durable before the next.
"""

from __future__ import annotations

import contextvars
import logging
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

from aolog.record import Position
from bridge.deliver.forwarder_options import ForwarderOptions
from bridge.deliver.log_source import LogSource
from bridge.kafka.telemetry import COMMIT_SECONDS

_log = logging.getLogger("bridge")


class Committer:
    """Of a source, which must stay open until `close`. position: where the cursor may be now. checkpoints: called
    at a commit for a function that saves them. `go_on` and `finish` raise what a commit raised. Not thread-safe."""

    def __init__(
        self,
        source: LogSource,
        position: Callable[[], Position],
        options: ForwarderOptions,
        checkpoints: Callable[[], Callable[[], None]] | None = None,
    ) -> None:
        self._source = source
        self._position = position
        self._every_s, self._disk_s = options.commit_s, options.waits.disk_s
        self._checkpoints = checkpoints
        self.committed = position()  # where the cursor is durable
        self._due_s = time.monotonic() + self._every_s
        self._thread = ThreadPoolExecutor(1, "aolog-bridge-commit")
        self._under_way: Position | None = None
        self._done: Future[None] = Future()  # of the commit under way
        self._late_at_s = 0.0

    def go_on(self) -> None:
        """Notes a commit that has ended, and begins the next if it is due."""
        if self._under_way is not None:
            if not self._done.done() and time.monotonic() <= self._late_at_s:
                return
            ended, self._under_way = self._under_way, None
            self._done.result()
            self.committed = ended
        now_s = time.monotonic()
        if now_s < self._due_s:
            return
        self._due_s = now_s + self._every_s
        position = self._position()
        if position.address > self.committed.address:
            steps = [self._source.committing(position)]
            if self._checkpoints is not None:
                steps.append(self._checkpoints())
            run = contextvars.copy_context().run  # it names the log in log lines
            self._done = self._thread.submit(run, _all, [*steps, self._source.prune])
            self._under_way, self._late_at_s = position, now_s + self._disk_s

    def finish(self) -> None:
        """Returns when the cursor is durable at the present position."""
        self._due_s = 0.0
        self.go_on()
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
