"""The figures that have to hold, each declared by the group that measures it.

A target compares medians of contenders that took turns in one run, so a slow machine moves both.
Pure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bench.measure import Group, Measured, Target

__all__ = ["Figure", "figures"]


class Figure(NamedTuple):
    """What became of a target in one group."""

    title: str
    target: Target
    ratio: float

    @property
    def holds(self) -> bool:
        return self.ratio <= self.target.ratio_max

    def __str__(self) -> str:
        verdict = "holds" if self.holds else "MISSED"
        return (
            f"target {verdict}: {self.title}: {self.target.what}: {self.ratio:.2f} "
            f"(at most {self.target.ratio_max:g})"
        )


def figures(measured: Iterable[tuple[Group, list[Measured]]]) -> list[Figure]:
    """One for each target of each group, where all that it is about could run."""
    found = []
    for group, results in measured:
        medians = {one.contender.name: one.median_ns for one in results}
        for target in group.targets:
            if medians.keys() >= {target.contender, *target.others}:
                others_ns = sum(medians[name] for name in target.others)
                found.append(Figure(group.title, target, medians[target.contender] / others_ns))
    return found
