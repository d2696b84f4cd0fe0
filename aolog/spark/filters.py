"""Filters that Spark hands down, and what they let a read pass over.

All of them are handed back too: Spark evaluates each once more, so passing over too little costs
time and never a row. What is understood narrows ranges of addresses and of timestamps, and sets of
logs and topics.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from aolog.read.seek import microseconds

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["ALL", "Bounds", "bounds"]

_MIN, _MAX = -(1 << 63), (1 << 63) - 1


class Bounds(NamedTuple):
    """Rows outside of these are not wanted. Ends are included; None: any."""

    offset_min: int = _MIN
    offset_max: int = _MAX
    us_min: int = _MIN
    us_max: int = _MAX
    logs: frozenset[str] | None = None
    topics: frozenset[str] | None = None

    @property
    def of_times(self) -> bool:
        """Whether timestamps are bounded."""
        return self.us_min != _MIN or self.us_max != _MAX

    @property
    def of_frames(self) -> bool:
        """Whether a frame may be passed over by them."""
        return self.of_times or self.topics is not None


ALL = Bounds()


def bounds(filters: Iterable[Any]) -> Bounds:
    """What all of the filters together leave."""
    found = ALL
    for each in filters:
        kind = type(each).__name__
        attribute: tuple[str, ...] = getattr(each, "attribute", ())
        if not attribute or len(attribute) > 1:
            continue
        column: str = attribute[0]
        value = getattr(each, "value", None)
        if column in {"log", "topic"}:
            found = _named(found, f"{column}s", kind, value)
        elif column in {"offset", "timestamp"}:
            found = _between(found, {"offset": "offset", "timestamp": "us"}[column], kind, value)
    return found


def _named(found: Bounds, field: str, kind: str, value: Any) -> Bounds:
    if kind in {"EqualTo", "EqualNullSafe"}:
        value = (value,)
    elif kind != "In":
        return found
    if not all(isinstance(name, str) for name in value):
        return found
    before: frozenset[str] | None = getattr(found, field)
    names = frozenset(value) if before is None else before & frozenset(value)
    narrowed: Any = {field: names}
    return found._replace(**narrowed)


def _between(found: Bounds, field: str, kind: str, value: Any) -> Bounds:
    values = list(value) if kind == "In" else [value]
    numbers = [_number(each) for each in values]
    if not numbers or None in numbers:
        return found
    least, greatest = (
        min(n for n in numbers if n is not None),
        max(n for n in numbers if n is not None),
    )
    if kind in {"EqualTo", "EqualNullSafe", "In"}:
        low, high = least, greatest
    elif kind in {"GreaterThan", "GreaterThanOrEqual"}:
        low, high = least + (kind == "GreaterThan"), _MAX
    elif kind in {"LessThan", "LessThanOrEqual"}:
        low, high = _MIN, greatest - (kind == "LessThan")
    else:
        return found
    return found._replace(
        **{
            f"{field}_min": max(getattr(found, f"{field}_min"), low),
            f"{field}_max": min(getattr(found, f"{field}_max"), high),
        }
    )


def _number(value: Any) -> int | None:
    if isinstance(value, datetime) and value.tzinfo is not None:
        return microseconds(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None
