"""Names that a bridge's cursor may have."""

from __future__ import annotations

from aolog.cursor import check_name
from aolog.errors import UsageError

__all__ = ["REPLAY", "check_cursor"]

REPLAY = "replay"  # of a replay, which moves and removes it


def check_cursor(name: str) -> None:
    """Raises UsageError if it is no name for a cursor, or that of a replay."""
    check_name(name)
    if name == REPLAY:
        raise UsageError(f"the cursor {name!r} is that of a replay", hint="use another name")
