"""Where a reader starts, as people write it: on a command line, or on the bridge's page.

earliest, latest         the first record that exists; the end
8192                     an address
ordinal:N                the record with N before it
2026-01-31T12:00:00Z     the first record at or after this time in ISO 8601 (default: UTC)
15m-ago                  the same, relative to now
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

from aolog.errors import UsageError
from aolog.log.units import DURATION_MAX_S, duration_seconds

if TYPE_CHECKING:
    from aolog.read.reader import Reader
    from aolog.read.seek import Start

_AGO = "-ago"
_WORDS = "earliest, latest, an address, ordinal:N, a time such as 2026-01-31T12:00:00Z, 15m-ago"


class Where(NamedTuple):
    """A position in a log. ordinal: overrides `start` if not None."""

    start: Start
    ordinal: int | None = None

    def open(self, path: str, **options: Any) -> Reader:
        """A reader at that position."""
        from aolog.read.reader import Reader  # here: the command line parses before it opens

        reader = Reader(path, self.start, **options)
        if self.ordinal is not None:
            try:
                reader.seek(ordinal=self.ordinal)
            except BaseException:
                reader.close()
                raise
        return reader


def parse_where(text: str, *others: str) -> Where:
    """The position that the text names. others: what the caller also takes, for the hint. Raises
    UsageError for other text."""
    text = text.strip()
    if text in {"earliest", "latest"}:
        return Where(text)  # type: ignore[arg-type]  # one of the two
    if re.fullmatch(r"[0-9]{1,20}", text):
        return Where(int(text))
    if match := re.fullmatch(r"ordinal:([0-9]{1,20})", text):
        return Where("earliest", int(match[1]))
    try:
        return Where(_ago(text) if text.endswith(_AGO) else utc_time(text))
    except ValueError:
        words = ", ".join((_WORDS, *others))
        raise UsageError(f"{text!r} is not a valid position", hint=f"use {words}") from None


def _ago(text: str) -> datetime:
    seconds = duration_seconds(text.removesuffix(_AGO))
    if seconds is None or seconds > DURATION_MAX_S:
        raise ValueError(text)
    return datetime.now(UTC) - timedelta(seconds=seconds)


def utc_time(text: str) -> datetime:
    """A time in ISO 8601; in UTC if it names no time zone. Raises ValueError."""
    moment = datetime.fromisoformat(text)
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
