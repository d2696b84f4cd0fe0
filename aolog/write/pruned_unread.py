"""What the writer's retention removed although a cursor had not read it: the sum, and the warnings."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from aolog.errors import records_lost, warn
from aolog.record import both
from aolog.write.schedule import NEVER_S

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aolog.record import Gap

WARN_EVERY_S = 60.0  # a full log may lose many slabs a second: log one line a minute


class PrunedUnread:
    """The unread records that retention removed. Logs a warning at once, then at most one a minute with the losses
    since. Not thread-safe: a writer calls it under its lock.

    total: by cursor, since the writer was opened; replaced, never changed. due_s: when the next
    warning is due, by `time.monotonic`.
    """

    def __init__(self, path: str) -> None:
        self.total: Mapping[str, Gap] = {}
        self.due_s = NEVER_S
        self._path = path
        self._unlogged: dict[str, Gap] = {}
        self._quiet_until_s = 0.0

    def add(self, unread: Mapping[str, Gap]) -> None:
        """Adds what one pruning removed, by cursor."""
        if not unread:
            return
        self.total = {**self.total, **_sum(self.total, unread)}
        self._unlogged |= _sum(self._unlogged, unread)
        self.due_s = max(time.monotonic(), self._quiet_until_s)
        self.warn()

    def warn(self, *, at_once: bool = False) -> None:
        """Logs the losses that were not logged yet, if a warning is due."""
        now_s = time.monotonic()
        if not self._unlogged or (now_s < self.due_s and not at_once):
            return
        unlogged, self._unlogged, self.due_s = self._unlogged, {}, NEVER_S
        self._quiet_until_s = now_s + WARN_EVERY_S
        for name, lost in unlogged.items():
            warn(
                "%s: retention removed %s that cursor %r had not read, addresses %d to %d; to keep "
                'unread records, raise max_bytes or set when_full to "block" or "error"',
                self._path,
                records_lost(lost.records_lost),
                name,
                lost.begin,
                lost.end,
            )


def _sum(before: Mapping[str, Gap], more: Mapping[str, Gap]) -> dict[str, Gap]:
    return {name: both(before.get(name), gap) for name, gap in more.items()}
