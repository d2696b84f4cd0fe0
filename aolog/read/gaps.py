"""Gaps: the count of the records that a gap lost, and what a reader does at a gap.

A scan opens a gap where damage begins and extends it over all damage that touches it. The next intact
part (a frame, a seal, the next slab's header) shows how many records of the log are before it. The
difference to the number that the scan expected is the loss.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from aolog.errors import GapFound, records_lost, warn
from aolog.record import Gap, GapReason, Position

MILD_TO_GRAVE: tuple[GapReason, ...] = (
    "torn", "torn_or_corrupt", "corrupt", "missing", "foreign", "pruned",
)  # fmt: skip  # a list of names


class OpenGap(NamedTuple):
    """A gap whose loss is not known yet. expected: ordinal of the first record it may contain; None if
    unknown."""

    begin: int
    end: int
    reason: GapReason
    expected: int | None

    def extended(self, end: int, reason: GapReason) -> OpenGap:
        """The gap with damage up to `end` added; it keeps the worst of the reasons."""
        worst = max(self.reason, reason, key=MILD_TO_GRAVE.index)
        return OpenGap(self.begin, max(self.end, end), worst, self.expected)

    def counted(self, ordinal: int | None) -> Gap:
        """The gap with its loss. ordinal: records of the log before the intact part after the gap;
        None if unknown."""
        lost = None
        if ordinal is not None and self.expected is not None:
            lost = max(0, ordinal - self.expected)
        return Gap(self.begin, self.end, self.reason, lost)


class Progress(NamedTuple):
    """How far a scan has got in a log. Each change returns a new value."""

    position: Position  # of the next wanted record
    gap: OpenGap | None = None  # before it, of which nothing intact shows the loss yet
    passed_foreign: bool = False  # whether a slab of another log came after the last header

    def moved(self, address: int, ordinal: int | None) -> Progress:
        """At this position, or where it is already if that is further."""
        return self._replace(position=Position(max(self.position.address, address), ordinal))

    def damaged(self, begin: int, end: int, reason: GapReason) -> Progress:
        """With a gap from the wanted address on, or with the open one extended."""
        address, ordinal = self.position
        gap = self.gap or OpenGap(max(begin, address), end, reason, ordinal)
        return self._replace(gap=gap.extended(end, reason))

    def intact(self, ordinal: int | None) -> tuple[Progress, list[Gap]]:
        """Without a gap, and the gap, if there was one: the next part is intact, with `ordinal` records of
        the log before it."""
        if self.gap is None:
            return self, []
        after = self._replace(gap=None).moved(self.gap.end, ordinal)  # later losses count from here
        return after, [self.gap.counted(ordinal)]


def reported_elsewhere(_gap: Gap) -> None:
    """`on_gap` of an internal reader whose caller reports the gaps of this log in another way."""


class GapReport:
    """Remembers each gap, calls the user, and raises if the reader is strict; logs it if neither.

    gaps: all that were reported, in order. on_gap: called with each. strict: raise GapFound."""

    def __init__(self, path: str, on_gap: Callable[[Gap], None] | None, *, strict: bool) -> None:
        self.gaps: list[Gap] = []
        self.raised: Exception | None = None  # what `on_gap` raised last
        self._path = path
        self._on_gap = on_gap
        self._strict = strict

    def report(self, gap: Gap) -> None:
        """Raises GapFound if the reader is strict, and what `on_gap` raises."""
        self.gaps.append(gap)
        what = f"addresses {gap.begin} to {gap.end} cannot be read ({gap.reason})"
        lost = records_lost(gap.records_lost)
        if self._on_gap is not None:
            try:
                self._on_gap(gap)
            except Exception as error:
                self.raised = error
                raise
        elif not self._strict:
            warn("%s: %s, %s lost", self._path, what, lost)
        if self._strict:
            raise GapFound(
                f"{what}: {lost}",
                hint="read again to continue after the gap"
                + ("" if gap.reason == "pruned" else "; `aolog verify` lists all gaps"),
                path=self._path,
                gap=gap,
            )
