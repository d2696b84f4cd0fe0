"""Which records of a batch each lane takes, and which of them carry a delivery callback. Pure.

The last record of a lane in a batch carries a callback, and every 1024th before it: so the cursor
follows closely, and few records pay for a callback. While a lane is bisected, each of its records
carries one. A lane takes as many records as it has room for (see lanes); the rest wait in
the log.

Each lane is planned by itself. Mostly it takes all its records, which are then not looked at one by
one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from aolog.format.native.speed import groups, total
from aolog.record import Position
from bridge.deliver.at_least_once.lanes import Lane, Mark
from bridge.deliver.verdicts import Aside, Given

if TYPE_CHECKING:
    from bridge.kafka.lane import LaneKey

MARK_EVERY = 1024  # measured: every 256th would cost 40 ns more a record


@dataclass(slots=True)
class Planned:
    """What to do with the records of a batch."""

    sent: Sequence[int] = ()  # indices of the records to send
    marks: list[tuple[LaneKey, Mark]] = field(default_factory=list)  # of these, in order
    left: dict[LaneKey, Position] = field(default_factory=dict)  # each lane's next one in the log
    aside: list[Aside] = field(default_factory=list)  # to set aside
    stops: list[Aside] = field(default_factory=list)  # those that their lane stops before
    # Newly counted, and the last address.
    skipped: dict[LaneKey, tuple[int, int]] = field(default_factory=dict)


def plan(
    given: Given, lane: Callable[[LaneKey], Lane], *, begin: int = 0, mark_every: int = MARK_EVERY
) -> Planned:
    """Plans a batch. begin: the address at which reading began."""
    by_lane = groups(list(given.lanes))
    by_lane.pop(None, None)
    is_plain = not given.verdicts or given.verdicts.keys().isdisjoint(given.addresses)
    planned = Planned()
    sent: list[list[int]] = []
    for key, indices in by_lane.items():
        assert key is not None
        of_lane = lane(key)
        # Records that the lane left earlier in the log come first.
        is_early = of_lane.waits_from is not None and of_lane.waits_from.address < begin
        room = 0 if is_early else of_lane.room()
        taken = indices
        if not is_plain or room < len(indices) or of_lane.has(given.addresses[indices[0]]):
            taken = _taken(given, indices, key, of_lane, room, planned)
        if taken:
            sent.append(taken)
            every = 1 if of_lane.bisection else mark_every  # so that a report names its record
            planned.marks.extend(
                (key, _mark(given, taken[i : i + every])) for i in range(0, len(taken), every)
            )
    planned.aside.sort(key=lambda each: each.position.address)
    planned.sent = range(len(given.addresses))
    if sum(map(len, sent)) < len(given.addresses):
        planned.sent = sorted(i for taken in sent for i in taken)
    return planned


def _mark(given: Given, taken: list[int]) -> Mark:
    size, _ = total(given.sizes, taken)
    return Mark(given.position(taken[0]), given.addresses[taken[-1]], len(taken), size)


def _taken(
    given: Given, indices: list[int], key: LaneKey, lane: Lane, room: int, planned: Planned
) -> list[int]:
    """Which of its records of a batch a lane takes now; adds the rest to what is planned. Looks at the records
    one by one."""
    has, counted = max(lane.last_address, lane.sent_to), lane.counted
    skipped = 0
    taken: list[int] = []
    for i in indices:
        address = given.addresses[i]
        if address <= has:
            if counted < address <= lane.last_address:
                skipped, counted = skipped + 1, address
            continue
        if room <= 0:
            planned.left[key] = given.position(i)
            break
        if (verdict := given.verdicts.get(address)) is None:
            room -= 1
            taken.append(i)
            continue
        refused = Aside(given.position(i), key, verdict.refusal)
        if verdict.stops:
            planned.left[key] = refused.position
            planned.stops.append(refused)
            break
        planned.aside.append(refused)
    if skipped:
        planned.skipped[key] = skipped, counted
    return taken
