"""The values that users see: a record, a gap, a lag. And `Losses`, the total of several gaps.

A record has the parts that Kafka's record has, so Kafka can store all of it. Ranges of addresses
are `[begin, end)` everywhere. Nothing here depends on bytes on disk.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, TypeAlias

from aolog.errors import GapFound, counted

Headers: TypeAlias = tuple[tuple[str, bytes | None], ...]

GapReason: TypeAlias = Literal["torn", "corrupt", "torn_or_corrupt", "missing", "foreign", "pruned"]


class Record(NamedTuple):
    """One record, as it was appended.

    address: increases from record to record, never changes, valid for seek. timestamp:
    microseconds since the epoch, UTC; None if it has none, as in a log of queuefka. topic: the
    destination's name; None means the log's default topic.
    """

    address: int
    timestamp: int | None
    key: bytes | None
    value: bytes | None
    headers: Headers
    topic: str | None


class Gap(NamedTuple):
    """Addresses `[begin, end)` that cannot be read, the reason, and the number of records lost.

    reason: `torn`: an unfinished end, never acknowledged as durable. `corrupt`: it was intact once
    and is not now. `torn_or_corrupt`: either of the two. `missing`: a slab does not exist.
    `foreign`: a slab of another log is in its place. `pruned`: retention removed it.
    records_lost: exact, or None if nothing after the gap shows the number.
    """

    begin: int
    end: int
    reason: GapReason
    records_lost: int | None


def both(one: Gap | None, other: Gap) -> Gap:
    """Two losses of one cursor as one gap. one: the earlier loss."""
    if one is None:
        return other
    known = one.records_lost is not None and other.records_lost is not None
    lost = (one.records_lost or 0) + (other.records_lost or 0) if known else None
    return Gap(min(one.begin, other.begin), max(one.end, other.end), "pruned", lost)


class Position(NamedTuple):
    """Between two records of a log. address: of the next record. ordinal: the number of records before it;
    None if unknown, as in a log of queuefka and after damage whose records cannot be counted."""

    address: int
    ordinal: int | None


def count_between(begin: int | None, end: int | None) -> int | None:
    """The records between two ordinals, 0 if `end` is before `begin`; None if one of them is unknown."""
    return None if begin is None or end is None else max(0, end - begin)


class Lag(NamedTuple):
    """What a reader at a position has not read, up to the end of the log now. Records that retention
    removed do not count.

    records: exact; None in a log of queuefka, which does not count them. bytes: of slab files, headers
    and damage included. seconds: age of the oldest unread record; 0.0 if there is none, None if it
    has no timestamp.
    """

    records: int | None
    bytes: int
    seconds: float | None


class Losses:
    """The total of the gaps that were reported: how many, the records lost, and the error to raise.

    records: lost in gaps whose number of records is known. unknown: the number of other gaps."""

    def __init__(self) -> None:
        self.gaps = self.records = self.unknown = 0
        self._reasons: dict[str, int] = {}

    def add(self, gap: Gap) -> None:
        """Counts one gap."""
        self.gaps += 1
        self.records += gap.records_lost or 0
        self.unknown += gap.records_lost is None
        self._reasons[gap.reason] = self._reasons.get(gap.reason, 0) + 1

    def __str__(self) -> str:
        reasons = ", ".join(f"{count} {reason}" for reason, count in sorted(self._reasons.items()))
        lost = f"{counted(self.records, 'record', ',')} lost"
        if self.unknown:
            lost = f"{lost} and " if self.records else ""
            lost += f"an unknown number in {self.unknown} of them"
        return f"{counted(self.gaps, 'gap')} met ({reasons}): {lost}"

    def check(self, path: str, done: str, *, where: str | None = None) -> None:
        """Raises GapFound if there was a gap. done: what happened to intact records, in one word. where:
        what lists the gaps, if it is not `aolog verify`."""
        if not self.gaps:
            return
        raise GapFound(
            str(self),
            hint=f"intact records were {done}; {where or self._where_shown()}",
            path=path,
            gaps=self.gaps,
            records_lost=None if self.unknown else self.records,
        )

    def _where_shown(self) -> str:
        """`verify` cannot report pruned slabs."""
        pruned = self._reasons.get("pruned", 0)
        gone = "retention or `aolog prune` removed"
        if pruned == self.gaps:
            return f"{gone} the missing records"
        shown = "`aolog verify` lists all gaps"
        return f"{shown} except what {gone}" if pruned else shown
