"""Delivery engines in given situations, and a model of a partition, for tests."""

from __future__ import annotations

import random
from array import array
from collections.abc import Sequence
from typing import NamedTuple

from aolog.record import Position
from bridge.deliver.at_least_once.engine import Engine, State
from bridge.deliver.at_least_once.found import Found
from bridge.deliver.backoff import Backoff
from bridge.deliver.verdicts import Given, Verdict
from bridge.kafka.lane import LaneKey, Refusal

A: LaneKey = ("t", 0)
B: LaneKey = ("t", 1)
LARGE = Refusal("too large", "MSG_SIZE_TOO_LARGE")


def at(address: int) -> Position:
    return Position(address, None)


def engine(**options: object) -> Engine:
    """Each record carries a callback."""
    options = {"mark_every": 1, **options}
    return Engine(at(0), now_s=0.0, backoff=Backoff(entropy=random.Random(1)), **options)  # type: ignore[arg-type]


def read(
    e: Engine,
    to: int,
    records: dict[LaneKey, Sequence[int]],
    *,
    poison: Sequence[int] = (),
    stops: bool = True,
    size: int = 0,
    now_s: float = 0.0,
) -> None:
    """Reads a batch from where the engine wants it up to `to`: addresses by lane. stops: before the poison."""
    e.begin()
    lanes = {address: key for key, addresses in records.items() for address in addresses}
    order = sorted(lanes)
    e.admit(
        Given(
            order,
            array("q", [size] * len(order)),
            [lanes[address] for address in order],
            None,
            dict.fromkeys(poison, Verdict(LARGE, stops)),
            list,
        ),
        at(to),
        now_s=now_s,
    )


def sending(**options: object) -> Engine:
    e = engine(**options)
    return reconnect(e, 0.0)


def opened(**options: object) -> Engine:
    """Both lanes have acknowledged a record on this connection; all before address 2 is delivered."""
    e = sending(**options)
    read(e, 2, {A: [0], B: [1]})
    e.delivered(A, 0, 0, now_s=0.0)
    e.delivered(B, 1, 0, now_s=0.0)
    return e


def under_way(**options: object) -> Engine:
    """Four records are outstanding: 10 and 20 in A, 11 and 21 in B."""
    e = opened(**options)
    read(e, 40, {A: [10, 20], B: [11, 21]})
    return e


def reconnect(e: Engine, now_s: float = 1000.0) -> Engine:
    """Connected again after a failure."""
    e.tick(now_s)
    assert e.state is State.CONNECTING
    e.connected()
    return e


def many(e: Engine, records: int, *, now_s: float = 0.0) -> None:
    """Sends so many records of A, from address 2 on."""
    read(e, 2 + records, {A: range(2, 2 + records)}, now_s=now_s)


def connecting() -> Engine:
    e = engine()
    e.tick(0.0)
    return e


def one_sent() -> Engine:
    e = sending()
    read(e, 10, {A: [0]})
    return e


class Partition:
    """A partition as Kafka keeps it for idempotent producers. known: the producer whose order is
    checked; any other may begin anywhere, which is the hole that openers close. messages: the address
    in each one's stamp, and whether somebody copied it there."""

    def __init__(self) -> None:
        self.messages: list[tuple[int, bool]] = []
        self.known: int | None = None
        self.next_sequence = 0

    @property
    def stored(self) -> list[int]:
        """What the engine's producers wrote."""
        return [address for address, is_copy in self.messages if not is_copy]

    def offer(self, producer: int, sequence: int, addresses: list[int], refused: set[int]) -> bool:
        if refused & set(addresses):
            return False
        if self.known == producer and sequence != self.next_sequence:
            return False
        self.known, self.next_sequence = producer, sequence + len(addresses)
        self.messages += [(address, False) for address in addresses]
        return True

    def found(self, begin: int, end: int, since: int) -> Found:
        """What a read-back of these offsets finds. A message's digest is its address."""
        found = Found(since - 1)
        for offset, (address, _) in enumerate(self.messages[begin:end], begin):
            if address >= since:
                found.add(offset, address, address)
        found.end = min(end, len(self.messages))
        found.is_whole = end >= len(self.messages)
        return found


class Outgoing(NamedTuple):
    """A record on its way. marked: it carries its lane's callback."""

    address: int
    lane: LaneKey
    marked: bool


class Request:
    def __init__(self, sequence: int, records: list[Outgoing]) -> None:
        self.sequence = sequence
        self.records = records
        self.refused = False
        self.offset = -1
