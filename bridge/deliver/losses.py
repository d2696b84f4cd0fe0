"""LogLosses: the records of one log that can no longer be delivered, as one process meets them; and
those that its cursor has lost in all processes, which LossFile keeps."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from copy import deepcopy

from aolog import Gap
from aolog.errors import records_lost
from aolog.record import both
from aolog.write.pruned_unread import PrunedUnread
from bridge.config.names import BRIDGE
from bridge.deliver.known_gaps import KnownGaps
from bridge.kafka.telemetry import LOST

_log = logging.getLogger("bridge")
_DAMAGED_MAX = 50  # a status has no more


class LogLosses(KnownGaps):
    """The gaps met since the process started. ever: those of all processes, as far as they are known here. path,
    cursor: for log lines."""

    def __init__(self, path: str = "", cursor: str = BRIDGE) -> None:
        super().__init__()
        self.ever = KnownGaps()
        self._cursor = cursor
        self._unread = PrunedUnread(path)

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
        unread: Gap | None = None
        for gap, ordinal in lost:
            before = self.records
            if self.add(gap, ordinal):
                new = None if gap.records_lost is None else self.records - before
                unread = both(unread, gap._replace(records_lost=new))
        if unread is not None:
            self._unread.add({self._cursor: unread})
        self._unread.warn()

    def warn(self) -> None:
        """Logs what is counted and not logged yet."""
        self._unread.warn(at_once=True)

    def check(self, path: str) -> None:
        """Raises GapFound if there are any. Intact records were delivered."""
        losses = deepcopy(self._earlier)
        for loss in self._losses:
            losses.add(loss.gap)
        losses.check(path, "delivered", where="`aolog-bridge status --log` lists the gaps")
