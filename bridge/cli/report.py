"""How a forwarder's status reaches people and machines."""

from __future__ import annotations

import logging
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from aolog.cli.output import OutputClosed, OutputFailed, counted, one_line, out
from bridge.deliver.status import pending
from bridge.supervise.status import Overview, state_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from bridge.deliver.status import Status

__all__ = ["reporter"]

_log = logging.getLogger("bridge")
_EVERY_S = 60.0


@contextmanager
def reporter(
    *, as_json: bool, drain: bool, stop: Callable[[], None]
) -> Iterator[Callable[[Status | Overview], None]]:
    """A function to be given each status, for users: its state is one of bridge.supervise.status's. JSON
    lines on standard output; a live line where standard error is a terminal; else a log line when
    the state changes and at the end.

    stop: called where standard output takes no more. OutputClosed or OutputFailed is raised at
    the end, when it has stopped in good order."""
    if as_json:
        lines = _Lines(stop)
        yield lines
        lines.check()
        return
    if sys.stderr.isatty():
        with Progress(
            TextColumn("{task.description}"),
            *([BarColumn()] if drain else []),
            TextColumn("{task.fields[said]}", markup=False),  # errors and paths may have brackets
            TimeElapsedColumn(),
            console=Console(stderr=True),
        ) as progress:
            task = progress.add_task("starting", total=None, said="")
            yield lambda status: _show(progress, task, _told(status))
        return
    said = _Said()
    yield said


def _told(status: Status | Overview) -> Status | Overview:
    """With its state in the words that are the same everywhere."""
    if isinstance(status, Overview):
        return status
    return status._replace(state=state_of(status))


def _words(status: Status | Overview) -> str:
    """They add up: what is pending is not done with in any other way."""
    text = f"{status.acknowledged:,} acknowledged"
    for count, what in (
        (status.skipped, "there already"),
        (status.dead_lettered, "set aside"),
        (status.dropped, "dropped"),
    ):
        text += f", {count:,} {what}" if count else ""
    left = pending(status.lag_records, status.ahead_records)
    text += f", {'?' if left is None else f'{left:,}'} pending, {status.rate:,.0f}/s"
    if status.lost_records or status.gaps:
        gaps = counted(status.gaps, "gap", ",")
        text += f", {status.lost_records:,} lost in {gaps} of the log"
    return text + (f" ({status.error})" if status.error else "")


def _show(progress: Progress, task: TaskID, status: Status | Overview) -> None:
    done = status.acknowledged + status.skipped + status.dead_lettered + status.dropped
    left = pending(status.lag_records, status.ahead_records)
    progress.update(
        task,
        description=status.state,
        completed=done,
        total=None if left is None else done + left,
        said=one_line(_words(status)),
    )


class _Lines:
    """JSON lines; see reporter."""

    def __init__(self, stop: Callable[[], None]) -> None:
        self._stop = stop
        self._failed: OutputClosed | OutputFailed | None = None

    def __call__(self, status: Status | Overview) -> None:
        if self._failed is not None:
            return
        try:
            out.json(_told(status)._asdict())
            out.flush()
        except (OutputClosed, OutputFailed) as error:
            self._failed = error
            self._stop()

    def check(self) -> None:
        """Raises what it met."""
        if self._failed is not None:
            raise self._failed


class _Said:
    """Log lines: one when the state changes, one a minute, one at the end. An error that comes
    while the state stays is said at once, and then with the line of the minute."""

    def __init__(self) -> None:
        self._state: str | None = None
        self._due_s = self._error_due_s = 0.0

    def __call__(self, status: Status | Overview) -> None:
        status = _told(status)
        now_s = time.monotonic()
        due_s = self._due_s if status.error is None else min(self._due_s, self._error_due_s)
        if status.state == self._state and now_s < due_s:
            return
        self._state = status.state
        self._due_s = now_s + _EVERY_S
        if status.error is not None:
            self._error_due_s = now_s + _EVERY_S
        level = logging.INFO if status.error is None else logging.WARNING
        _log.log(level, "%s: %s", status.state, _words(status))
