"""What of one log will never be delivered: its gaps, each record of them counted once.

A gap may be known twice and in parts. The same gap is met again after a rewind or a restart of the
forwarder. Unread records that retention removed are counted as soon as they are gone, while more
are being removed, and are met as a gap when the log is read on. So gaps that overlap become one,
and its records are counted by their ordinals: from the first that is lost to the last.

The count is never too low. It is too high where records beyond the first that is not acknowledged
were delivered: by other lanes, or before a kill, without a commit.

One thread at a time adds; any thread may read the counts.
"""

from __future__ import annotations

import logging
import time
from bisect import bisect_left
from typing import TYPE_CHECKING, NamedTuple

from aolog import Gap
from aolog.errors import records_lost
from aolog.log.pruned_records import WARN_EVERY_S, both
from aolog.record import Losses

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["LogLosses"]

_log = logging.getLogger("bridge")


class _Loss(NamedTuple):
    """A gap, and the records of the log before it; None where they, or those in it, are unknown."""

    gap: Gap
    ordinal: int | None

    @property
    def records(self) -> int:
        return self.gap.records_lost or 0


class LogLosses:
    """See the module. records: lost, where their number is known; never falls. unknown: gaps where
    it is not."""

    def __init__(self) -> None:
        self.records = self.unknown = 0
        self._known = 0
        self._losses: list[_Loss] = []  # by where they begin; none overlap
        self._unsaid: Gap | None = None
        self._quiet_until_s = 0.0

    @property
    def gaps(self) -> int:
        """How many."""
        return len(self._losses)

    def add(self, gap: Gap, ordinal: int | None = None) -> bool:
        """Counts what is new in a gap; whether anything is. ordinal: records of the log before it."""
        losses = self._losses
        begin = bisect_left(losses, gap.begin, key=lambda loss: loss.gap.begin)
        if begin and (losses[begin - 1].gap.end > gap.begin):
            begin -= 1
        end = begin
        whole = _Loss(gap, ordinal)
        while end < len(losses) and losses[end].gap.begin < max(gap.end, gap.begin + 1):
            whole = _union(losses[end], whole)
            end += 1
        if end - begin == 1 and whole.gap[:2] == losses[begin].gap[:2]:
            return False  # it lies within a known one
        replaced, losses[begin:end] = losses[begin:end], [whole]
        self._known += whole.records - sum(old.records for old in replaced)
        self.unknown += (whole.gap.records_lost is None) - sum(
            old.gap.records_lost is None for old in replaced
        )
        self.records = max(self.records, self._known)
        return True

    def met(self, gap: Gap, ordinal: int | None = None) -> None:
        """The log was read up to a gap: counts it, and warns unless it was known."""
        if gap.reason == "pruned":
            self.pruned([(gap, ordinal)] if gap.records_lost != 0 else [])
        elif self.add(gap, ordinal):
            _log.warning(
                "gap in the log: addresses %d to %d (%s), %s lost",
                gap.begin,
                gap.end,
                gap.reason,
                records_lost(gap.records_lost),
            )

    def pruned(self, lost: Iterable[tuple[Gap, int | None]]) -> None:
        """What retention has removed of what is still to be read, as of now: counts it, and warns
        at once, then at most once a minute with what was removed since. Gaps, and with each the
        records of the log before it."""
        for gap, ordinal in lost:
            before = self.records
            if self.add(gap, ordinal):
                new = None if gap.records_lost is None else self.records - before
                self._unsaid = both(self._unsaid, gap._replace(records_lost=new))
        self.warn()

    def warn(self, *, at_once: bool = False) -> None:
        """Logs what was counted as pruned and not logged yet, if that is due."""
        gap, now_s = self._unsaid, time.monotonic()
        if gap is None or (now_s < self._quiet_until_s and not at_once):
            return
        self._unsaid, self._quiet_until_s = None, now_s + WARN_EVERY_S
        _log.warning(
            "retention removed %s before they were delivered: addresses %d to %d; %s lost so far",
            records_lost(gap.records_lost),
            gap.begin,
            gap.end,
            f"{self.records:,}",
            extra={"event": "records_pruned"},
        )

    def check(self, path: str) -> None:
        """Raises GapFound if there are any: what is intact was delivered."""
        losses = Losses()
        for loss in self._losses:
            losses.add(loss.gap)
        losses.check(path, "delivered")


def _union(one: _Loss, other: _Loss) -> _Loss:
    """Of two that overlap."""
    begin, end = min(one.gap.begin, other.gap.begin), max(one.gap.end, other.gap.end)
    known = [loss for loss in (one, other) if loss.gap.records_lost is not None]
    for loss in known:  # it holds the other's records too
        if loss.gap[:2] == (begin, end):
            return loss
    reason = one.gap.reason if one.gap.reason == "pruned" else other.gap.reason
    if len(known) < 2 or one.ordinal is None or other.ordinal is None:
        return _Loss(Gap(begin, end, reason, None), None)
    first = min(one.ordinal, other.ordinal)
    last = max(one.ordinal + one.records, other.ordinal + other.records)
    return _Loss(Gap(begin, end, reason, last - first), first)
