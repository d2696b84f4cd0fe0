"""The results of a run as a JSON document: every figure, and the machine.

The published part is a directory with a file for each case: medians, least and greatest figures. Tables
and plots need only that, so they can be made again without measuring.
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

__all__ = ["Document", "document", "load", "missed", "publish", "save", "verdicts"]

Document: TypeAlias = dict[str, Any]


def document(
    machine: dict[str, object],
    size: str,
    rounds: int,
    groups: Sequence[tuple[Group, list[Measured]]],
    panels: Sequence[tuple[Panel, list[Reading], list[Skipped]]],
) -> Document:
    """The document of a run. size: figures of "small" mean nothing, so no target is judged."""
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
                        "min": round(min(values), 3),
                        "max": round(max(values), 3),
                        "at_most": one.probe.at_most.get(name),
                        "values": [round(value, 3) for value in values],
                    }
                    for name, values in one.figures.items()
                },
            }
            for one in readings
        ],
    }


_KINDS = ("groups", "panels", "targets", "bounds")
# The figures of each round, and the proofs of a contender's work: not published.
_ROUNDS = {"wall_ns", "cpu_ns", "ratios_of_rounds", "values", "digest", "expected_digest"}


def publish(directory: str, found: Document) -> None:
    """Writes a file for each case that was measured; those of other cases stay. Raises ValueError
    if they are of another size."""
    before = load(directory)
    if before["size"] not in {None, found["size"]}:
        raise ValueError(f"{directory} has figures of size {before['size']}, not {found['size']}")
    for run in found["runs"]:
        for case in run["cases"]:
            one = {
                "case": case,
                "size": found["size"],
                "machine": run["machine"],
                **{kind: [of for of in found[kind] if of["case"] == case] for kind in _KINDS},
            }
            save(str(Path(directory, f"{case}.json")), _medians(one))


def _medians(value: Any) -> Any:
    """The same without the figures of each round."""
    if isinstance(value, dict):
        return {name: _medians(of) for name, of in value.items() if name not in _ROUNDS}
    return [_medians(of) for of in value] if isinstance(value, list) else value


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
    """Writes indented JSON, with one line for each list of numbers, so that differences can be read."""
    text = json.dumps(found, indent=1)
    text = re.sub(r"\[([^\[\]{}\"]*)\]", lambda list_: "[" + " ".join(list_[1].split()) + "]", text)
    Path(path).write_text(text + "\n", encoding="utf-8")


def load(directory: str) -> Document:
    """The published files of a directory as one document, with the cases of each run together."""
    found: Document = {"size": None, "runs": [], **{kind: [] for kind in _KINDS}}
    for case in CASES:
        path = Path(directory, f"{case}.json")
        if not path.exists():
            continue
        one = json.loads(path.read_text(encoding="utf-8"))
        if found["size"] not in {None, one["size"]}:
            raise ValueError(f"{path} is of size {one['size']}, others of {found['size']}")
        found["size"] = one["size"]
        for run in found["runs"]:
            if run["machine"] == one["machine"]:
                run["cases"].append(case)
                break
        else:
            found["runs"].append({"machine": one["machine"], "cases": [case]})
        for kind in _KINDS:
            found[kind] += one[kind]
    return found
