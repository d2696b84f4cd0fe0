"""Figures other than a contender's time: memory, the cost of an import, instructions.

A panel has probes. Each returns named figures, and may have bounds for some. Probes take turns as
contenders do, and the first turn is a warm-up.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from bench.measure import Skipped

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["Panel", "Probe", "Reading", "Unavailable", "bounds_of", "read_panel", "text"]


class Unavailable(Exception):
    """The reason why a probe cannot run here; it is left out."""


@dataclass(frozen=True, slots=True)
class Probe:
    """sample: returns the figures by name, with the unit in it. at_most: bounds, by name."""

    name: str
    sample: Callable[[], Mapping[str, float]]
    at_most: Mapping[str, float] = field(default_factory=dict)
    note: str = ""


@dataclass(frozen=True, slots=True)
class Panel:
    """Probes of one kind. about: how it is measured. rounds: if this panel needs fewer or more than the
    others; 1, without a warm-up, if its figures do not vary."""

    case: str
    title: str
    about: str
    probes: list[Probe]
    skipped: list[Skipped] = field(default_factory=list)
    rounds: int | None = None


@dataclass(frozen=True, slots=True)
class Reading:
    """A probe's figures, a value each round."""

    probe: Probe
    figures: dict[str, list[float]]


def read_panel(
    panel: Panel, *, rounds: int, progress: Callable[[str], None]
) -> tuple[list[Reading], list[Skipped]]:
    """The figures of all probes, and the probes that were left out."""
    found: dict[str, dict[str, list[float]]] = {
        probe.name: defaultdict(list) for probe in panel.probes
    }
    skipped = list(panel.skipped)
    out: set[str] = set()
    rounds = panel.rounds or rounds
    for i in range(rounds if rounds == 1 else rounds + 1):
        is_warm_up = i == 0 and rounds > 1
        for probe in panel.probes:
            if probe.name in out:
                continue
            progress(f"{panel.title}: round {i} of {rounds}: {probe.name}")
            try:
                sample = probe.sample()
            except Unavailable as error:
                skipped.append(Skipped(probe.name, str(error)))
                out.add(probe.name)
                continue
            if not is_warm_up:
                for name, value in sample.items():
                    found[probe.name][name].append(value)
    readings = [
        Reading(probe, dict(found[probe.name])) for probe in panel.probes if probe.name not in out
    ]
    return readings, skipped


def bounds_of(readings: list[Reading]) -> list[tuple[str, str, float, float]]:
    """(probe, figure, median, at most) of each bound."""
    return [
        (one.probe.name, figure, statistics.median(one.figures[figure]), at_most)
        for one in readings
        for figure, at_most in one.probe.at_most.items()
    ]


def text(panel: Panel, readings: list[Reading], skipped: list[Skipped]) -> str:
    """The panel for people."""
    lines = [panel.title, f"measured: {panel.about}"]
    width = max((len(one.probe.name) for one in readings), default=0)
    for one in readings:
        for figure, values in one.figures.items():
            low, high = min(values), max(values)
            spread = f"  ({low:,.1f} - {high:,.1f})" if len(values) > 1 else ""
            bound = one.probe.at_most.get(figure)
            at_most = f"  at most {bound:g}" if bound is not None else ""
            middle = statistics.median(values)
            lines.append(f"{one.probe.name:<{width}}  {figure}: {middle:,.1f}{spread}{at_most}")
        if one.probe.note:
            lines.append(f"    {one.probe.name}: {one.probe.note}")
    lines += [f"    {one.name}: {one.reason}" for one in skipped]
    return "\n".join(lines)
