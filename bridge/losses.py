"""What of one log will never be delivered: its gaps, each counted once.

A gap may be known twice and in parts: the same gap is met again after a rewind or a restart of the
forwarder; unread records that retention removed are counted as soon as they are gone, while more
are being removed, and met as a gap when the log is read on. So a gap that lies within a known one
counts nothing, and one that contains others takes their place.

The count is never too low. It is too high where records beyond the first that is not acknowledged
were delivered: by other lanes, or before a kill, without a commit.

One thread at a time adds; any thread may read the counts.
"""

from __future__ import annotations

import logging
import time
from bisect import bisect_left
from typing import TYPE_CHECKING

from aolog.losses import Losses
from aolog.notices import records_lost
from aolog.pruned import both

if TYPE_CHECKING:
    from aolog import Gap

__all__ = ["LogLosses"]

_log = logging.getLogger("bridge")
WARN_EVERY_S = 60.0  # retention may remove a slab many times a second: one line a minute says it


class LogLosses:
    """See the module. records: lost, where their number is known; never falls. unknown: gaps where
    it is not."""

    def __init__(self) -> None:
        self.records = self.unknown = 0
        self._known = 0
        self._gaps: list[Gap] = []  # by where they begin
        self._unsaid: Gap | None = None
        self._quiet_until_s = 0.0

    @property
    def gaps(self) -> int:
        """How many."""
        return len(self._gaps)

    def add(self, gap: Gap) -> bool:
        """Counts what is new in a gap; whether anything is."""
        gaps = self._gaps
        i = bisect_left(gaps, gap.begin, key=lambda known: known.begin)
        if any(
            known.begin <= gap.begin and gap.end <= known.end
            for known in gaps[max(i - 1, 0) : i + 1]
        ):
            return False
        end = i
        while end < len(gaps) and gaps[end].end <= gap.end:
            end += 1
        replaced, gaps[i:end] = gaps[i:end], [gap]
        self._known += (gap.records_lost or 0) - sum(old.records_lost or 0 for old in replaced)
        self.unknown += (gap.records_lost is None) - sum(
            old.records_lost is None for old in replaced
        )
        self.records = max(self.records, self._known)
        return True

    def met(self, gap: Gap) -> None:
        """The log was read up to a gap: counts it, and warns unless it was known."""
        if gap.reason == "pruned":
            self.pruned([gap] if gap.records_lost != 0 else [])
        elif self.add(gap):
            _log.warning(
                "gap in the log: addresses %d to %d (%s), %s lost",
                gap.begin,
                gap.end,
                gap.reason,
                records_lost(gap.records_lost),
            )

    def pruned(self, gaps: list[Gap]) -> None:
        """What retention has removed of what is still to be read, as of now: counts it, and warns
        at once, then at most once a minute with what was removed since."""
        for gap in gaps:
            before = self.records
            if self.add(gap):
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
        for gap in self._gaps:
            losses.add(gap)
        losses.check(path, "delivered")
