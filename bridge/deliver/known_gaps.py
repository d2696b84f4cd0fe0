"""KnownGaps: gaps of one log, each of its records counted once; and LossFile, which keeps them.

    LOG/cursors/NAME.losses   JSON, replaced in place; durable before the cursor passes a loss, if there is room

A file of its own: many gaps must not make the checkpoints, saved with each commit, outgrow their room.

A gap may become known twice, and in parts: it is read again after a rewind or a restart, and what retention
removes unread is counted while it is removed, and then read over. So gaps that overlap become one, and its
records are counted by their ordinals: from the first that is lost to the last. Of many gaps only the last
are kept one by one, and the earlier ones as totals; a gap at an address of those counts as one of them.

The count is too high if records after the first that is not acknowledged were delivered: by other lanes, or
before a kill, without a commit. It is too low only if a gap is new, after a rewind, among the totals.
"""

from __future__ import annotations

import logging
import time
from bisect import bisect_left
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from aolog import Gap, Reader
from aolog.errors import StorageError, SyncFailed
from aolog.format.names import LOSSES_SUFFIX
from aolog.log.cursor_file import cursor_path
from aolog.record import Losses
from aolog.storage.storage import Storage
from bridge.deliver.checkpoint_file import CheckpointFile

_log = logging.getLogger("bridge")
SAVED_MAX = 1_000  # of the last gaps, in the file, about 120 KB
KEPT_MAX = 10_000  # in memory, about 4 MB
_PAUSE_S = 10.0  # between two tries to save on a full disk


class Loss(NamedTuple):
    """ordinal: records of the log before the gap, if known. at_s: when it was first met, since the epoch."""

    gap: Gap
    ordinal: int | None
    at_s: int

    @property
    def records(self) -> int:
        """In the gap; 0 if unknown."""
        return self.gap.records_lost or 0


class KnownGaps:
    """See the module. records: lost, in gaps whose number of records is known; it never falls. gaps: how
    many. changed: set when one is added. One thread at a time adds; any thread may read."""

    def __init__(self) -> None:
        self.records = self.gaps = 0
        self.changed = False
        self._known = 0
        self._losses: list[Loss] = []  # by address; none overlap
        self._earlier = Losses()  # that this process met, and are not in the list
        self._earlier_to = 0  # gaps that end here or before are not in the list

    @property
    def last(self) -> tuple[Loss, ...]:
        """The last SAVED_MAX of them, by address."""
        return tuple(self._losses[-SAVED_MAX:])

    def add(self, gap: Gap, ordinal: int | None = None, at_s: int | None = None) -> bool:
        """Counts the new part of a gap; whether there is one. ordinal: records of the log before it."""
        if gap.end <= self._earlier_to:
            return False
        losses = self._losses
        begin = bisect_left(losses, gap.begin, key=lambda loss: loss.gap.begin)
        if begin and losses[begin - 1].gap.end > gap.begin:
            begin -= 1
        end = begin
        whole = Loss(gap, ordinal, int(time.time()) if at_s is None else at_s)
        while end < len(losses) and losses[end].gap.begin < max(gap.end, gap.begin + 1):
            whole = _union(losses[end], whole)
            end += 1
        if end - begin == 1 and whole.gap[:2] == losses[begin].gap[:2]:
            return False
        replaced, losses[begin:end] = losses[begin:end], [whole]
        self.gaps += 1 - len(replaced)
        self._known += whole.records - sum(old.records for old in replaced)
        self.records = max(self.records, self._known)
        self.changed = True
        if len(losses) > KEPT_MAX:
            self._keep(KEPT_MAX // 2)
        return True

    def _keep(self, count: int) -> None:
        for loss in self._losses[:-count]:
            self._earlier.add(loss.gap)
        del self._losses[:-count]
        self._earlier_to = self._losses[0].gap.begin

    def to_json(self) -> dict[str, Any]:
        """The totals, and the last gaps: `from_json` of this has the same counts."""
        last = [
            {**loss.gap._asdict(), "ordinal": loss.ordinal, "at": loss.at_s} for loss in self.last
        ]
        return {"records": self.records, "gaps": self.gaps, "last": last}

    @classmethod
    def from_json(cls, saved: Mapping[str, Any]) -> KnownGaps:
        """Raises KeyError, TypeError, ValueError."""
        known = cls()
        for each in saved["last"]:
            gap = Gap(*(each[name] for name in Gap._fields))
            known.add(gap, each["ordinal"], int(each["at"]))
        known.gaps = int(saved["gaps"])
        if known.gaps > len(known._losses) > 0:
            known._earlier_to = known._losses[0].gap.begin
        known.records = known._known = int(saved["records"])
        known.changed = False
        return known


def _union(one: Loss, other: Loss) -> Loss:
    """Two losses that overlap, as one."""
    begin, end = min(one.gap.begin, other.gap.begin), max(one.gap.end, other.gap.end)
    at_s = min(one.at_s, other.at_s)
    known = [loss for loss in (one, other) if loss.gap.records_lost is not None]
    for loss in known:  # it includes the other
        if loss.gap[:2] == (begin, end):
            return loss._replace(at_s=at_s)
    reason = one.gap.reason if one.gap.reason == "pruned" else other.gap.reason
    if len(known) < 2 or one.ordinal is None or other.ordinal is None:
        return Loss(Gap(begin, end, reason, None), None, at_s)
    first = min(one.ordinal, other.ordinal)
    last = max(one.ordinal + one.records, other.ordinal + other.records)
    return Loss(Gap(begin, end, reason, last - first), first, at_s)


class LossFile:
    """gaps: what was saved for a cursor of the reader's log; add to it, and save. Losses of another log at
    this path are dropped. Raises StorageError. One thread at a time."""

    def __init__(self, reader: Reader, cursor: str, storage: Storage) -> None:
        self._file = CheckpointFile(cursor_path(reader.path, cursor, LOSSES_SUFFIX), storage)
        self._source = "" if reader.topic_uuid is None else reader.topic_uuid.hex()
        self.gaps = KnownGaps()
        with suppress(FileNotFoundError):
            found = self._file.load(self._parsed, "earlier losses are forgotten")
            self.gaps = found or self.gaps
        self._again_at_s = 0.0

    def _parsed(self, saved: dict[str, Any]) -> KnownGaps:
        return KnownGaps.from_json(saved) if saved["source"] == self._source else KnownGaps()

    def save(self, *, at_once: bool = False) -> None:
        """Saves them if one is new; durable on return. If there is no room for them, it logs a warning,
        and a later call tries again. at_once: without a pause after such a try. Raises SyncFailed."""
        if not self.gaps.changed or (time.monotonic() < self._again_at_s and not at_once):
            return
        self.gaps.changed = False
        try:
            self._file.save({"source": self._source, **self.gaps.to_json()})
        except SyncFailed:
            raise
        except StorageError as error:
            self.gaps.changed, self._again_at_s = True, time.monotonic() + _PAUSE_S
            _log.warning("losses were not saved: %s", error)
