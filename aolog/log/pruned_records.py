"""Unread records that retention removed: the records between a position and the log's first slab.

Computed, never stored. A position has the number of the log's records before it; the header of the
first slab has the number before that slab. The difference is the loss. Lag, the list of cursors, the
writer's warning and the bridge all use this module, so they report the same number.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from aolog.errors import records_lost, warn
from aolog.format.slab import NO_PREDECESSOR
from aolog.record import Gap

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aolog.log.directory import Log

WARN_EVERY_S = 60.0  # a full log may lose many slabs a second: log one line a minute
NEVER_S = float("inf")  # a due time


def pruned_before(log: Log, address: int, ordinal: int | None, *, first: int = 0) -> Gap | None:
    """The unread records that were removed: a gap from the position to the log's first slab, with
    reason "pruned". None if no record was removed.

    ordinal: records of the log before the position; None if unknown. first: index of the slab to
    treat as the log's first, to compute a loss before the removal. The count is exact; it is None
    without headers, after damage whose records cannot be counted, and if the first slab's header is lost.
    Raises FileNotFoundError if a slab is pruned meanwhile.
    """
    begin = log.bases[first]
    if address >= begin:
        return None
    header = log.slab(first).header
    if header is not None and header.predecessor_base == NO_PREDECESSOR:
        return None  # the log never had a slab before this one
    lost = None
    if header is not None and ordinal is not None and not header.ordinal_unsure:
        lost = max(0, header.base_ordinal - ordinal)
    return None if lost == 0 else Gap(address, begin, "pruned", lost)


def both(one: Gap | None, other: Gap) -> Gap:
    """Two losses of one cursor as one gap. one: the earlier loss."""
    if one is None:
        return other
    known = one.records_lost is not None and other.records_lost is not None
    lost = (one.records_lost or 0) + (other.records_lost or 0) if known else None
    return Gap(min(one.begin, other.begin), max(one.end, other.end), "pruned", lost)


class PrunedUnread:
    """The unread records that a writer's retention removed. Logs a warning at once, then at most one
    a minute with the losses since. Call `add` and `warn` under the writer's lock.

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
        if now_s < self.due_s and not at_once:
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


def pruned_to_json(unread: Mapping[str, Gap]) -> list[dict[str, object]]:
    """Losses by cursor, as the command line prints them."""
    return [
        {"cursor": name, "begin": gap.begin, "end": gap.end, "records_lost": gap.records_lost}
        for name, gap in unread.items()
    ]
