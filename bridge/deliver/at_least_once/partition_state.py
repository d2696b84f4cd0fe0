"""Lane: what is known of one destination partition, and how much may be sent to it. Pure.

The order of the log is kept in a lane, so a lane that takes nothing more is *left behind*: its
records stay in the log from an address on, while the reader goes on for the others. When it has
room again the reader comes back to that address, and the others skip what they have (`sent_to`).

How many records may be outstanding:

    lane                                       records
    closed (a topic that is missing, poison)   none, until it is opened
    held (nothing acknowledged for long)       none, until it has drained
    not opened on this connection              1, alone (see engine)
    suspect (a refusal is looked for)          a group, then nothing until that has drained
    was held after it was opened               a share, which grows again
    else                                       no bound of its own

A lane with no record yet is a place too: records that have no topic, or one that nobody knows,
wait in the lane with partition -1.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from bridge.deliver.position import Position
    from bridge.kafka.lane import Refusal

__all__ = ["UNBOUNDED", "Lane", "Mark"]

UNBOUNDED = 1 << 62
# A refusal in a group of n is looked for in groups of n/32: three connections name one record
# among 10,000, with 32 requests each.
NARROWING = 32
HELD_SHARE_MIN = 64
HELD_SHARE_CUT = 4
HELD_SHARE_MAX = 1 << 16  # of a lane that has recovered: no bound any more


class Mark(NamedTuple):
    """Records of one lane that one callback answers for: the first of them, the last (which
    carries it), how many, their bytes, and when they were sent."""

    first: Position
    last_address: int
    records: int
    bytes: int = 0
    sent_s: float = 0.0


@dataclass(slots=True)
class Lane:
    """One destination partition.

    records, bytes: outstanding. last_address, last_offset: of the last mark that was
    acknowledged, -1 before there is one. sent_to: the last address that was sent or set aside on
    this connection. behind: from here on its records were left out. distrusted: a hole was found
    in it. suspects: how far a refusal is looked for, and in groups of how many, the narrowest
    last. acknowledged: records that the cluster has acknowledged since the start; acknowledged_s: when
    it last acknowledged one. counted: what arrived up to here was counted, as acknowledged or as skipped.
    """

    outstanding: deque[Mark] = field(default_factory=deque)
    records: int = 0
    bytes: int = 0
    opened: bool = False
    distrusted: bool = False
    last_address: int = -1
    last_offset: int = -1
    acknowledged: int = 0
    acknowledged_s: float = 0.0
    counted: int = -1
    sent_to: int = -1
    behind: Position | None = None
    share: int | None = None
    suspects: list[tuple[int, int]] = field(default_factory=list)
    held: bool = False
    closed: Refusal | None = None

    def low(self) -> Position | None:
        """The first record that is not acknowledged: sent, or left out."""
        return _first(self.outstanding[0].first if self.outstanding else None, self.behind)

    def has(self, address: int) -> bool:
        """Whether the record was dealt with: it has arrived, or is on its way."""
        return address <= self.last_address or address <= self.sent_to

    def room(self) -> int:
        """How many records it may be sent now."""
        if self.closed is not None or self.held:
            return 0
        if self.suspects or not self.opened:  # group by group, so that a refusal is in this one
            group = self.suspects[-1][1] if self.opened else 1
            return 0 if self.records else group
        share = self.share
        if share is None:
            return UNBOUNDED
        if self.behind is not None and self.records > share // 2:
            return 0  # coming back for a few records would read a batch for each
        return max(0, share - self.records)

    @property
    def soon(self) -> bool:
        """Whether it was left behind only until an answer that is due any moment."""
        return self.behind is not None and not self.held and self.closed is None

    @property
    def flows(self) -> bool:
        """Whether it takes whatever comes."""
        return self.opened and self.behind is None and self.room() > 0

    def send(self, mark: Mark) -> None:
        """The mark's records are about to be sent."""
        self.outstanding.append(mark)
        self.records += mark.records
        self.bytes += mark.bytes
        self.sent_to = max(self.sent_to, mark.last_address)

    def waits_s(self, now_s: float) -> float:
        """For how long the oldest of what is outstanding has been under way."""
        return now_s - self.outstanding[0].sent_s if self.outstanding else 0.0

    def stuck_s(self, now_s: float) -> float:
        """For how long it has been without any answer to what is outstanding."""
        return min(self.waits_s(now_s), now_s - self.acknowledged_s)

    def acknowledge(self, address: int, offset: int, *, now_s: float) -> tuple[int, int]:
        """All up to an address has arrived: how many records and bytes are not outstanding any
        more."""
        records = size = 0
        while self.outstanding and self.outstanding[0].last_address <= address:
            mark = self.outstanding.popleft()
            records += mark.records
            size += mark.bytes
        self.records -= records
        self.bytes -= size
        self.acknowledged += records
        self.opened, self.acknowledged_s = True, now_s
        self.last_address = max(self.last_address, address)
        self.counted = max(self.counted, address)
        self.last_offset = max(self.last_offset, offset)
        self.clear()
        if not self.outstanding:
            self._drained()
        return records, size

    def vanished(self, address: int, offset: int) -> int:
        """How many offsets are missing, if all up to the address are to lie before this one."""
        records = sum(m.records for m in self.outstanding if m.last_address <= address)
        if not records or self.last_offset < 0 or offset < 0:
            return 0
        return max(0, self.last_offset + records - offset)

    def clear(self) -> None:
        """What has arrived is not suspect any more."""
        while self.suspects and self.suspects[-1][0] <= self.last_address:
            self.suspects.pop()

    def _drained(self) -> None:
        if self.held:
            self.held = False
        elif self.share is not None and not self.suspects:
            self.share *= 2
            if self.share > HELD_SHARE_MAX:
                self.share = None

    def hold(self) -> None:
        """Nothing more is sent until all that was is acknowledged, and then less at a time; not so
        before its first answer, for which the connection may be to blame."""
        self.held = True
        if self.opened and not self.suspects:
            share = self.records if self.share is None else self.share
            self.share = max(HELD_SHARE_MIN, min(share, HELD_SHARE_MAX) // HELD_SHARE_CUT)

    def suspect(self, *, names: bool) -> None:
        """One of the outstanding records was refused: they are sent again in smaller groups; or, where
        the cluster names the records that it refuses, once more as they were, each with a report."""
        whole = names and not self.suspects
        group = self.records if whole else self.records // NARROWING
        self.suspects.append((self.sent_to, max(1, group)))

    def leave(self, place: Position) -> None:
        """Its records from there on are to be read again."""
        self.behind = _first(self.behind, place)

    def forget(self) -> None:
        """The connection is given up: what is not acknowledged is left behind."""
        self.behind = self.low()
        self.outstanding.clear()
        self.records = self.bytes = 0
        self.opened = self.held = False
        self.sent_to = -1
        self.last_offset = -1  # offsets may not follow on: others write there too


def _first(one: Position | None, other: Position | None) -> Position | None:
    if one is None or other is None:
        return one or other
    return min(one, other, key=lambda place: place.address)
