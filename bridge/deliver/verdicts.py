"""Verdicts: what becomes of a record that is refused. Pure. Made here for both deliveries, whether a record
was refused before it was sent (by the router, a limit, a transform) or after (by the client, the cluster)."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from aolog.record import Position
from bridge.config.run_options import Poison
from bridge.kafka.lane import LaneKey, Refusal


class Aside(NamedTuple):
    """A record that the cluster will never take, and the lane to which it was to go."""

    position: Position
    lane: LaneKey
    refusal: Refusal


class Verdict(NamedTuple):
    """What becomes of a refused record. A record without a verdict is sent."""

    refusal: Refusal
    stops: bool  # its lane (exactly once: all of the log) stops before it; else it is set aside, or dropped


class Given(NamedTuple):
    """The records of a batch, in order, and what was decided of them."""

    addresses: Sequence[int]
    sizes: array[int]  # i64
    lanes: Sequence[LaneKey | None]  # None: for another cluster, or was set aside
    first_ordinal: int | None  # of the first record; None if the log counts none
    verdicts: Mapping[int, Verdict]  # by address
    digests: Callable[[], Sequence[int]]  # see Messages.digests

    def position(self, i: int) -> Position:
        """The position of the record at i."""
        first = self.first_ordinal
        return Position(self.addresses[i], None if first is None else first + i)


class Judge:
    """Of one log. policy: what to do with poison; a record that is not itself at fault always stops its lane."""

    def __init__(self, policy: Poison) -> None:
        self.aside: set[int] = set()  # addresses of records that are not sent any more
        self._policy = policy
        self._refusals: dict[int, Refusal] = {}  # of records that were sent, by address

    def stops(self, refusal: Refusal) -> bool:
        """Whether a lane stops before a record with this refusal; else the record is set aside, or dropped."""
        return self._policy == "stop" or not refusal.is_poison

    def verdicts(self, found: Mapping[int, Refusal]) -> dict[int, Verdict]:
        """Of all records that are known to be refused, by address. found: those of a batch, not sent yet."""
        refusals = {**self._refusals, **found}
        return {at: Verdict(refusal, self.stops(refusal)) for at, refusal in refusals.items()}

    def without_aside(
        self, addresses: Sequence[int], lanes: Sequence[LaneKey | None]
    ) -> Sequence[LaneKey | None]:
        """These lanes of records, None for each record that was set aside."""
        if not self.aside or self.aside.isdisjoint(addresses):
            return lanes
        return [
            None if at in self.aside else lane for at, lane in zip(addresses, lanes, strict=True)
        ]

    def refuse(self, addresses: Iterable[int], refusal: Refusal) -> None:
        """These records were refused as they were sent."""
        self._refusals.update(dict.fromkeys(addresses, refusal))

    def set_aside(self, asides: Iterable[Aside]) -> None:
        """These records are in the dead-letter log, durably, or were counted as dropped."""
        for aside in asides:
            self._refusals.pop(aside.position.address, None)
            self.aside.add(aside.position.address)

    def ask_again(self, address: int | None = None) -> None:
        """What caused refusals at sending may be corrected: of this record, or of all."""
        if address is None:
            self._refusals.clear()
        else:
            self._refusals.pop(address, None)

    def passed(self, address: int) -> None:
        """Nothing before this address will be read again."""
        if self.aside or self._refusals:
            self.aside = {at for at in self.aside if at >= address}
            self._refusals = {at: of for at, of in self._refusals.items() if at >= address}
