"""Log lines: one for each event, as text or as a JSON object, with the name of its log.

    {"time": "...Z", "level": "warning", "logger": "bridge", "log": "app/1", "message": "..."}

Levels: `error`, something was lost or the process ends; `warning`, records wait or a person has to look;
`info`, a normal change; `debug`, details for developers of the bridge. A line that repeats is written
REPEATS_MAX times a minute; the first of the next minute says how many were left out. No line holds
contents of records, or secrets.
"""

from __future__ import annotations

import logging
import re
import sys
import threading
import time
from collections import Counter, OrderedDict
from datetime import UTC, datetime
from typing import Any

from aolog.errors import escape_controls, one_line, to_json
from bridge.config.run_options import LogFormat
from bridge.deliver.log_lines import log_named

REPEATS_MAX = 5  # a minute: a cause that flaps shows in full, one that hammers does not fill a disk
_PERIOD_S = 60.0
KEPT = 50  # problems, for the page
_LOGS_KEPT = 5  # of a problem
_SPAN = re.compile(r"\bfor \d+ s\b")  # how long something has lasted
STATUS_LINE = "status"  # the event of a line that says how the bridge is, as the page does
_EXTRA = ("event", "code", "cluster", "left_out")


class _Text(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line = super().format(record)
        about = log_named()
        named = about is None or about in record.getMessage()
        return line if named else f"{line} [{one_line(about or '')}]"

    def formatException(self, ei: Any) -> str:  # noqa: N802 -- logging's name
        return escape_controls(super().formatException(ei))

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 -- logging's name
        record.message = one_line(record.message)  # a path may contain control characters
        if (left_out := getattr(record, "left_out", 0)) > 0:
            record.message += f" (and {left_out:,} more in the minute before)"
        return super().formatMessage(record)


class _Json(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        moment = datetime.fromtimestamp(record.created, UTC)
        found: dict[str, Any] = {
            "time": moment.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if (about := log_named()) is not None:
            found["log"] = about
        for name in _EXTRA:
            if (value := getattr(record, name, None)) is not None:
                found[name] = value
        if record.exc_info is not None and record.exc_info[0] is not None:
            found["exception"] = self.formatException(record.exc_info)
        return to_json(found)


def _alike(record: logging.LogRecord) -> tuple[object, ...]:
    """The same for lines that differ in numbers only."""
    arguments = record.args if isinstance(record.args, tuple) else ()
    words = [_SPAN.sub("", str(x)) for x in arguments if not isinstance(x, int | float)]
    return (record.name, record.levelno, str(record.msg), *words)


class Repetition(logging.Filter):
    """Leaves out lines that repeat; see _alike."""

    def __init__(self) -> None:
        super().__init__()
        self._begun_s = 0.0
        self._seen: Counter[tuple[object, ...]] = Counter()
        self._before: Counter[tuple[object, ...]] = Counter()  # of the minute before

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the line is shown. Called with the handler's lock."""
        now_s = time.monotonic()
        if now_s - self._begun_s >= _PERIOD_S:
            self._begun_s, self._before, self._seen = now_s, self._seen, Counter()
        key = (log_named(), *_alike(record))
        self._seen[key] += 1
        left_out = self._before.pop(key, 0) - REPEATS_MAX
        if left_out > 0:
            record.left_out = left_out
        return self._seen[key] <= REPEATS_MAX


class Problems(logging.Handler):
    """The last KEPT different warnings and errors, each with how often it came, and some of the logs that it was
    about. A line that comes again, of whichever log, is counted, not kept twice, so that one cause cannot push
    out the others. Lines that repeat the status are left out: the page shows that. Thread-safe."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._mutex = threading.Lock()
        self._kept: OrderedDict[tuple[object, ...], dict[str, Any]] = OrderedDict()

    def emit(self, record: logging.LogRecord) -> None:
        """Keeps the line, without record contents: log lines have none."""
        if getattr(record, "event", None) == STATUS_LINE:
            return
        try:
            about, text = log_named(), one_line(record.getMessage())
        except Exception:  # noqa: BLE001 -- other code's wrong call: reported, as by other handlers
            self.handleError(record)
            return
        with self._mutex:
            key = _alike(record)
            found = self._kept.pop(key, None) or {
                "first_s": record.created,
                "count": 0,
                "level": record.levelname.lower(),
                "logs": [],
                "code": getattr(record, "code", None),
            }
            logs = found["logs"]
            if about is not None and about not in logs and len(logs) < _LOGS_KEPT:
                logs = [*logs, about]
            now = {"message": text, "last_s": record.created, "count": found["count"] + 1}
            self._kept[key] = {**found, **now, "logs": logs}
            while len(self._kept) > KEPT:
                self._kept.popitem(last=False)

    def latest(self) -> list[dict[str, Any]]:
        """The newest first."""
        with self._mutex:
            return list(reversed(self._kept.values()))


def set_up(log_format: LogFormat, *, verbose: bool = False, quiet: bool = False) -> bool:
    """Log lines go to standard error; auto: as JSON unless to a terminal. quiet: no infos. Returns whether JSON."""
    as_json = log_format == "json" or (log_format == "auto" and not sys.stderr.isatty())
    handler = logging.StreamHandler(sys.stderr)
    text = _Text("%(asctime)s %(levelname)s %(name)s: %(message)s")
    handler.setFormatter(_Json() if as_json else text)
    handler.addFilter(Repetition())
    level = logging.DEBUG if verbose else logging.WARNING if quiet else logging.INFO
    logging.basicConfig(handlers=[handler], level=level)
    logging.getLogger("aolog").handlers.clear()  # otherwise a warning would appear twice
    logging.getLogger("bridge.librdkafka").setLevel(logging.INFO if verbose else logging.CRITICAL)
    return as_json
