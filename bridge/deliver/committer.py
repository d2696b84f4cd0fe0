"""Committer: the local cursor follows what is delivered, beside everything else.

A disk may take a second for a sync, in which a cluster can take a hundred thousand records. So a
thread of its own waits for it: one commit at a time, and the newest position next. A commit is the
cursor, then the lane notes, then pruning: in this order, each durable before the next.
"""

from __future__ import annotations

import contextvars
import logging
import threading
import time
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from bridge.deliver.log_source import LogSource
    from bridge.deliver.position import Position

__all__ = ["Committer"]

_log = logging.getLogger("bridge")

PATIENCE_S = 10.0  # a disk that takes longer holds up the rest as well, so that it is seen


class Committer:
    """Of a source. told: called in the caller's thread with each position that is durable. notes:
    asked there for what saves the notes behind the cursor. The source must be open until `close`.
    What fails in a commit, `go_on` and `finish` raise."""

    def __init__(
        self,
        source: LogSource,
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
        under_way = self._under_way
        if under_way is not None:
            if under_way.late:
                under_way.wait()
            if not under_way.done.done():
                return
            self._under_way = None
            under_way.done.result()
            self._told(under_way.position)
        if self._wanted is not None:
            position, self._wanted = self._wanted, None
            steps = [self._source.committing(position)]
            if self._notes is not None:
                steps.append(self._notes())
            self._under_way = _Commit(position, [*steps, self._source.prune])
            self._under_way.begin()

    def finish(self) -> None:
        """Returns when all that was wanted is done."""
        while self._under_way is not None:
            self._under_way.wait()
            self.go_on()

    def close(self) -> None:
        """Waits for what is under way, and for nothing else. What it fails with is logged."""
        if self._under_way is not None:
            try:
                error = self._under_way.wait()
            except BaseException:  # of a signal's handler: what is left of it is for nobody
                self._under_way.abandon()
                raise
            if error is not None:
                _log.error("a commit failed: %s", error)


class _Commit:
    """One, in a thread of its own, or in the caller's where no other is to be had. done: its end,
    and what it failed with."""

    def __init__(self, position: Position, steps: list[Callable[[], None]]) -> None:
        self.position = position
        self.done: Future[None] = Future()
        self._steps = steps
        self._late_at_s = time.monotonic() + PATIENCE_S
        self._abandoned = False

    def begin(self) -> None:
        """Once. In the context of the caller: it says of which log is what is logged."""
        run = contextvars.copy_context().run
        thread = threading.Thread(
            target=run, args=(self._run,), name="aolog-bridge-commit", daemon=True
        )
        try:
            thread.start()
        except RuntimeError:
            self._run()
        except BaseException:  # of a signal's handler: there may be a thread, or none
            self.done.cancel()
            raise

    @property
    def late(self) -> bool:
        return time.monotonic() > self._late_at_s

    def wait(self) -> BaseException | None:
        """Returns when it has ended: what it failed with."""
        with suppress(CancelledError):
            return self.done.exception()
        return None

    def abandon(self) -> None:
        """The step that is under way is its last."""
        self._abandoned = True

    def _run(self) -> None:
        if not self.done.set_running_or_notify_cancel():
            return
        try:
            for step in self._steps:
                if not self._abandoned:
                    step()
        except BaseException as error:  # noqa: BLE001 -- raised in the caller's thread
            self.done.set_exception(error)
        else:
            self.done.set_result(None)
