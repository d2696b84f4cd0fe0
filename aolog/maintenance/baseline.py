"""Gaps that are known and accepted: an earlier report of `verify`, compared with a new one.

A gap is known if one gap of the baseline covers it and lost at least as many records. A lost count that
was unknown covers any count; a count that has become unknown is not covered. Damage that causes a gap
(a lost slab header, a damaged seal) is known if the baseline names the same damage of the same slab.
All other damage counts as new, also if the baseline has it: it cost no record yet, and a repair
removes it. Slabs and gaps are compared by address, so a baseline of a log holds for its copies.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, NamedTuple

from aolog.errors import UsageError
from aolog.maintenance.verify import GAP_CAUSES

if TYPE_CHECKING:
    from aolog.maintenance.verify import Finding, Report
    from aolog.record import Gap

__all__ = ["Baseline", "News", "parse_baseline"]

_CAUSES = GAP_CAUSES | {"seal"}  # a damaged seal in front of another slab is a gap of no records


class News(NamedTuple):
    """What a baseline does not cover."""

    gaps: list[Gap]
    findings: list[Finding]

    @property
    def ok(self) -> bool:
        """Whether there is nothing new."""
        return not self.gaps and not self.findings


class Baseline(NamedTuple):
    """gaps: (begin, end, records lost). causes: (code, name of the slab's file)."""

    gaps: list[tuple[int, int, int | None]]
    causes: set[tuple[str, str]]

    def news(self, report: Report) -> News:
        """What of the report is new."""
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
    """The gaps in a report, as `aolog verify --json` prints it. name: of the file, for the error.
    Raises UsageError."""
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
