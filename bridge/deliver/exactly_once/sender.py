"""Puts the batches that are ready into the open transaction. Poison is set aside, durably, before the
first record after it is sent."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bridge.deliver.exactly_once.engine import State
from bridge.kafka.events import Put
from bridge.kafka.stamp import unpack_stamp

if TYPE_CHECKING:
    from bridge.deliver.dead_letter import DeadLetters
    from bridge.deliver.exactly_once.engine import Transactions
    from bridge.deliver.exactly_once.prefetch import Prefetch, Ready
    from bridge.deliver.verdicts import Judge
    from bridge.kafka.lane import LaneKey, Refusal
    from bridge.kafka.transactional_producer import TransactionalProducer


class Sender:
    """Of one log. Not thread-safe.

    full: whether the client's queue takes no more. last: address and timestamp of the last record put.
    unsure: whether the cluster may have left a transaction of this log open, so that each lane is
    checked before its first record on a connection: see bridge.kafka.hanging_transactions.
    """

    def __init__(
        self,
        engine: Transactions,
        prefetch: Prefetch,
        producer: TransactionalProducer,
        dead: DeadLetters,
        judge: Judge,
        *,
        unsure: bool,
    ) -> None:
        self._engine = engine
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

    def send(self, now_s: float) -> Refusal | None:
        """Puts the first ready batch, as far as the transaction and the client's queue take it. Returns
        why the record at the committed position is refused, if it is."""
        ready, engine = self._prefetch.ready[0], self._engine
        if ready.asides and (failure := self._set_aside(ready)) is not None:
            engine.broken(failure, now_s=now_s)
            return None
        begin = ready.next
        room = self._room(ready)
        put = Put(0, None)
        if room:
            lanes = set(ready.lanes[begin : begin + room])
            if self.unsure and not lanes <= self._checked:
                self._check()
                return None
            reports = engine.suspected or room == 1  # see TransactionalProducer.failing
            callback = self._producer.failing if reports else None
            put = self._producer.put(ready.part(room, callback))
        self.full = put.records < room
        self._prefetch.taken(put.records)
        end = begin + put.records
        if put.records:
            stamp = unpack_stamp(ready.messages.stamp(end - 1))
            self.last = stamp.address, stamp.timestamp_us or 0
            first, to = ready.messages.addresses[begin], ready.position(end)
            engine.sent(first, to, put.records, ready.size(begin, end), now_s=now_s)
        elif begin == ready.records:  # every record was set aside
            engine.moved(ready.position(end))
        elif not room:
            engine.hurry()  # the next record is too large for what the transaction may still hold
        refusal = put.refusal or (ready.refusal if end == ready.records else None)
        if engine.state is not State.SENDING:  # the transaction is full
            return None
        if refusal is not None:
            engine.moved(ready.position(end))
            if not engine.outstanding:
                return refusal
            engine.hurry()  # first commits the records before it
        elif put.spoiled:  # the commit reports why
            engine.hurry()
            if engine.state is State.SENDING:
                engine.broken("the client takes no record", now_s=now_s)
        return None

    def _room(self, ready: Ready) -> int:
        """How many of its next records the transaction takes. The first may have any size."""
        engine = self._engine
        records = min(engine.room, ready.records - ready.next)
        first = 0 if engine.outstanding else min(records, 1)
        return max(first, ready.fitting(records, engine.bytes_room))

    def _set_aside(self, ready: Ready) -> str | None:
        """Sets the batch's poison aside, durably, or counts it as dropped; why that failed."""
        assert ready.batch is not None
        failure = self._dead.take(ready.asides, ready.batch)
        if failure is None:
            self._judge.set_aside(ready.asides)
            ready.asides, ready.batch = (), None
        return failure

    def _check(self) -> None:
        """Has the lanes checked in which nothing was sent on this connection; commits first what is
        open."""
        if self._engine.outstanding:
            self._engine.hurry()
            return
        lanes = {lane for ready in self._prefetch.ready for lane in ready.lanes}
        self._producer.look(lanes - self._checked, self._engine.position.address)
