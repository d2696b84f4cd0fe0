"""Batches that are read ahead of the open transaction, with each record's destination and stamp, as the
producer takes them. They are read while a transaction is being committed, so the next one follows
without a pause.
"""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING, cast

import numpy as np

from aolog.format.native.speed import total
from bridge.deliver.delivery import TOPIC_PAUSE_S
from bridge.deliver.position import Aside, Position, first_ordinal
from bridge.kafka.messages import messages_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from aolog.format.native.speed import Rows
    from aolog.read.batch import Batch
    from bridge.deliver.exactly_once.partitions import Partitions
    from bridge.deliver.log_source import LogSource
    from bridge.deliver.partition_counts import PartitionCounts
    from bridge.deliver.router import Routed, Router
    from bridge.kafka.lane import LaneKey, Refusal
    from bridge.kafka.messages import Callback, Messages

_BYTES_MAX = 16 << 20  # of keys and values; one batch may exceed it


class Ready:
    """Records of one batch with their lanes, and the position after them. refusal: why the record at
    `end` is not sent, if it is not. asides: the poison of the batch, to be set aside before the first
    record is sent; batch: kept for that. next: index of the first record that was not taken. bytes: of
    keys and values."""

    def __init__(
        self, messages: Messages, lanes: list[LaneKey], ordinals: Sequence[int], end: Position
    ) -> None:
        self.messages = messages
        self.lanes = lanes
        self.end = end
        self.refusal: Refusal | None = None
        self.asides: tuple[Aside, ...] = ()
        self.batch: Batch | None = None
        self.next = 0
        self.bytes, _ = total(messages.sizes)
        self._ordinals = ordinals

    @property
    def records(self) -> int:
        """How many there are."""
        return self.messages.records

    def part(self, count: int, callback_of: Callable[[int, int], Callback] | None) -> Rows:
        """The next records. callback_of: makes the callback of a record, from its address and time."""
        messages, begin, end = self.messages, self.next, self.next + count
        callbacks: list[Callback] | None = None
        if callback_of is not None:
            each = map(callback_of, messages.addresses[begin:end], messages.times_ms[begin:end])
            callbacks = [*([None] * begin), *each]  # by index
        return messages.part(self.lanes, begin, end, callbacks)

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
        return Position(self.messages.addresses[i], self._ordinals[i])

    def keep(self, kept: Sequence[int]) -> None:
        """Drops all other records."""
        self.messages = self.messages.take(kept)
        self.lanes = [self.lanes[i] for i in kept]
        self.bytes, _ = total(self.messages.sizes)
        self._ordinals = [self._ordinals[i] for i in kept]


class Prefetch:
    """Reads a log ahead, up to `records` or 16 MiB. uuid: in the stamps. stop_at_poison: whether
    poison ends what is ready, as every other refused record does. refusals: of records that the
    cluster has refused, by address. aside: addresses of records that were set aside. idle: whether
    the last read found nothing new. Not thread-safe. Raises what Reader raises."""

    def __init__(
        self,
        source: LogSource,
        partitions: Partitions,
        router: Router,
        *,
        uuid: bytes,
        records: int,
        stop_at_poison: bool,
    ) -> None:
        self._source = source
        self._stop_at_poison = stop_at_poison
        self.refusals: dict[int, Refusal] = {}
        self.aside: set[int] = set()
        self._partitions = partitions
        self._router = router
        self._uuid = uuid
        self._records = records
        self._held = 0
        self._batch: Batch | None = None  # read, while some of its topics are not known yet
        self.ready: deque[Ready] = deque()
        self.idle = False

    @property
    def room(self) -> bool:
        """Whether more may be read."""
        size = sum(ready.bytes for ready in self.ready)
        return self._held < self._records and size < _BYTES_MAX

    @property
    def empty(self) -> bool:
        """Whether everything that was read was taken."""
        return not self.ready and self._batch is None

    def forget(self) -> None:
        """Drops what was read; it will be read again."""
        self.ready.clear()
        self._held = 0
        self._batch = None
        self.idle = False

    def passed(self, address: int) -> None:
        """Nothing before this address will be read again."""
        self.aside = {each for each in self.aside if each >= address}
        self.refusals = {at: why for at, why in self.refusals.items() if at >= address}

    def taken(self, records: int) -> None:
        """So many records of the first batch were sent. Drops a batch that is empty and has no refusal."""
        ready = self.ready[0]
        ready.next += records
        self._held -= records
        if ready.next == ready.records and ready.refusal is None:
            self.ready.popleft()

    def read(self, timeout_s: float) -> None:
        """Reads a batch, waits so long for one, and makes its records ready."""
        batch = self._batch or self._source.read_batch(timeout_s)
        self.idle = batch is None
        if batch is None:
            return
        self._batch = batch
        messages = messages_of(batch, self._uuid)
        found: dict[str, PartitionCounts | Refusal] = {}
        for topic in self._router.topics(messages):
            partitions = self._partitions.find(topic)
            if partitions is None:
                time.sleep(TOPIC_PAUSE_S)
                return
            found[topic] = partitions
        routed = self._router.route(batch, messages, found.__getitem__)
        first = first_ordinal(batch)
        assert first is not None  # not of format 1
        ordinals = range(first, first + messages.records)
        ready = Ready(
            messages, cast("list[LaneKey]", routed.lanes), ordinals, self._source.position
        )
        self._admit(ready, batch, routed._replace(refusals=self.refusals | routed.refusals))
        self._batch = None
        if ready.records or ready.asides or ready.refusal is not None:
            self._held += ready.records
            self._source.rate_limit.spend(ready.records, ready.bytes, now_s=time.monotonic())
            self.ready.append(ready)

    def _admit(self, ready: Ready, batch: Batch, routed: Routed) -> None:
        """Leaves out records that cannot be sent, and those of other clusters."""
        addresses, refusals = ready.messages.addresses, routed.refusals
        if not self.aside and refusals.keys().isdisjoint(addresses) and None not in routed.lanes:
            return
        kept, asides = [], []
        for i, (address, lane) in enumerate(zip(addresses, routed.lanes, strict=True)):
            if lane is None or address in self.aside:
                continue
            refusal = refusals.get(address)
            if refusal is None:
                kept.append(i)
            elif self._stop_at_poison or not refusal.is_poison:
                ready.end, ready.refusal = ready.position(i), refusal
                break
            else:
                asides.append(Aside(ready.position(i), lane, refusal))
        ready.keep(kept)
        if asides:
            ready.asides, ready.batch = tuple(asides), batch
