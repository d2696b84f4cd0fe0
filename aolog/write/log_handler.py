"""`LogHandler`: records of Python's `logging` into a log, as JSON lines or as a formatter makes them.

    logging.getLogger().addHandler(LogHandler("path"))

A log line is in memory when the logging call returns; the log's own thread flushes it (see Writer's
`flush_seconds`). A line at ERROR or above is flushed at once. The log lines of aolog's own loggers are
not written: one about this log would cause the next.
"""

from __future__ import annotations

import json
import logging
import os
from typing import Any

from aolog.errors import AologError, not_copied
from aolog.storage import lifetime
from aolog.write.writer import Writer

_OWN = {"aolog", "bridge"}


class JsonFormatter(logging.Formatter):
    """One JSON object: time (seconds since the epoch), level, logger, message, and exception."""

    def format(self, record: logging.LogRecord) -> str:
        """The object as text."""
        found: dict[str, Any] = {
            "time": round(record.created, 6),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            found["exception"] = self.formatException(record.exc_info)
        return json.dumps(found, ensure_ascii=False)


class LogHandler(logging.Handler):
    """Appends each line as a record: the value is the formatted line, the key the logger's name, the
    timestamp the line's.

    path, options: as for Writer; the process that opens it is the log's one writer. flush_level: lines
    of this level and above are flushed at once. A child that was forked writes nothing and reports it
    through `logging.raiseExceptions`: give each process a handler and a log of its own. Errors of the
    log are printed, as by logging's own handlers, and the program goes on. Raises what Writer raises.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        level: int = logging.NOTSET,
        *,
        flush_level: int = logging.ERROR,
        **options: Any,
    ) -> None:
        super().__init__(level)
        self.log = Writer(path, **options)
        self._flush_level = flush_level
        self.setFormatter(JsonFormatter())

    def emit(self, record: logging.LogRecord) -> None:
        """Appends the line."""
        if record.name.partition(".")[0] in _OWN:
            return
        try:
            line = self.format(record).encode("utf-8", "backslashreplace")
            self.log.append(line, key=record.name.encode(), timestamp=int(record.created * 1e6))
            if record.levelno >= self._flush_level:
                self.log.flush()
        except Exception:  # noqa: BLE001 -- as logging's own handlers: a program does not fail at a log line
            self.handleError(record)

    def flush(self) -> None:
        """Survives a crash of the process on return. A closed log has nothing to flush."""
        if self.log.end > self.log.durable:
            try:
                self.log.flush()
            except AologError:  # logging.shutdown calls it, also after `close`
                return

    def close(self) -> None:
        """Closes the log. Idempotent. While the interpreter ends (logging.shutdown calls it) it seals and
        syncs the log, and lines that come later are still taken, as a FileHandler takes them."""
        try:
            if lifetime.is_ending():
                lifetime.settle(self.log)
            else:
                self.log.close()
        finally:
            super().close()

    __reduce__ = not_copied("make a handler where it is used, with a log of its own")
