"""Parses command line values: sizes, durations, positions in a log, paths of logs, cursor names.

Each is a click type, so a wrong value is a usage error that names the option, before anything is
opened.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from aolog.errors import AologError, UsageError
from aolog.log.names import check_cursor_name
from aolog.log.units import duration_seconds, size_bytes
from aolog.read.reader import Reader
from aolog.write.validate import read_mode

if TYPE_CHECKING:
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


class _Size(ParamType):
    name = "size"

    def __init__(self, least: int) -> None:
        self._least = least

    def convert(self, value: Any, param: Any, ctx: Any) -> int:
        found = value if isinstance(value, int) else size_bytes(value)
        if found is None:
            self.fail(f"{value!r} is not a size: use bytes, or 10k, 64M, 1GiB", param, ctx)
        if found < self._least:
            self.fail(f"{value!r} is below {self._least}", param, ctx)
        return found


class _Duration(ParamType):
    name = "duration"

    def convert(self, value: Any, param: Any, ctx: Any) -> float:
        found = value if isinstance(value, float) else duration_seconds(value)
        if found is None:
            self.fail(f"{value!r} is not a duration: use 500ms, 90s, 15m, 2h, 7d", param, ctx)
        if not 0 < found <= _DURATION_MAX_S:
            self.fail(f"{value!r} is not between 0 and 100 years", param, ctx)
        return found


class _Where(ParamType):
    name = "where"

    def convert(self, value: Any, param: Any, ctx: Any) -> Where:
        found = value if isinstance(value, Where) else where(value, datetime.now(UTC))
        if found is None:
            self.fail(
                f"{value!r} is not a position in a log: use earliest, latest, an address, ordinal:N, "
                "a time such as 2026-01-31T12:00:00Z, or 15m-ago",
                param,
                ctx,
            )
        return found


class _Log(ParamType):
    """The path of a log. The library checks what is there: its errors tell a file from an empty
    directory and from a newer format."""

    name = "log"

    def convert(self, value: Any, param: Any, ctx: Any) -> str:
        path = str(value)
        if not path or "\0" in path:
            self.fail(f"{path!r} is not a path", param, ctx)
        return path


class _CursorName(ParamType):
    name = "name"

    def convert(self, value: Any, param: Any, ctx: Any) -> str:
        try:
            check_cursor_name(value)
        except AologError as error:
            self.fail(str(error), param, ctx)
        return str(value)


class _Mode(ParamType):
    name = "octal"

    def convert(self, value: Any, param: Any, ctx: Any) -> int:
        try:
            return value if isinstance(value, int) else read_mode(value)
        except UsageError as error:
            self.fail(str(error), param, ctx)


MODE = _Mode()
SIZE, SIZE_OR_ZERO, DURATION, WHERE = _Size(1), _Size(0), _Duration(), _Where()
CURSOR_NAME = _CursorName()

log_argument = click.argument("log", type=_Log())
cursor_argument = click.argument("name", type=CURSOR_NAME)
