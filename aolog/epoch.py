"""Moments as records have them: microseconds since the epoch. Pure."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

__all__ = ["microseconds"]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def microseconds(moment: datetime) -> int:
    """Of a moment with a time zone: exact, as a float of seconds is not."""
    return (moment - _EPOCH) // _MICROSECOND
