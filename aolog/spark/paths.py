"""The directory that a path of Spark's means: the same on the driver and on every executor."""

from __future__ import annotations

import re

from aolog.errors import UsageError
from aolog.storage import absolute

__all__ = ["directory"]

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):/")


def directory(text: str) -> str:
    """Absolute; `file:` is taken off. Raises UsageError for none, and for what is no file system."""
    if not text:
        raise UsageError(
            "option path: names no log and no root of logs",
            hint='load("/path"), save("/path"); of SQL, temporary views work: CREATE TEMPORARY '
            "VIEW name USING aolog OPTIONS (path '/path')",
        )
    scheme = _SCHEME.match(text)
    if scheme is None:
        return absolute(text)
    if scheme[1].lower() != "file":
        raise UsageError(
            f"option path: {text}: {scheme[1]}: is no file system that a log can live on",
            hint="name a directory that is mounted at the same path on the driver and every "
            "executor",
        )
    return absolute("/" + text[len(scheme[1]) + 1 :].lstrip("/"))
