"""Known gaps: compares a new report of `verify` with an earlier one.

A gap is known if a gap of the baseline covers its range and lost at least as many records. An unknown
count in the baseline covers any count; a count that has become unknown is new. Damage that causes a gap
(a lost slab header, a damaged seal) is known if the baseline has the same damage of the same slab. All
other damage is new, even if the baseline has it: it costs no record, and a repair removes it. Slabs and
gaps are compared by address, so a log's baseline is valid for its copies.

A copy that `repair` made has its gaps and their causes in LOG/known-gaps.json: a baseline of its own,
which `verify` reads by itself. A file that cannot be parsed makes nothing known.
"""

from __future__ import annotations

import json
from bisect import bisect
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple

from aolog.errors import MALFORMED, UsageError
from aolog.format.names import KNOWN_GAPS_NAME

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aolog.log.directory import Log
    from aolog.maintenance.report import Finding, Report
    from aolog.record import Gap

GAP_CAUSES = {
    "header_lost",
    "renamed",
    "foreign_slab",
    "cursor_ahead",
}  # codes of damage that causes a gap
CAUSES = GAP_CAUSES | {"seal"}  # a damaged seal before another slab is a gap of 0 records
BYTES_MAX = 256 << 20  # a report of a million slabs is smaller; the file may be /dev/zero


class News(NamedTuple):
    """Gaps and damage that a baseline does not cover."""

    gaps: list[Gap]
    findings: list[Finding]

    @property
    def ok(self) -> bool:
        """Whether nothing is new."""
        return not self.gaps and not self.findings


class Baseline(NamedTuple):
    """gaps: (begin, end, records lost), in this order. causes: (code, name of the slab's file)."""

    gaps: list[tuple[int, int, int | None]]
    causes: set[tuple[str, str]]

    def news(self, report: Report) -> News:
        """The new part of a report."""
        damage = [found for found in report.findings if found.damage]
        return News(
            [gap for gap in report.new_gaps if not self.covers(gap)],
            [found for found in damage if not self.explains(found)],
        )

    def explains(self, found: Finding) -> bool:
        """Whether the finding is a known cause of gaps."""
        return found.code in CAUSES and (found.code, _name(found.path)) in self.causes

    def covers(self, gap: Gap) -> bool:
        """Whether a gap is known. The gaps of a report do not overlap, so only the last one that begins
        at or before it can cover it."""
        before = bisect(self.gaps, gap.begin, key=itemgetter(0))
        if before == 0:
            return False
        _, end, lost = self.gaps[before - 1]
        return gap.end <= end and (
            lost is None or (gap.records_lost is not None and gap.records_lost <= lost)
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
    except MALFORMED:
        raise UsageError(
            f"{name}: is not a report of verify",
            hint="make one with `aolog verify LOG --json > FILE`",
        ) from None
    return Baseline(sorted(gaps, key=itemgetter(0, 1)), causes)


def _count(value: object) -> int | None:
    if value is None or (isinstance(value, int) and not isinstance(value, bool)):
        return value
    raise ValueError(value)


def known_gaps_content(gaps: Iterable[Gap], causes: Iterable[Finding]) -> bytes:
    """The content of known-gaps.json."""
    findings = [{"code": found.code, "path": _name(found.path)} for found in causes]
    known = {"gaps": [gap._asdict() for gap in gaps], "findings": findings}
    return json.dumps(known).encode() + b"\n"


def own_baseline(log: Log) -> Baseline:
    """What the log's own known-gaps.json makes known."""
    try:
        with log.storage.open_read(log.directory / KNOWN_GAPS_NAME) as file:
            return parse_baseline(file.pread(min(file.stat().size, BYTES_MAX), 0), file.path)
    except (FileNotFoundError, UsageError):
        return Baseline([], set())
