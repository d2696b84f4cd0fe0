"""Parses command line values: sizes, durations, positions in a log, paths of logs, cursor names.

Each is a click type, so a wrong value is a usage error that names the option, before anything is
opened.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from aolog.errors import UsageError
from aolog.log.names import check_cursor_name
from aolog.log.units import duration_seconds, size_bytes
from aolog.read.reader import Reader
from aolog.write.validate import read_mode

if TYPE_CHECKING:
    from collections.abc import Callable

    from aolog.read.seek import Start

    ParamType = click.ParamType[Any]
else:
    ParamType = click.ParamType  # generic only in newer releases of click

_DURATION_MAX_S = 100 * 365 * 86400.0  # larger ones overflow in clocks and waits
_AGO = "-ago"


class Where(NamedTuple):
    """A position in a log, as typed. ordinal: overrides `start` if not None."""

    start: Start
    ordinal: int | None = None

    def open(self, path: str, **options: Any) -> Reader:
        """A reader at that position."""
        reader = Reader(path, self.start, **options)
        if self.ordinal is not None:
            try:
                reader.seek(ordinal=self.ordinal)
            except BaseException:
                reader.close()
                raise
        return reader


def where(text: str, now: datetime) -> Where | None:
    """'earliest', 'latest', an address, 'ordinal:N', a time in ISO 8601 (default: UTC), or '15m-ago';
    None for other text."""
    text = text.strip()
    if text == "earliest":
        return Where("earliest")
    if text == "latest":
        return Where("latest")
    if re.fullmatch(r"[0-9]{1,20}", text):
        return Where(int(text))
    if match := re.fullmatch(r"ordinal:([0-9]{1,20})", text):
        return Where("earliest", int(match[1]))
    if text.endswith(_AGO):
        seconds = duration_seconds(text.removesuffix(_AGO))
        if seconds is None or seconds > _DURATION_MAX_S:
            return None
        return Where(now - timedelta(seconds=seconds))
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return Where(moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC))


# --- click's types --------------------------------------------------------------------------


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
    if not 0 < found <= _DURATION_MAX_S:
        raise ValueError(f"{text!r} is not between 0 and 100 years")
    return found


def _where(text: str) -> Where:
    found = where(text, datetime.now(UTC))
    if found is None:
        raise ValueError(
            f"{text!r} is not a position in a log: use earliest, latest, an address, ordinal:N, "
            "a time such as 2026-01-31T12:00:00Z, or 15m-ago"
        )
    return found


def _log(path: str) -> str:
    """The library checks what is there: its errors tell a file from an empty directory and from a newer
    format."""
    if not path or "\0" in path:
        raise ValueError(f"{path!r} is not a path")
    return path


SIZE, SIZE_OR_ZERO = Parsed("size", _size), Parsed("size", lambda text: _size(text, 0))
DURATION, MODE = Parsed("duration", _duration), Parsed("octal", read_mode)
WHERE, CURSOR_NAME = Parsed("where", _where), Parsed("name", check_cursor_name)

log_argument = click.argument("log", type=Parsed("log", _log))
cursor_argument = click.argument("name", type=CURSOR_NAME)
