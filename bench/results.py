"""What was measured, as one JSON document: every round's figure, and on what it was measured.

It is what plots and tables are made of, so that they can be made again without measuring.
"""

from __future__ import annotations

import json
import re
import statistics
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from bench import report, target
from bench.cases import CASES
from bench.panel import bounds_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.measure import Group, Measured, Skipped
    from bench.panel import Panel, Reading

__all__ = ["Document", "document", "load", "merged", "missed", "save", "verdicts"]

Document: TypeAlias = dict[str, Any]


def document(
    machine: dict[str, object],
    size: str,
    rounds: int,
    groups: Sequence[tuple[Group, list[Measured]]],
    panels: Sequence[tuple[Panel, list[Reading], list[Skipped]]],
) -> Document:
    """size: "small" proves that all of it runs: its figures mean nothing, and none is judged."""
    judged = size != "small"
    cases = dict.fromkeys([one.case for one, _ in groups] + [one.case for one, *_ in panels])
    return {
        "runs": [{"machine": machine, "cases": list(cases)}],
        "size": size,
        "rounds": rounds,
        "groups": [report.as_json(group, results, rounds) for group, results in groups],
        "panels": [_panel(*one) for one in panels],
        "targets": [
            {
                "case": figure.case,
                "group": figure.title,
                "what": figure.target.what,
                "ratio": round(figure.ratio, 4),
                "ratio_max": figure.target.ratio_max,
                "holds": figure.holds,
            }
            for figure in target.figures(groups if judged else ())
        ],
        "bounds": [
            {
                "case": panel.case,
                "probe": probe,
                "figure": figure,
                "median": round(median, 3),
                "at_most": at_most,
                "holds": median <= at_most,
            }
            for panel, readings, _ in (panels if judged else ())
            for probe, figure, median, at_most in bounds_of(readings)
        ],
    }


def _panel(panel: Panel, readings: list[Reading], skipped: list[Skipped]) -> dict[str, object]:
    return {
        "case": panel.case,
        "title": panel.title,
        "about": panel.about,
        "skipped": {one.name: one.reason for one in skipped},
        "probes": [
            {
                "name": one.probe.name,
                "note": one.probe.note,
                "figures": {
                    name: {
                        "median": round(statistics.median(values), 3),
                        "at_most": one.probe.at_most.get(name),
                        "values": [round(value, 3) for value in values],
                    }
                    for name, values in one.figures.items()
                },
            }
            for one in readings
        ],
    }


def merged(before: Document, anew: Document) -> Document:
    """The cases of `anew`, and what is left of those that were measured before, each run with its
    machine. Raises ValueError for figures of unlike sizes."""
    if before["size"] != anew["size"]:
        raise ValueError(f"sizes {before['size']} and {anew['size']} are not to be compared")
    replaced = {case for run in anew["runs"] for case in run["cases"]}
    runs = [
        {**run, "cases": [case for case in run["cases"] if case not in replaced]}
        for run in before["runs"]
    ]
    together = {**anew, "runs": [run for run in runs if run["cases"]] + anew["runs"]}
    for kind in ("groups", "panels", "targets", "bounds"):
        kept = [one for one in before[kind] if one["case"] not in replaced]
        together[kind] = sorted(kept + anew[kind], key=lambda one: CASES.index(one["case"]))
    return together


def verdicts(found: Document) -> list[str]:
    """A line for each target and bound."""
    lines = [
        f"target {_verdict(one)}: {one['group']}: {one['what']}: {one['ratio']:.2f} "
        f"(at most {one['ratio_max']:g})"
        for one in found["targets"]
    ]
    return lines + [
        f"target {_verdict(one)}: {one['probe']}: {one['figure']}: {one['median']:.1f} "
        f"(at most {one['at_most']:g})"
        for one in found["bounds"]
    ]


def _verdict(one: dict[str, Any]) -> str:
    return "holds" if one["holds"] else "MISSED"


def missed(found: Document) -> int:
    """How many targets and bounds do not hold."""
    return sum(not one["holds"] for one in found["targets"] + found["bounds"])


def save(path: str, found: Document) -> None:
    """Indented, but for lists of numbers: a line each, so that a difference can be read."""
    text = json.dumps(found, indent=1)
    text = re.sub(r"\[([^\[\]{}\"]*)\]", lambda list_: "[" + " ".join(list_[1].split()) + "]", text)
    Path(path).write_text(text + "\n", encoding="utf-8")


def load(path: str) -> Document:
    found = json.loads(Path(path).read_text(encoding="utf-8"))
    assert isinstance(found, dict)
    return found
