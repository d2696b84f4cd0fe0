"""Compares times with the targets that groups declare.

Contenders take turns, so each round has a ratio of its own, and a target bounds their median: a slow
phase of the machine slows both contenders, and a disturbance of one of them affects few rounds. Pure.
"""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bench.measure import Group, Measured, Target

__all__ = ["Figure", "figures"]


class Figure(NamedTuple):
    """A target in one group, and the ratio that was measured."""

    case: str
    title: str
    target: Target
    ratio: float

    @property
    def holds(self) -> bool:
        return self.ratio <= self.target.ratio_max


def figures(measured: Iterable[tuple[Group, list[Measured]]]) -> list[Figure]:
    """One for each target of each group, if all of its contenders could run."""
    found = []
    for group, results in measured:
        times = {one.contender.name: one.wall_ns for one in results}
        for target in group.targets:
            if times.keys() >= {target.contender, *target.others}:
                others = zip(*(times[name] for name in target.others), strict=True)
                rounds = zip(times[target.contender], map(sum, others), strict=True)
                ratio = statistics.median(ours / theirs for ours, theirs in rounds)
                found.append(Figure(group.case, group.title, target, ratio))
    return found
