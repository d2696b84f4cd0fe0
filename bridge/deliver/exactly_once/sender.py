"""Batches that are read ahead of the open transaction, with each record's destination and stamp, and put into
it. They are read while a transaction is being committed, so the next one follows without a pause. Poison is
set aside, durably, before the first record after it is sent."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import cast

import numpy as np

from aolog.format.native.speed import total
from aolog.read.batch import Batch
from aolog.record import Position
from bridge.deliver.dead_letter import DeadLetters
from bridge.deliver.exactly_once.engine import State, Transactions
from bridge.deliver.intake import Intake, Judged
from bridge.deliver.log_source import READ_BYTES_MAX
from bridge.deliver.verdicts import Aside
from bridge.kafka.events import Put
from bridge.kafka.lane import LaneKey, Refusal
from bridge.kafka.messages import Callback, MessageRows, Messages
from bridge.kafka.stamp import unpack_stamp
from bridge.kafka.transactional_producer import TransactionalProducer


@dataclass(eq=False)
class Ready:
    """Records of one batch with their lanes."""

    messages: Messages
    lanes: list[LaneKey]
    ordinals: Sequence[int]
    end: Position  # after them
    refusal: Refusal | None = None  # why the record at `end` is not sent, if it is not
    asides: Sequence[Aside] = ()  # the poison, set aside before anything is sent
    batch: Batch | None = None  # kept for that
    next: int = 0  # index of the first record that was not taken

    def __post_init__(self) -> None:
        self.records = self.messages.records
        self.bytes, _ = total(self.messages.sizes)  # of keys and values

    def part(self, count: int, callback_of: Callable[[int, int], Callback] | None) -> MessageRows:
        """The next records. callback_of: makes the callback of a record, from its address and time."""
        messages, begin, end = self.messages, self.next, self.next + count
        callbacks: list[Callback] | None = None
        if callback_of is not None:
            each = map(callback_of, messages.addresses[begin:end], messages.times_ms[begin:end])
            callbacks = [*([None] * begin), *each]  # by index
        return MessageRows(messages, self.lanes, begin, end, callbacks)

    def fitting(self, records: int, size: int) -> int:
        """How many of the next records, at most so many, have no more than so many bytes together."""
        sizes = np.frombuffer(self.messages.sizes, np.int64)[self.next : self.next + records]
        return int(np.searchsorted(np.cumsum(sizes), size, side="right"))

    def size(self, begin: int, end: int) -> int:
        """The bytes of keys and values of the records from one index up to another."""
        return total(self.messages.sizes[begin:end])[0]

    def position(self, i: int) -> Position:
        """Of the record at i, or the end."""
        if i == self.records:
            return self.end
        return Position(self.messages.addresses[i], self.ordinals[i])


class Prefetch:
    """Reads a log ahead, up to `records`, or bytes_max of keys and values; one frame of the log, or one record,
    may exceed that. Not thread-safe. Raises what Reader raises."""

    def __init__(self, intake: Intake, *, records: int, bytes_max: int) -> None:
        self._source = intake.source
        self._intake = intake
        self._records = records
        self._batch_bytes = bytes_max // 2
        self.ready: deque[Ready] = deque()

    @property
    def idle(self) -> bool:
        """Whether the last read found nothing new."""
        return self._intake.idle

    @property
    def room(self) -> bool:
        """Whether more may be read."""
        records = sum(ready.records - ready.next for ready in self.ready)
        size = sum(ready.bytes for ready in self.ready)
        return records < self._records and size < self._batch_bytes

    @property
    def empty(self) -> bool:
        """Whether everything that was read was taken."""
        return not self.ready and not self._intake.waiting

    def go_to(self, position: Position) -> None:
        """Drops what was read, and reads again from there."""
        self.ready.clear()
        self._intake.go_to(position)

    def taken(self, records: int) -> None:
        """So many records of the first batch were sent. Drops a batch that is empty and has no refusal."""
        ready = self.ready[0]
        ready.next += records
        if ready.next == ready.records and ready.refusal is None:
            self.ready.popleft()

    def read(self, timeout_s: float) -> None:
        """Reads a batch, waits so long for one, and makes its records ready."""
        judged = self._intake.next(timeout_s, min(READ_BYTES_MAX, self._batch_bytes))
        if judged is None:
            return
        ready = _ready(judged, self._source.position)
        if ready.records or ready.asides or ready.refusal is not None:
            self._source.rate_limit.spend(ready.records, ready.bytes, now_s=time.monotonic())
            self.ready.append(ready)


def _ready(judged: Judged, end: Position) -> Ready:
    """Leaves out records that are not sent. end: after the batch."""
    messages, given = judged.messages, judged.given
    verdicts, first, lanes = given.verdicts, given.first_ordinal, cast("list[LaneKey]", given.lanes)
    assert first is not None  # exactly once delivers only logs that count their records
    ordinals = range(first, first + messages.records)
    if verdicts.keys().isdisjoint(messages.addresses) and None not in lanes:
        return Ready(messages, lanes, ordinals, end)
    kept, asides = [], []
    refusal: Refusal | None = None
    for i, (address, lane) in enumerate(zip(given.addresses, given.lanes, strict=True)):
        if lane is None:
            continue
        if (verdict := verdicts.get(address)) is None:
            kept.append(i)
            continue
        position = given.position(i)
        if verdict.stops:
            end, refusal = position, verdict.refusal
            break
        asides.append(Aside(position, lane, verdict.refusal))
    return Ready(
        messages.take(kept),
        [lanes[i] for i in kept],
        [ordinals[i] for i in kept],
        end,
        refusal,
        asides,
        judged.batch if asides else None,
    )


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
