"""Cutting a batch into lanes and marks, and leaving out what a lane does not take. Pure.

The last record of a batch in each lane carries a callback, and each 256th before it: so the
cursor follows closely and almost no record pays for a callback. A lane takes what it has room
for (see lane); from the first record that it has none for it is left behind.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from bridge.engine import Aside, Planned
from bridge.lane import Lane, LaneKey, Mark, Position, Refusal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from aolog import Record

__all__ = ["MARK_EVERY", "Outgoing", "Poisonous", "plan"]

TOO_LARGE = "MSG_SIZE_TOO_LARGE"  # as Kafka calls it
MARK_EVERY = 256  # measured: a callback each 256th record nearly doubles the rate of one a record


class Poisonous(Exception):
    """The record will never be taken by the lane to which it was to go."""

    def __init__(self, lane: LaneKey, refusal: Refusal) -> None:
        super().__init__(refusal.reason)
        self.lane = lane
        self.refusal = refusal


class Outgoing(NamedTuple):
    """A record on its way. marked: it carries its lane's callback."""

    record: Record
    lane: LaneKey
    marked: bool


class _Part:
    """A lane's part of the batch."""

    __slots__ = ("arrived", "counted", "first", "has", "last", "left", "records", "room", "size",
                 "skipped")  # fmt: skip  # a list

    def __init__(self, lane: Lane, begin: int) -> None:
        early = lane.behind is not None and lane.behind.address < begin  # its turn comes
        self.room = 0 if early else lane.room()
        self.arrived = lane.last_address
        self.has = max(lane.last_address, lane.sent_to)
        self.counted = lane.counted
        self.left: Position | None = None
        self.first: Position | None = None  # of the mark that is being filled
        self.last = -1  # index of its last record among those that are sent
        self.records = 0
        self.size = 0
        self.skipped = 0

    def take(self, i: int, size: int) -> None:
        """One more is sent, at this index among all."""
        self.room -= 1
        self.records += 1
        self.size += size
        self.last = i

    def mark(self, outgoing: list[Outgoing]) -> Mark:
        """What was taken since the mark before; the last of it carries the callback."""
        assert self.first is not None
        outgoing[self.last] = last = outgoing[self.last]._replace(marked=True)
        mark = Mark(self.first, last.record.address, self.records, self.size)
        self.first, self.records, self.size = None, 0, 0
        return mark


def plan(
    records: Iterable[Record],
    first_ordinal: int | None,
    lane_of: Callable[[Record], LaneKey | None],
    lane: Callable[[LaneKey], Lane],
    *,
    begin: int = 0,
    aside: set[int] | frozenset[int] = frozenset(),
    bytes_max: int = 1 << 62,
    stop_at_poison: bool = True,
    mark_every: int = MARK_EVERY,
) -> tuple[list[Outgoing], Planned]:
    """The records to send, in order, and what the engine has to know before the first is sent.

    first_ordinal: of the first record, None in format 1. lane_of: None for a record that is not
    ours; raises Poisonous. begin: where reading began. aside: addresses of records that were set
    aside before. bytes_max: what a record may take. A lane with poison in it stands before that, or else goes on behind.
    """
    outgoing: list[Outgoing] = []
    poison: list[Aside] = []
    marks: list[tuple[LaneKey, Mark]] = []
    parts: dict[LaneKey, _Part] = {}
    for i, record in enumerate(records):
        refusal = None
        try:
            key = lane_of(record)
        except Poisonous as poisonous:
            key, refusal = poisonous.lane, poisonous.refusal
        if key is None:
            continue
        part = parts.get(key)
        if part is None:
            part = parts[key] = _Part(lane(key), begin)
        address = record.address
        if address <= part.has:
            if part.counted < address <= part.arrived:
                part.skipped, part.counted = part.skipped + 1, address
            continue
        if aside and address in aside:
            continue
        size = len(record.value or b"") + len(record.key or b"")
        if part.first is None or part.room <= 0 or refusal is not None or size > bytes_max:
            place = Position(address, None if first_ordinal is None else first_ordinal + i)
            if part.room <= 0:
                part.left = part.left or place
                continue
            if refusal is None and size > bytes_max:
                refusal = Refusal(f"it has {size} bytes, over message.max.bytes", TOO_LARGE)
            if refusal is not None:
                poison.append(Aside(place, key, refusal))
                if stop_at_poison:
                    part.room, part.left = 0, place
                continue
            part.first = place
        part.take(len(outgoing), size)
        outgoing.append(Outgoing(record, key, False))
        if part.records == mark_every or part.room == 0:
            marks.append((key, part.mark(outgoing)))
    for key, part in parts.items():
        if part.records:
            marks.append((key, part.mark(outgoing)))
    left = {key: part.left for key, part in parts.items() if part.left is not None}
    skipped = {key: (part.skipped, part.counted) for key, part in parts.items() if part.skipped}
    return outgoing, Planned(marks, left, poison, skipped)
