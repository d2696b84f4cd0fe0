"""Puts the batches that are ready into the open transaction, and tells the engine. Poison is set aside,
durably, before the first record after it is sent."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from bridge.deliver.dead_letter import DeadLetters
from bridge.deliver.exactly_once.engine import State, Transactions
from bridge.deliver.exactly_once.prefetch import Prefetch, Ready
from bridge.kafka.events import Put
from bridge.kafka.lane import LaneKey, Refusal
from bridge.kafka.stamp import unpack_stamp
from bridge.kafka.transactional_producer import TransactionalProducer


@dataclass(eq=False)
class Sender:
    """Of one log. Not thread-safe."""

    prefetch: Prefetch
    producer: TransactionalProducer
    dead: DeadLetters
    unsure: bool  # the cluster may have left a transaction open: check each lane first
    full: bool = False  # whether the client's queue takes no more
    last: tuple[int, int] | None = None  # address and timestamp of the last record put
    # In these lanes no transaction of this log is open, as the driver has learnt on this connection.
    checked: set[LaneKey] = field(default_factory=set)

    def send(self, engine: Transactions) -> Refusal | None:
        """Puts the first ready batch, as far as the transaction and the client take it. Returns why the record at
        the committed position is not sent, if it is not."""
        ready = self.prefetch.ready[0]
        if ready.asides and (failure := self._set_aside(ready)) is not None:
            engine.broken(failure, now_s=time.monotonic())
            return None
        begin, records, put = ready.next, _fitting(ready, engine), Put(0, None)
        if records:
            lanes = set(ready.lanes[begin : begin + records])
            if self.unsure and not lanes <= self.checked:
                self._check(engine)
                return None
            reports = engine.suspected > 0 or records == 1  # see TransactionalProducer.failing
            callback = self.producer.failing if reports else None
            put = self.producer.put(ready.part(records, callback))
        self.full = put.records < records
        self.prefetch.taken(put.records)
        end, all_aside, now_s = begin + put.records, begin == ready.records, time.monotonic()
        refusal = put.refusal or (ready.refusal if end == ready.records else None)
        if put.records:
            stamp = unpack_stamp(ready.messages.stamp(end - 1))
            self.last = stamp.address, stamp.timestamp_us or 0
            first, size = ready.messages.addresses[begin], ready.size(begin, end)
            engine.sent(first, ready.position(end), put.records, size, now_s=now_s)
        elif all_aside or refusal is not None:
            engine.moved(ready.position(end))
        if not records and not all_aside:  # the next one is too large for what is left
            engine.hurry()
        if engine.state is not State.SENDING:  # among others, if the transaction is full
            return None
        if refusal is not None and not engine.outstanding:
            return refusal
        if refusal is not None or put.spoiled:
            engine.hurry()  # commits what is open: the records before it, or to learn why it is spoiled
            if engine.state is State.SENDING:
                engine.broken("the client takes no record", now_s=now_s)
        return None

    def _set_aside(self, ready: Ready) -> str | None:
        """Sets the batch's poison aside, durably, or counts it as dropped; why that failed."""
        assert ready.batch is not None
        failure = self.dead.take(ready.asides, ready.batch)
        if failure is None:
            ready.asides, ready.batch = (), None
        return failure

    def _check(self, engine: Transactions) -> None:
        """Has lanes checked where this connection has sent nothing; what is open is committed first."""
        if engine.outstanding:
            engine.hurry()
        else:
            lanes = {lane for ready in self.prefetch.ready for lane in ready.lanes}
            self.producer.look(lanes - self.checked, engine.position.address)


def _fitting(ready: Ready, engine: Transactions) -> int:
    """How many of its next records the transaction takes. The first may have any size."""
    records = min(engine.room, ready.records - ready.next)
    first = 0 if engine.outstanding else min(records, 1)
    return max(first, ready.fitting(records, engine.bytes_room))
