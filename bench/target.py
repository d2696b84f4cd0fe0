"""The one figure that has to hold: the value column to Arrow, against the bytes read and hashed.

Batches are near the limit by design: a frame's columns are Arrow's own buffers, so what is left
is one hash and a handful of calls a frame. Three times the cost of reading and hashing leaves
room for those calls; a copy of the values, or a loop over them, would not fit. Pure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from bench.cases.arrow import VALUE_COLUMN
from bench.limits import READ_AND_HASH

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bench.measure import Group, Measured

__all__ = ["RATIO_MAX", "Figure", "figures"]

RATIO_MAX = 3.0


class Figure(NamedTuple):
    """How many times the limit the value column cost in one group."""

    title: str
    ratio: float

    @property
    def holds(self) -> bool:
        return self.ratio <= RATIO_MAX

    def __str__(self) -> str:
        verdict = "holds" if self.holds else "MISSED"
        return (
            f"target {verdict}: {self.title}: the value column costs {self.ratio:.2f} times "
            f"reading and hashing the bytes (at most {RATIO_MAX:g})"
        )


def figures(measured: Iterable[tuple[Group, list[Measured]]]) -> list[Figure]:
    """One for each group that decides about the target and had pyarrow."""
    found = []
    for group, results in measured:
        by_name = {one.contender.name: one for one in results}
        if group.is_target and VALUE_COLUMN in by_name:
            ratio = by_name[VALUE_COLUMN].ratio_to(by_name[READ_AND_HASH])
            found.append(Figure(group.title, ratio))
    return found
