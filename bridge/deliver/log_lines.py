"""Which log a log line is about: set by the thread that works on it, read by the formatters."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_about: ContextVar[str | None] = ContextVar("log", default=None)


@contextmanager
def naming(log: str) -> Iterator[None]:
    """Log lines of this thread are about this log until the block ends."""
    token = _about.set(log)
    try:
        yield
    finally:
        _about.reset(token)


def log_named() -> str | None:
    """The log that this thread works on."""
    return _about.get()
