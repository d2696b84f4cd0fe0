"""Shows the status of a process: JSON lines, or log lines."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from aolog.cli.output import OutputClosed, OutputFailed, out
from aolog.errors import counted
from bridge.deliver.status import pending
from bridge.operate.log_lines import STATUS_LINE

if TYPE_CHECKING:
    from bridge.supervise.status import Overview

_log = logging.getLogger("bridge")
_EVERY_S, _TERMINAL_S = 60.0, 5.0  # between two lines: in a log file, on a terminal


@contextmanager
def reporter(*, as_json: bool, stop: Callable[[], None]) -> Iterator[Callable[[Overview], None]]:
    """Yields a function to call with each status. It prints JSON lines on standard output; otherwise it
    logs lines, see LogLines.

    stop: called when standard output fails. OutputClosed or OutputFailed is raised at the end, after
    an orderly stop."""
    if not as_json:
        log = LogLines()
        yield lambda status: log(status.state, words(status._asdict()), status.error)
        return
    failed: list[OutputClosed | OutputFailed] = []

    def print_line(status: Overview) -> None:
        if not failed:
            try:
                out.json(status._asdict())
                out.flush()
            except (OutputClosed, OutputFailed) as error:
                failed.append(error)
                stop()

    yield print_line
    if failed:
        raise failed[0]


def words(whole: Mapping[str, Any]) -> str:
    """The counts of an overview. The numbers add up: each record is counted once."""
    text = f"{whole['acknowledged']:,} acknowledged"
    for name, what in (
        ("skipped", "already in Kafka"),
        ("dead_lettered", "dead letters"),
        ("dropped", "dropped"),
        ("filtered", "filtered"),
    ):
        text += f", {whole[name]:,} {what}" if whole[name] else ""
    left = pending(whole["lag_records"], whole["ahead_records"])
    text += f", {'?' if left is None else f'{left:,}'} pending, {whole['rate']:,.0f}/s"
    if whole["lost_records"] or whole["gaps"]:
        gaps = counted(whole["gaps"], "gap", ",")
        text += f", {whole['lost_records']:,} lost in {gaps} of the log"
    return text


class LogLines:
    """Log lines: one when the state changes, one a minute (on a terminal every five seconds), one at
    the end. A new error is logged at once, and then as often."""

    def __init__(self) -> None:
        self._every_s = _TERMINAL_S if sys.stderr.isatty() else _EVERY_S
        self._state: str | None = None
        self._due_s = self._error_due_s = 0.0

    def __call__(self, state: str, words: str, error: str | None) -> None:
        """error: added to the words."""
        now_s = time.monotonic()
        due_s = self._due_s if error is None else min(self._due_s, self._error_due_s)
        if state == self._state and now_s < due_s:
            return
        self._state = state
        self._due_s = now_s + self._every_s
        if error is not None:
            self._error_due_s = now_s + self._every_s
            words += f" ({error})"
        level = logging.INFO if error is None else logging.WARNING
        _log.log(level, "%s: %s", state, words, extra={"event": STATUS_LINE})
