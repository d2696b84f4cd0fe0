"""Recent problems: the last warnings and errors of the process, each with how often it came.

A handler of `logging`: it keeps what the bridge logs anyway. A line that comes again is counted, not
kept twice, so that one cause cannot push out the others.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from typing import Any

from aolog.errors import one_line
from bridge.deliver.log_lines import log_named

KEPT = 50


class Problems(logging.Handler):
    """The last KEPT different warnings and errors. Thread-safe."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._mutex = threading.Lock()
        self._kept: OrderedDict[tuple[str | None, str], dict[str, Any]] = OrderedDict()

    def emit(self, record: logging.LogRecord) -> None:
        """Keeps the line, without record contents: log lines have none."""
        about, text = log_named(), one_line(record.getMessage())
        with self._mutex:
            found = self._kept.pop((about, text), None) or {
                "first_s": record.created,
                "count": 0,
                "level": record.levelname.lower(),
                "log": about,
                "code": getattr(record, "code", None),
                "message": text,
            }
            found = {**found, "last_s": record.created, "count": found["count"] + 1}
            self._kept[about, text] = found
            while len(self._kept) > KEPT:
                self._kept.popitem(last=False)

    def latest(self) -> list[dict[str, Any]]:
        """The newest first."""
        with self._mutex:
            return list(reversed(self._kept.values()))
