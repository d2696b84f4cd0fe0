"""Unread records that retention removed: what lies between a position and the log's first slab.

Derived, never stored. A position says how many records of the log are before it; the header of
the first slab says how many are before that slab. The difference is the loss. Lag, the list of
cursors, the writer's warning and the bridge all ask here, so they all say the same number.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from aolog import notices
from aolog.format.slab import NO_PREDECESSOR
from aolog.record import Gap

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aolog.log.directory import Log

__all__ = ["WARN_EVERY_S", "PrunedUnread", "both", "pruned_before", "pruned_to_json"]

WARN_EVERY_S = 60.0  # a full log may lose a slab many times a second: one line a minute says it
_NEVER_S = float("inf")


def pruned_before(log: Log, address: int, ordinal: int | None, *, first: int = 0) -> Gap | None:
    """The unread records that are gone: a gap from the position to the log's first slab, with
    reason "pruned". None if no record is gone.

    ordinal: records of the log before the position, None if unknown. first: index of the slab that
    counts as the log's first, to ask what a removal costs before it is done. The count is exact;
    it is None in format 1, after damage that nothing counts, and where the first slab's header is
    lost. Raises FileNotFoundError if a slab is pruned meanwhile.
    """
    begin = log.bases[first]
    if address >= begin:
        return None
    header = log.slab(first).header
    if header is not None and header.predecessor_base == NO_PREDECESSOR:
        return None  # the log never had anything before this slab
    lost = None
    if header is not None and ordinal is not None and not header.ordinal_unsure:
        lost = max(0, header.base_ordinal - ordinal)
    return None if lost == 0 else Gap(address, begin, "pruned", lost)


def both(one: Gap | None, other: Gap) -> Gap:
    """Two losses of one cursor, the first the earlier, as one."""
    if one is None:
        return other
    known = one.records_lost is not None and other.records_lost is not None
    lost = (one.records_lost or 0) + (other.records_lost or 0) if known else None
    return Gap(min(one.begin, other.begin), max(one.end, other.end), "pruned", lost)


class PrunedUnread:
    """The unread records that a writer's retention has removed. Warns of them at once, then at most
    once a minute with what was removed since. `add` and `warn` need the writer's lock.

    total: since the writer was opened, by cursor; replaced, never changed. due_s: when `warn` has
    something to say, by `time.monotonic`.
    """

    def __init__(self, path: str) -> None:
        self.total: Mapping[str, Gap] = {}
        self.due_s = _NEVER_S
        self._path = path
        self._unsaid: dict[str, Gap] = {}
        self._quiet_until_s = 0.0

    def add(self, unread: Mapping[str, Gap]) -> None:
        """What one pruning removed, by cursor."""
        if not unread:
            return
        self.total = {**self.total, **_sum(self.total, unread)}
        self._unsaid |= _sum(self._unsaid, unread)
        self.due_s = max(time.monotonic(), self._quiet_until_s)
        self.warn()

    def warn(self, *, at_once: bool = False) -> None:
        """Logs what was not said yet, if that is due."""
        now_s = time.monotonic()
        if now_s < self.due_s and not at_once:
            return
        unsaid, self._unsaid, self.due_s = self._unsaid, {}, _NEVER_S
        self._quiet_until_s = now_s + WARN_EVERY_S
        for name, lost in unsaid.items():
            notices.warn(
                "%s: retention removed %s that cursor %r had not read, addresses %d to %d; to keep "
                'unread records, raise max_bytes or set when_full to "block" or "error"',
                self._path,
                notices.records_lost(lost.records_lost),
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
