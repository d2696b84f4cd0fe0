"""Cutting a batch into lanes and marks, and leaving out what a lane does not take. Pure.

The last record of a batch in each lane carries a callback, and each 256th before it: so the
cursor follows closely and almost no record pays for a callback; where a refusal is looked for,
each record carries one. A lane takes what it has room
for (see partition_state); from the first record that it has none for it is left behind.

Each lane's part is planned by itself: nearly always it is taken whole, which costs no look at
its records; else they are looked at one by one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from aolog.format.native.speed import groups, total
from bridge.deliver.at_least_once.commands import Planned
from bridge.deliver.at_least_once.partition_state import Lane, Mark
from bridge.deliver.position import Aside, Position

if TYPE_CHECKING:
    from array import array
    from collections.abc import Callable, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from bridge.kafka.lane import LaneKey, Refusal

__all__ = ["MARK_EVERY", "Given", "plan"]

MARK_EVERY = 256  # measured: a callback each 256th record nearly doubles the rate of one a record


class Given(NamedTuple):
    """Records of a batch, in order. sizes: i64. lanes: None for one that is not ours.
    first_ordinal: of the first, None in format 1. refusals: by address, of those that their lane
    will never take."""

    addresses: Sequence[int]
    sizes: array[int]
    lanes: Sequence[LaneKey | None]
    first_ordinal: int | None
    refusals: Mapping[int, Refusal]

    def position(self, i: int) -> Position:
        """Of the record at i."""
        first = self.first_ordinal
        return Position(self.addresses[i], None if first is None else first + i)


def plan(
    given: Given,
    lane: Callable[[LaneKey], Lane],
    *,
    begin: int = 0,
    aside: AbstractSet[int] = frozenset(),
    stop_at_poison: bool = True,
    mark_every: int = MARK_EVERY,
) -> tuple[Sequence[int], Planned]:
    """Which records to send, and what the engine has to know before the first is sent.

    begin: where reading began. aside: addresses of records that were set aside before. A lane stops
    before poison, or sets it aside and goes on, as the policy says. It always stops before a record
    that is refused for another reason.
    """
    by_lane = groups(list(given.lanes))
    by_lane.pop(None, None)
    alike = (not aside or aside.isdisjoint(given.addresses)) and (
        not given.refusals or given.refusals.keys().isdisjoint(given.addresses)
    )
    planned = Planned([], {}, [], {})
    sent: list[list[int]] = []
    for key, indices in by_lane.items():
        assert key is not None
        of_lane = lane(key)
        early = of_lane.behind is not None and of_lane.behind.address < begin  # its turn comes
        room = 0 if early else of_lane.room()
        taken = indices
        if not alike or room < len(indices) or of_lane.has(given.addresses[indices[0]]):
            part = _Part(key, of_lane, room)
            taken = part.take(given, indices, aside, stop_at_poison=stop_at_poison)
            part.tell(planned)
        if taken:
            sent.append(taken)
            every = 1 if of_lane.suspects else mark_every  # so that a report names its record
            planned.marks.extend(
                (key, _mark(given, taken[i : i + every])) for i in range(0, len(taken), every)
            )
    planned.poison.sort(key=lambda poison: poison.position.address)
    if sum(map(len, sent)) == len(given.addresses):
        return range(len(given.addresses)), planned
    return sorted(i for taken in sent for i in taken), planned


def _mark(given: Given, taken: list[int]) -> Mark:
    size, _ = total(given.sizes, taken)
    return Mark(given.position(taken[0]), given.addresses[taken[-1]], len(taken), size)


class _Part:
    """A lane's part of a batch that it does not take whole."""

    def __init__(self, key: LaneKey, lane: Lane, room: int) -> None:
        self._key = key
        self._room = room
        self._arrived = lane.last_address
        self._has = max(lane.last_address, lane.sent_to)
        self._counted = lane.counted
        self._skipped = 0
        self._left: Position | None = None
        self._poison: list[Aside] = []

    def take(
        self,
        given: Given,
        indices: list[int],
        aside: AbstractSet[int],
        *,
        stop_at_poison: bool,
    ) -> list[int]:
        """Those of the records that it takes now."""
        taken: list[int] = []
        for i in indices:
            address = given.addresses[i]
            if address <= self._has:
                if self._counted < address <= self._arrived:
                    self._skipped, self._counted = self._skipped + 1, address
                continue
            if address in aside:
                continue
            if self._room <= 0:
                self._left = self._left or given.position(i)
                continue
            refusal = given.refusals.get(address)
            if refusal is None:
                self._room -= 1
                taken.append(i)
                continue
            self._poison.append(Aside(given.position(i), self._key, refusal))
            if stop_at_poison or not refusal.is_poison:
                self._room, self._left = 0, given.position(i)
        return taken

    def tell(self, planned: Planned) -> None:
        """What is to be said of it."""
        if self._left is not None:
            planned.left[self._key] = self._left
        if self._skipped:
            planned.skipped[self._key] = self._skipped, self._counted
        planned.poison.extend(self._poison)
