"""LogLosses: the records of one log that can no longer be delivered, as one process meets them; and
those that its cursor has lost in all processes, which LossFile keeps."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable
from copy import deepcopy

from aolog import Gap
from aolog.errors import records_lost
from aolog.record import both
from aolog.write.pruned_unread import WARN_EVERY_S
from bridge.deliver.known_gaps import KnownGaps
from bridge.kafka.telemetry import LOST

_log = logging.getLogger("bridge")
_DAMAGED_MAX = 50  # a status has no more


class LogLosses(KnownGaps):
    """The gaps met since the process started. ever: those of all processes, as far as they are known here."""

    def __init__(self) -> None:
        super().__init__()
        self.ever = KnownGaps()
        self._pruned: Gap | None = None  # all that retention removed
        self._unlogged: Gap | None = None
        self._quiet_until_s = 0.0

    @property
    def damaged(self) -> tuple[tuple[int, int], ...]:
        """Addresses [begin, end) of the last gaps, except of what retention removed. From any thread."""
        return tuple(
            (x.gap.begin, x.gap.end) for x in self.last[-_DAMAGED_MAX:] if x.gap.reason != "pruned"
        )

    def continue_from(self, saved: KnownGaps) -> None:
        """Adds the gaps of this process to those that were saved, which become `ever`."""
        for loss in self._losses:
            saved.add(*loss)
        self.ever = saved

    def add(self, gap: Gap, ordinal: int | None = None, at_s: int | None = None) -> bool:
        """As KnownGaps.add; counts in the metrics, too."""
        before = self.records
        self.ever.add(gap, ordinal, at_s)
        new = super().add(gap, ordinal, at_s)
        if self.records > before:
            LOST.labels(gap.reason).inc(self.records - before)
        return new

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
                part = gap._replace(records_lost=new)
                self._unlogged, self._pruned = both(self._unlogged, part), both(self._pruned, part)
        self.warn()

    def warn(self, *, at_once: bool = False) -> None:
        """Logs counted losses that are not logged yet, if that is due: how many, and the range and the
        number of all so far. Gaps are met in any order, so the ranges of two lines would overlap."""
        gap, whole, now_s = self._unlogged, self._pruned, time.monotonic()
        if gap is None or whole is None or (now_s < self._quiet_until_s and not at_once):
            return
        self._unlogged, self._quiet_until_s = None, now_s + WARN_EVERY_S
        _log.warning(
            "retention removed %s before they were delivered; %s lost so far, addresses %d to %d",
            records_lost(gap.records_lost),
            "an unknown number" if whole.records_lost is None else f"{whole.records_lost:,}",
            whole.begin,
            whole.end,
            extra={"event": "records_pruned"},
        )

    def check(self, path: str) -> None:
        """Raises GapFound if there are any. Intact records were delivered."""
        losses = deepcopy(self._earlier)
        for loss in self._losses:
            losses.add(loss.gap)
        losses.check(path, "delivered", where="`aolog-bridge status --log` lists the gaps")
