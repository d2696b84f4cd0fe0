"""Lane: the state of one destination partition, and how many records it may be sent. Pure.

Each lane keeps the order of the log. A lane that takes no more for now leaves its records in the log,
from an address on (`waits_from`), while the reader goes on for the other lanes. When the lane has room
again the reader comes back to that address, and the others skip what they have (`sent_to`).

    lane                                       records that it may be sent
    closed (missing topic, poison)             none, until it is opened
    compared, and more has to be read back     none, until that was read
    held (nothing acknowledged for long)       none, until all that was sent is acknowledged
    not opened on this connection              1, alone (see engine)
    bisected (see Bisection)                   a group, then none until that is acknowledged
    was held after it was opened               a share, which grows again
    else                                       no bound of its own

Records without a topic, or with one whose partitions are unknown, wait in a lane with partition -1.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from aolog.record import Position
    from bridge.deliver.at_least_once.found import Found
    from bridge.kafka.lane import LaneKey, Refusal

UNBOUNDED = 1 << 62
# With a 32nd, three connections with 32 requests each find one record among 10,000.
NARROWING = 32
HOLD_S = 1.0  # see engine
HELD_SHARE_MIN = 64
HELD_SHARE_CUT = 4
HELD_SHARE_MAX = 1 << 16  # above this a lane that has recovered has no bound any more
# What a record in flight takes beside its key and value: the client's message, its header, and what malloc adds
# (an estimate from their sizes, and from the peaks of `python -m bench --only bridge_memory`).
RECORD_BYTES = 512


class Bisection:
    """Finds the record that a lane's partition refuses; true while it goes on.

    The cluster refuses a request, and does not say for which record. So the records of the request are
    resent in groups a fraction as large, one group at a time. If a group is refused, its records are resent
    in smaller groups; if it arrives, the next group follows. A refused group of one record is the poison.
    Some refusals name their records (KIP-467), if each record has a report of its own: so after such a
    refusal the records are first resent as they were, each with a report.

    steps: the narrowest last: up to which address, in groups of how many records."""

    def __init__(self) -> None:
        self.steps: list[tuple[int, int]] = []

    def __bool__(self) -> bool:
        return bool(self.steps)

    @property
    def group(self) -> int:
        """How many records to send at once."""
        return self.steps[-1][1]

    def refused(self, to: int, records: int, *, names: bool) -> None:
        """One of so many records up to an address was refused. names: the cluster may name the records."""
        as_they_were = names and not self.steps
        self.steps.append((to, max(1, records if as_they_were else records // NARROWING)))

    def arrived(self, address: int) -> None:
        """All records up to an address have arrived."""
        while self.steps and self.steps[-1][0] <= address:
            self.steps.pop()


class Mark(NamedTuple):
    """Records of one lane that one callback acknowledges."""

    first: Position
    last_address: int  # its record carries the callback
    records: int  # how many
    bytes: int = 0
    sent_s: float = 0.0


@dataclass(slots=True)
class Lane:
    """One destination partition. held, closed: see the module."""

    outstanding: deque[Mark] = field(default_factory=deque)  # sent, and not acknowledged
    records: int = 0  # of these
    bytes: int = 0  # of these
    opened: bool = False  # a record was acknowledged on this connection
    last_address: int = -1  # the last that was acknowledged; -1 before there is one
    last_offset: int = -1
    acknowledged: int = 0  # records since the start
    acknowledged_s: float = 0.0  # the time of the last answer
    counted: int = -1  # arrived records up to this address are counted: acknowledged or skipped
    sent_to: int = -1  # the last address that was sent or set aside on this connection
    waits_from: Position | None = None  # the first record that it left in the log
    share: int | None = None  # how many records it may be sent after it was held; None: no bound
    bisection: Bisection = field(default_factory=Bisection)
    held: bool = False
    closed: Refusal | None = None  # why
    found: Found | None = None  # what was read back and is not compared yet
    seen_to: int = -1  # the greatest address that any read-back found

    def low(self) -> Position | None:
        """The first record that is not acknowledged: sent, or left in the log."""
        return _first(self.outstanding[0].first if self.outstanding else None, self.waits_from)

    def has(self, address: int) -> bool:
        """Whether the record has arrived, was set aside, or was sent."""
        return address <= self.last_address or address <= self.sent_to

    def room(self) -> int:
        """How many records it may be sent now."""
        if self.closed is not None or self.held or self.is_unread:
            return 0
        if self.bisection or not self.opened:  # one group at a time, so a refusal is about this one
            group = self.bisection.group if self.opened else 1
            return 0 if self.records else group
        share = self.share
        if share is None:
            return UNBOUNDED
        if self.waits_from is not None and self.records > share // 2:
            return 0  # coming back for a few records would read a batch for each
        return max(0, share - self.records)

    @property
    def is_unread(self) -> bool:
        """Whether more of its partition has to be read back before it goes on."""
        return self.found is not None and self.found.is_spent

    @property
    def soon(self) -> bool:
        """Whether it waits only for an answer, which may come any moment."""
        return self.waits_from is not None and not self.held and self.closed is None

    @property
    def flows(self) -> bool:
        """Whether it takes every record."""
        return self.opened and self.waits_from is None and self.room() > 0

    @property
    def standing(self) -> tuple[Position, Refusal] | None:
        """Where its records wait until somebody acts, and why; None if they do not."""
        if self.closed is None or self.closed.passing or self.waits_from is None:
            return None
        return self.waits_from, self.closed

    def send(self, mark: Mark) -> None:
        """The mark's records are about to be sent."""
        self.outstanding.append(mark)
        self.records += mark.records
        self.bytes += mark.bytes
        self.sent_to = max(self.sent_to, mark.last_address)

    def waits_s(self, now_s: float) -> float:
        """The age of the oldest outstanding record."""
        return now_s - self.outstanding[0].sent_s if self.outstanding else 0.0

    def stuck_s(self, now_s: float) -> float:
        """How long nothing was acknowledged while something was outstanding."""
        return min(self.waits_s(now_s), now_s - self.acknowledged_s)

    def acknowledge(self, address: int, offset: int, *, now_s: float) -> tuple[int, int]:
        """All records up to an address have arrived. How many records and bytes are no longer outstanding."""
        records = size = 0
        while self.outstanding and self.outstanding[0].last_address <= address:
            mark = self.outstanding.popleft()
            records += mark.records
            size += mark.bytes
        self.records -= records
        self.bytes -= size
        self.acknowledged += records
        self.opened, self.acknowledged_s = True, now_s
        self.counted = max(self.counted, address)
        self.last_offset = max(self.last_offset, offset)
        self.arrived(address)
        if not self.outstanding:
            self._drained()
        return records, size

    def arrived(self, address: int) -> None:
        """All records up to an address are in the partition."""
        self.last_address = max(self.last_address, address)
        self.bisection.arrived(self.last_address)

    def read_back(self, found: Found) -> None:
        """This was found in the partition. Nothing is outstanding."""
        self.arrived(found.held)
        self.seen_to = max(self.seen_to, found.greatest)
        self.found = found

    def _drained(self) -> None:
        if self.held:
            self.held = False
        elif self.share is not None and not self.bisection:
            self.share *= 2
            if self.share > HELD_SHARE_MAX:
                self.share = None

    def hold(self) -> None:
        """Sends nothing more until all that was sent is acknowledged, and then less at a time. Before
        the first answer the connection may be to blame, so its share is not cut."""
        self.held = True
        if self.opened and not self.bisection:
            share = self.records if self.share is None else self.share
            self.share = max(HELD_SHARE_MIN, min(share, HELD_SHARE_MAX) // HELD_SHARE_CUT)

    def leave(self, place: Position) -> None:
        """Its records from there on are to be read again."""
        self.waits_from = _first(self.waits_from, place)

    def forget(self) -> None:
        """The connection is closed: what is not acknowledged is to be read again."""
        self.waits_from = self.low()
        self.outstanding.clear()
        self.records = self.bytes = 0
        self.opened = self.held = False
        self.sent_to = -1
        self.last_offset = -1  # the topic may be a new one, in which offsets begin again


class Lanes(dict["LaneKey", Lane]):
    """The lanes of one log; a new one for a key that is looked up."""

    def __init__(self) -> None:
        super().__init__()
        # Outstanding in all lanes; in those of them that are held.
        self.records = self.bytes = self.held_records = self.held_bytes = 0

    def __missing__(self, key: LaneKey) -> Lane:
        lane = self[key] = Lane()
        return lane

    @property
    def memory_bytes(self) -> int:
        """What the records in flight take."""
        return self.bytes + RECORD_BYTES * self.records

    @property
    def held_memory_bytes(self) -> int:
        """Of these, those in lanes that are held."""
        return self.held_bytes + RECORD_BYTES * self.held_records

    @property
    def standing(self) -> dict[LaneKey, tuple[Position, Refusal]]:
        """See Lane.standing."""
        return {key: at for key, lane in self.items() if (at := lane.standing) is not None}

    def send(self, key: LaneKey, mark: Mark) -> None:
        """As Lane.send."""
        self[key].send(mark)
        self.records += mark.records
        self.bytes += mark.bytes

    def acknowledge(
        self, lane: Lane, address: int, offset: int, *, now_s: float
    ) -> tuple[int, int]:
        """As Lane.acknowledge."""
        was_held = lane.held
        records, size = lane.acknowledge(address, offset, now_s=now_s)
        self.records -= records
        self.bytes -= size
        if was_held:
            self.held_records -= records
            self.held_bytes -= size
        return records, size

    def hold_late(self, now_s: float) -> None:
        """Holds lanes that have waited longer and would delay the others."""
        late, others = [], False
        for lane in self.values():
            if not lane.held and lane.waits_s(now_s) > HOLD_S:
                late.append(lane)
            else:
                others = others or lane.flows
        for lane in late:
            if others or lane.stuck_s(now_s) > HOLD_S:
                lane.hold()
                self.held_records += lane.records
                self.held_bytes += lane.bytes

    def bisect(self, lane: Lane | None, *, names: bool) -> bool:
        """A request of this lane was refused; None if it is not known which lane. Whether that teaches
        anything: a group has more than one record. names: see Bisection."""
        meant = [lane] if lane is not None else self.values()
        in_flight = [each for each in meant if each.outstanding]
        narrower = any(each.records > 1 for each in in_flight)
        for each in in_flight:
            each.bisection.refused(each.sent_to, each.records, names=names)
        return narrower

    def forget(self) -> None:
        """As Lane.forget, for all. Opens a lane that stopped before poison if earlier records are sent again."""
        for lane in self.values():
            if lane.outstanding and lane.closed is not None and lane.closed.is_poison:
                lane.closed = None
            lane.forget()
        self.records = self.bytes = self.held_records = self.held_bytes = 0


def least(places: Iterable[Position | None], end: Position) -> Position:
    """The first of some places; the end if there are none."""
    known = (place for place in places if place is not None)
    return min(known, default=end, key=lambda place: place.address)


def _first(one: Position | None, other: Position | None) -> Position | None:
    if one is None or other is None:
        return one or other
    return min(one, other, key=lambda place: place.address)
