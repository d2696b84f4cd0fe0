"""Losses: the records of one log that can no longer be delivered: its gaps, each record counted once.

A gap may become known twice, and in parts: it is read again after a rewind or a restart of the
forwarder, and unread records that retention removes are counted at once, while more are being removed,
and then read over as a gap. So gaps that overlap become one, and its records are counted by their
ordinals: from the first that is lost to the last.

The count is never too low. It is too high if records after the first that is not acknowledged were
delivered: by other lanes, or before a kill, without a commit.

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
from bridge.kafka.telemetry import LOST

if TYPE_CHECKING:
    from collections.abc import Iterable

_log = logging.getLogger("bridge")
DAMAGED_MAX = 50  # gaps that are shown


class _Loss(NamedTuple):
    """A gap, and the number of records before it; None if that, or the number in it, is unknown."""

    gap: Gap
    ordinal: int | None

    @property
    def records(self) -> int:
        return self.gap.records_lost or 0


class LogLosses:
    """See the module. records: lost, in gaps whose number of records is known; it never falls."""

    def __init__(self) -> None:
        self.records = 0
        self._known = 0
        self._losses: list[_Loss] = []  # by address; none overlap
        self._unlogged: Gap | None = None
        self._quiet_until_s = 0.0

    @property
    def gaps(self) -> int:
        """How many."""
        return len(self._losses)

    @property
    def damaged(self) -> tuple[tuple[int, int], ...]:
        """Addresses [begin, end) of the last gaps, except of what retention removed. From any thread."""
        last = list(self._losses)[-DAMAGED_MAX:]
        return tuple((x.gap.begin, x.gap.end) for x in last if x.gap.reason != "pruned")

    def add(self, gap: Gap, ordinal: int | None = None) -> bool:
        """Counts the new part of a gap; whether there is one. ordinal: records of the log before it."""
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
            return False
        replaced, losses[begin:end] = losses[begin:end], [whole]
        self._known += whole.records - sum(old.records for old in replaced)
        if self._known > self.records:
            LOST.labels(gap.reason).inc(self._known - self.records)
            self.records = self._known
        return True

    def met(self, gap: Gap, ordinal: int | None = None) -> None:
        """Counts a gap that was read over, and logs it unless it was known."""
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
        """Counts unread records that retention has removed: gaps, each with the records of the log
        before it. Logs them at once, and then what follows at most once a minute."""
        for gap, ordinal in lost:
            before = self.records
            if self.add(gap, ordinal):
                new = None if gap.records_lost is None else self.records - before
                self._unlogged = both(self._unlogged, gap._replace(records_lost=new))
        self.warn()

    def warn(self, *, at_once: bool = False) -> None:
        """Logs counted losses that are not logged yet, if that is due."""
        gap, now_s = self._unlogged, time.monotonic()
        if gap is None or (now_s < self._quiet_until_s and not at_once):
            return
        self._unlogged, self._quiet_until_s = None, now_s + WARN_EVERY_S
        _log.warning(
            "retention removed %s before they were delivered: addresses %d to %d; %s lost so far",
            records_lost(gap.records_lost),
            gap.begin,
            gap.end,
            f"{self.records:,}",
            extra={"event": "records_pruned"},
        )

    def check(self, path: str) -> None:
        """Raises GapFound if there are any. Intact records were delivered."""
        losses = Losses()
        for loss in self._losses:
            losses.add(loss.gap)
        losses.check(path, "delivered")


def _union(one: _Loss, other: _Loss) -> _Loss:
    """Two losses that overlap, as one."""
    begin, end = min(one.gap.begin, other.gap.begin), max(one.gap.end, other.gap.end)
    known = [loss for loss in (one, other) if loss.gap.records_lost is not None]
    for loss in known:  # it includes the other
        if loss.gap[:2] == (begin, end):
            return loss
    reason = one.gap.reason if one.gap.reason == "pruned" else other.gap.reason
    if len(known) < 2 or one.ordinal is None or other.ordinal is None:
        return _Loss(Gap(begin, end, reason, None), None)
    first = min(one.ordinal, other.ordinal)
    last = max(one.ordinal + one.records, other.ordinal + other.records)
    return _Loss(Gap(begin, end, reason, last - first), first)
