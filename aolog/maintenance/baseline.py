"""Known gaps: compares a new report of `verify` with an earlier one.

A gap is known if a gap of the baseline covers its range and lost at least as many records. An unknown
count in the baseline covers any count; a count that has become unknown is new. Damage that causes a gap
(a lost slab header, a damaged seal) is known if the baseline has the same damage of the same slab. All
other damage is new, even if the baseline has it: it cost no record, and a repair removes it. Slabs and
gaps are compared by address, so a log's baseline is valid for its copies.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, NamedTuple

from aolog.errors import UsageError
from aolog.maintenance.verify import GAP_CAUSES

if TYPE_CHECKING:
    from aolog.maintenance.verify import Finding, Report
    from aolog.record import Gap

_CAUSES = GAP_CAUSES | {"seal"}  # a damaged seal before another slab is a gap of 0 records


class News(NamedTuple):
    """Gaps and damage that a baseline does not cover."""

    gaps: list[Gap]
    findings: list[Finding]

    @property
    def ok(self) -> bool:
        """Whether nothing is new."""
        return not self.gaps and not self.findings


class Baseline(NamedTuple):
    """gaps: (begin, end, records lost). causes: (code, name of the slab's file)."""

    gaps: list[tuple[int, int, int | None]]
    causes: set[tuple[str, str]]

    def news(self, report: Report) -> News:
        """The new part of a report."""
        damage = [found for found in report.findings if found.damage]
        return News(
            [gap for gap in report.gaps if not self._covers(gap)],
            [found for found in damage if not self._explains(found)],
        )

    def _explains(self, found: Finding) -> bool:
        return found.code in _CAUSES and (found.code, _name(found.path)) in self.causes

    def _covers(self, gap: Gap) -> bool:
        return any(
            begin <= gap.begin
            and gap.end <= end
            and (lost is None or (gap.records_lost is not None and gap.records_lost <= lost))
            for begin, end, lost in self.gaps
        )


def _name(path: str) -> str:
    return path.rpartition("/")[2]


def parse_baseline(text: bytes, name: str) -> Baseline:
    """Parses a report that `aolog verify --json` printed. name: the file's, for the error. Raises
    UsageError."""
    try:
        report = json.loads(text)
        gaps = [
            (int(gap["begin"]), int(gap["end"]), _count(gap["records_lost"]))
            for gap in report["gaps"]
        ]
        causes = {(str(f["code"]), _name(f["path"])) for f in report["findings"]}
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise UsageError(
            f"{name}: is not a report of verify",
            hint="make one with `aolog verify LOG --json > FILE`",
        ) from None
    return Baseline(gaps, causes)


def _count(value: object) -> int | None:
    if value is None or (isinstance(value, int) and not isinstance(value, bool)):
        return value
    raise ValueError(value)
