"""Parses command line values: sizes, durations, positions in a log, paths of logs, cursor names.

Each is a click type, so a wrong value is a usage error that names the option, before anything is
opened.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from aolog.errors import UsageError
from aolog.format.names import check_cursor_name
from aolog.log.units import DURATION_MAX_S, duration_seconds, size_bytes
from aolog.read.start import parse_where
from aolog.storage.storage import checked_path
from aolog.write.validate import read_mode

if TYPE_CHECKING:
    from collections.abc import Callable

    ParamType = click.ParamType[Any]
else:
    ParamType = click.ParamType  # generic only in newer releases of click


class Parsed(ParamType):
    """A value that a function makes of the text. The function raises ValueError or UsageError with what
    is wrong."""

    def __init__(self, name: str, parse: Callable[[str], Any]) -> None:
        self.name = name
        self._parse = parse

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        """As click's."""
        if not isinstance(value, str):  # a default
            return value
        try:
            return self._parse(value)
        except (ValueError, UsageError) as error:
            self.fail(str(error), param, ctx)


class _Directory(click.Path):
    """Of a log, or of logs. The library checks what is there: its errors tell a file from an empty
    directory, from a newer format, and from one that may not be read."""

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        try:
            return checked_path(value)
        except UsageError as error:
            self.fail(str(error), param, ctx)


def _size(text: str, least: int = 1) -> int:
    found = size_bytes(text)
    if found is None:
        raise ValueError(f"{text!r} is not a size: use bytes, or 10k, 64M, 1GiB")
    if found < least:
        raise ValueError(f"{text!r} is below {least}")
    return found


def _duration(text: str) -> float:
    found = duration_seconds(text)
    if found is None:
        raise ValueError(f"{text!r} is not a duration: use 500ms, 90s, 15m, 2h, 7d")
    if not 0 < found <= DURATION_MAX_S:
        raise ValueError(f"{text!r} is not between 0 and 100 years")
    return found


SIZE, SIZE_OR_ZERO = Parsed("size", _size), Parsed("size", lambda text: _size(text, 0))
DURATION, MODE = Parsed("duration", _duration), Parsed("octal", read_mode)
WHERE, CURSOR_NAME = Parsed("where", parse_where), Parsed("name", check_cursor_name)

DIRECTORY = _Directory()

log_argument = click.argument("log", type=DIRECTORY)
cursor_argument = click.argument("name", type=CURSOR_NAME)
