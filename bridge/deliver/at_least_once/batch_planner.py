"""Which records of a batch each lane takes, and which of them carry a delivery callback. Pure.

The last record of a lane in a batch carries a callback, and every 256th before it: so the cursor
follows closely, and few records pay for a callback. While a lane is bisected, each of its records
carries one. A lane takes as many records as it has room for (see lanes); the rest wait in
the log.

Each lane is planned by itself. Mostly it takes all its records, which are then not looked at one by
one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from aolog.format.native.speed import groups, total
from bridge.deliver.at_least_once.lanes import Lane, Mark
from bridge.deliver.position import Aside, Position
from bridge.deliver.verdicts import Fate

if TYPE_CHECKING:
    from array import array
    from collections.abc import Callable, Mapping, Sequence

    from bridge.deliver.intake import Judged
    from bridge.deliver.verdicts import Verdict
    from bridge.kafka.lane import LaneKey

MARK_EVERY = 256  # measured: nearly twice the rate of one callback per record


class Given(NamedTuple):
    """The records of a batch, in order. sizes: i64. lanes, first_ordinal, verdicts: see Judged. digests: see
    Messages.digests."""

    addresses: Sequence[int]
    sizes: array[int]
    lanes: Sequence[LaneKey | None]
    first_ordinal: int | None
    verdicts: Mapping[int, Verdict]
    digests: Callable[[], Sequence[int]] = list

    @classmethod
    def of(cls, judged: Judged) -> Given:
        """What the engine needs to know of a batch."""
        messages, lanes, first = judged.messages, judged.lanes, judged.first_ordinal
        return cls(
            messages.addresses, messages.sizes, lanes, first, judged.verdicts, messages.digests
        )

    def position(self, i: int) -> Position:
        """The position of the record at i."""
        first = self.first_ordinal
        return Position(self.addresses[i], None if first is None else first + i)


class Planned(NamedTuple):
    """sent: indices of the records to send. marks: of these, in order. left: where each lane left
    its next record in the log. aside: records to set aside. stops: those that their lane stops before.
    skipped: by lane, how many records had arrived already and were not counted before, and the address of the
    last of them."""

    sent: Sequence[int] = ()
    marks: Sequence[tuple[LaneKey, Mark]] = ()
    left: Mapping[LaneKey, Position] = {}
    aside: Sequence[Aside] = ()
    stops: Sequence[Aside] = ()
    skipped: Mapping[LaneKey, tuple[int, int]] = {}


def plan(
    given: Given,
    lane: Callable[[LaneKey], Lane],
    *,
    begin: int = 0,
    mark_every: int = MARK_EVERY,
) -> Planned:
    """Plans a batch. begin: the address at which reading began."""
    by_lane = groups(list(given.lanes))
    by_lane.pop(None, None)
    is_plain = not given.verdicts or given.verdicts.keys().isdisjoint(given.addresses)
    marks: list[tuple[LaneKey, Mark]] = []
    left: dict[LaneKey, Position] = {}
    aside: list[Aside] = []
    stops: list[Aside] = []
    skipped: dict[LaneKey, tuple[int, int]] = {}
    sent: list[list[int]] = []
    for key, indices in by_lane.items():
        assert key is not None
        of_lane = lane(key)
        # Records that the lane left earlier in the log come first.
        is_early = of_lane.waits_from is not None and of_lane.waits_from.address < begin
        room = 0 if is_early else of_lane.room()
        taken = indices
        if not is_plain or room < len(indices) or of_lane.has(given.addresses[indices[0]]):
            part = _part(given, indices, key, of_lane, room)
            taken = part.taken
            aside += part.aside
            if part.stop is not None:
                stops.append(part.stop)
            if part.left is not None:
                left[key] = part.left
            if part.skipped[0]:
                skipped[key] = part.skipped
        if taken:
            sent.append(taken)
            every = 1 if of_lane.bisection else mark_every  # so that a report names its record
            marks.extend(
                (key, _mark(given, taken[i : i + every])) for i in range(0, len(taken), every)
            )
    aside.sort(key=lambda each: each.position.address)
    indices_sent: Sequence[int] = range(len(given.addresses))
    if sum(map(len, sent)) < len(given.addresses):
        indices_sent = sorted(i for taken in sent for i in taken)
    return Planned(indices_sent, marks, left, aside, stops, skipped)


def _mark(given: Given, taken: list[int]) -> Mark:
    size, _ = total(given.sizes, taken)
    return Mark(given.position(taken[0]), given.addresses[taken[-1]], len(taken), size)


class _Part(NamedTuple):
    """What a lane does with its records of a batch. taken: those that it takes now. The other fields
    are as in Planned."""

    taken: list[int]
    left: Position | None
    aside: list[Aside]
    stop: Aside | None
    skipped: tuple[int, int]


def _part(given: Given, indices: list[int], key: LaneKey, lane: Lane, room: int) -> _Part:
    """Looks at the records one by one."""
    has, counted = max(lane.last_address, lane.sent_to), lane.counted
    skipped = 0
    taken: list[int] = []
    aside: list[Aside] = []
    left: Position | None = None
    stop: Aside | None = None
    for i in indices:
        address = given.addresses[i]
        if address <= has:
            if counted < address <= lane.last_address:
                skipped, counted = skipped + 1, address
            continue
        if room <= 0:
            left = given.position(i)
            break
        verdict = given.verdicts.get(address)
        if verdict is None:
            room -= 1
            taken.append(i)
            continue
        refused = Aside(given.position(i), key, verdict.refusal)
        if verdict.fate is Fate.STOP:
            left, stop = given.position(i), refused
            break
        aside.append(refused)
    return _Part(taken, left, aside, stop, (skipped, counted))
