"""How far a scan got, the count of the records that a gap lost, and what a reader does at a gap.

The next intact part after a gap (a frame, a seal, the next slab's header) shows how many records of the log are
before it. The difference to the number that the scan expected is the loss.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from aolog.errors import GapFound, records_lost, warn
from aolog.record import Gap, GapReason, Position, count_between

if TYPE_CHECKING:
    from aolog.read.batch import RecordFrame

MILD_TO_GRAVE: tuple[GapReason, ...] = (
    "torn", "torn_or_corrupt", "corrupt", "missing", "foreign", "pruned",
)  # fmt: skip  # a list of names


class Progress(NamedTuple):
    """How far a scan has got in a log, and what it found on the way. Each change returns a new value."""

    position: Position  # of the next wanted record
    gap: Gap | None = None  # before it, of which nothing intact shows the loss yet
    expected: int | None = None  # ordinal of the first record that the gap may contain
    passed_foreign: bool = False  # whether a slab of another log came after the last header
    results: tuple[RecordFrame | Gap, ...] = ()

    def moved(self, address: int, ordinal: int | None) -> Progress:
        """At this position, or where it is already if that is further."""
        return self._replace(position=Position(max(self.position.address, address), ordinal))

    def found(self, *results: RecordFrame | Gap) -> Progress:
        """With these results."""
        return self._replace(results=(*self.results, *results))

    def damaged(self, begin: int, end: int, reason: GapReason) -> Progress:
        """With a gap from the wanted address on, or with the open one extended; it keeps the worst of the
        reasons."""
        if self.gap is None:
            address, expected = self.position
            gap = Gap(max(begin, address), end, reason, None)
            return self._replace(gap=gap, expected=expected)
        worst = max(self.gap.reason, reason, key=MILD_TO_GRAVE.index)
        return self._replace(gap=self.gap._replace(end=max(self.gap.end, end), reason=worst))

    def intact(self, ordinal: int | None) -> Progress:
        """The next part is intact, with `ordinal` records of the log before it; None if unknown. The gap, if
        there is one, becomes a result."""
        if self.gap is None:
            return self
        lost = count_between(self.expected, ordinal)
        after = self._replace(gap=None).moved(self.gap.end, ordinal)  # later losses count from here
        return after.found(self.gap._replace(records_lost=lost))


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
        self._ahead: tuple[int, int] | None = None  # addresses reported before a slab shows them

    def warn(self, what: str) -> None:
        """Of what other readers have lost. Raises GapFound if the reader is strict."""
        if self._strict:
            raise GapFound(what, hint="`aolog verify` lists all gaps", path=self._path)
        warn("%s: %s", self._path, what)

    def report(self, gap: Gap, *, ahead: bool = False) -> None:
        """ahead: of a lost end, of which the next writer will make this gap; then it is not reported again.
        Raises GapFound if the reader is strict, and what `on_gap` raises."""
        if gap[:2] == self._ahead:
            return
        if ahead:
            self._ahead = gap[:2]
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
