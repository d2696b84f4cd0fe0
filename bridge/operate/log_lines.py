"""Log lines: one for each event, as text or as a JSON object, with the name of its log.

{"time": "...Z", "level": "warning", "logger": "bridge", "log": "app/1", "message": "..."}
"""

from __future__ import annotations

import logging
import sys
from datetime import UTC, datetime
from typing import Any

from aolog.errors import escape_controls, one_line, to_json
from bridge.deliver.log_lines import log_named

__all__ = ["set_up"]

_EXTRA = ("event", "code", "cluster")


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
        return to_json(found, ascii_only=True)


def set_up(*, as_json: bool, verbose: bool = False, quiet: bool = False) -> None:
    """Log lines go to standard error. quiet: warnings and errors only."""
    handler = logging.StreamHandler(sys.stderr)
    text = _Text("%(asctime)s %(levelname)s %(name)s: %(message)s")
    handler.setFormatter(_Json() if as_json else text)
    level = logging.DEBUG if verbose else logging.WARNING if quiet else logging.INFO
    logging.basicConfig(handlers=[handler], level=level)
    logging.getLogger("aolog").handlers.clear()  # otherwise a warning would appear twice
    logging.getLogger("bridge.librdkafka").setLevel(logging.INFO if verbose else logging.CRITICAL)
