"""Puts the batches that are ready into the open transaction, and says what it put. Poison is set aside,
durably, before the first record after it is sent."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from bridge.kafka.events import Put
from bridge.kafka.stamp import unpack_stamp

if TYPE_CHECKING:
    from bridge.deliver.dead_letter import DeadLetters
    from bridge.deliver.exactly_once.prefetch import Prefetch, Ready
    from bridge.deliver.position import Position
    from bridge.deliver.verdicts import Judge
    from bridge.kafka.lane import LaneKey, Refusal
    from bridge.kafka.transactional_producer import TransactionalProducer


class Room(NamedTuple):
    """What the transaction may still take. is_empty: nothing is in it yet. reports: each record needs a
    report of its own; see TransactionalProducer.failing. committed: the address up to which all is."""

    records: int
    bytes: int
    is_empty: bool
    reports: bool
    committed: int


class Step(NamedTuple):
    """What became of the first ready batch. records, first, bytes: what was put, from which address on.
    to: where the log goes on after it; None: nothing was passed. is_full: the next record waits for the next
    transaction. failure: why poison could not be set aside. refusal: why the record at `to` is not sent.
    spoiled: the transaction has failed; its commit tells why."""

    records: int = 0
    first: int = 0
    bytes: int = 0
    to: Position | None = None
    is_full: bool = False
    failure: str | None = None
    refusal: Refusal | None = None
    spoiled: bool = False


class Sender:
    """Of one log. Not thread-safe.

    full: whether the client's queue takes no more. last: address and timestamp of the last record put.
    unsure: whether the cluster may have left a transaction of this log open, so that each lane is
    checked before its first record on a connection: see bridge.kafka.hanging_transactions.
    """

    def __init__(
        self,
        prefetch: Prefetch,
        producer: TransactionalProducer,
        dead: DeadLetters,
        judge: Judge,
        *,
        unsure: bool,
    ) -> None:
        self._prefetch = prefetch
        self._producer = producer
        self._dead = dead
        self._judge = judge
        self.unsure = unsure
        self._checked: set[LaneKey] = set()
        self.full = False
        self.last: tuple[int, int] | None = None

    def connecting(self) -> None:
        """On a new connection every lane is checked again."""
        self._checked.clear()

    def checked(self, lanes: set[LaneKey]) -> None:
        """No transaction of this log is open in these lanes."""
        self._checked |= lanes

    def send(self, room: Room) -> Step:
        """Puts the first ready batch, as far as the transaction and the client's queue take it."""
        ready = self._prefetch.ready[0]
        if ready.asides and (failure := self._set_aside(ready)) is not None:
            return Step(failure=failure)
        begin, records, put = ready.next, _fitting(ready, room), Put(0, None)
        if records:
            lanes = set(ready.lanes[begin : begin + records])
            if self.unsure and not lanes <= self._checked:
                return self._check(room)
            callback = self._producer.failing if room.reports or records == 1 else None
            put = self._producer.put(ready.part(records, callback))
        self.full = put.records < records
        self._prefetch.taken(put.records)
        end, all_aside = begin + put.records, begin == ready.records
        first = size = 0
        if put.records:
            stamp = unpack_stamp(ready.messages.stamp(end - 1))
            self.last = stamp.address, stamp.timestamp_us or 0
            first, size = ready.messages.addresses[begin], ready.size(begin, end)
        refusal = put.refusal or (ready.refusal if end == ready.records else None)
        passed = put.records or all_aside or refusal is not None
        return Step(
            put.records,
            first,
            size,
            ready.position(end) if passed else None,
            is_full=not records and not all_aside,  # the next one is too large for what is left
            refusal=refusal,
            spoiled=put.spoiled,
        )

    def _set_aside(self, ready: Ready) -> str | None:
        """Sets the batch's poison aside, durably, or counts it as dropped; why that failed."""
        assert ready.batch is not None
        failure = self._dead.take(ready.asides, ready.batch)
        if failure is None:
            self._judge.set_aside(ready.asides)
            ready.asides, ready.batch = (), None
        return failure

    def _check(self, room: Room) -> Step:
        """Has the lanes checked in which nothing was sent on this connection; what is open is committed
        first."""
        if not room.is_empty:
            return Step(is_full=True)
        lanes = {lane for ready in self._prefetch.ready for lane in ready.lanes}
        self._producer.look(lanes - self._checked, room.committed)
        return Step()


def _fitting(ready: Ready, room: Room) -> int:
    """How many of its next records the transaction takes. The first may have any size."""
    records = min(room.records, ready.records - ready.next)
    first = min(records, 1) if room.is_empty else 0
    return max(first, ready.fitting(records, room.bytes))
