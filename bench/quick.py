"""The rows of the README's table, measured in a minute: `python -m bench --quick`. Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from bench.limits import RAW_FILE
from bench.peers import MSGPACK

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.measure import Group, Measured

__all__ = ["CASES", "ROUNDS", "ROWS", "bars", "few"]

CASES = ("append", "append_many", "read")
ROWS = ("aolog", RAW_FILE, MSGPACK, "lmdb", "sqlite WAL")
ROUNDS = 3
_COLUMNS = 40  # of the longest bar
_EIGHTHS = " ▏▎▍▌▋▊▉"


def few(group: Group) -> Group:
    """The group with these rows only. Its targets are not judged: three rounds are too few."""
    contenders = [one for one in group.contenders if one.name in ROWS]
    return replace(group, contenders=contenders, targets=())


def bars(group: Group, measured: Sequence[Measured]) -> str:
    """A line and a bar for each contender, the fastest first."""
    lines = [f"{group.title}, ns a {group.unit} (shorter is faster)"]
    longest = max((one.median_ns for one in measured), default=1.0)
    for one in sorted(measured, key=lambda one: one.median_ns):
        contender = one.contender
        lines.append(
            f"  {contender.name:<12}{one.median_ns:>8,.0f}  "
            f"{_bar(one.median_ns / longest):<{_COLUMNS}}  checksum: {contender.promise.checksum}"
        )
    lines += [f"  {one.name}: {one.reason}" for one in group.skipped if one.name in ROWS]
    return "\n".join(lines)


def _bar(part: float) -> str:
    eighths = max(1, round(part * _COLUMNS * 8))
    return "█" * (eighths // 8) + _EIGHTHS[eighths % 8].strip()
