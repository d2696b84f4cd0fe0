"""Batches that are read ahead of the open transaction, with each record's destination and stamp, as the
producer takes them. They are read while a transaction is being committed, so the next one follows
without a pause.
"""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING, cast

from aolog.format.native.speed import total
from bridge.deliver.at_least_once.topics import TOPIC_PAUSE_S
from bridge.deliver.partitioner import NO_TOPIC, Partitioner, lanes_by_topic, no_partition
from bridge.deliver.position import Aside, Position, first_ordinal
from bridge.deliver.transform import refusals_of, view_of
from bridge.kafka.client import NotReachable, Refused
from bridge.kafka.lane import NO_PARTITION, Refusal
from bridge.kafka.messages import messages_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from aolog import Record
    from aolog.format.native.speed import Rows
    from aolog.read.batch import Batch
    from bridge.config.routing import Destination, Routing
    from bridge.deliver.log_source import LogSource
    from bridge.deliver.partitions import Partitions
    from bridge.kafka.admission import Admission
    from bridge.kafka.lane import LaneKey
    from bridge.kafka.messages import Callback, Messages
    from bridge.kafka.producer import Cluster

_BATCHES_MAX = 64
_BYTES_MAX = 16 << 20  # of keys and values; one batch may exceed it


class Ready:
    """Records of one batch, and the position after them. refusal: why the record at `end` is not sent, if
    it is not. asides: the poison among them, to be set aside before the first record is sent;
    records_aside: those records, by address; epoch: theirs. next: index of the first record that was not
    taken. bytes: of keys and values."""

    def __init__(self, messages: Messages, ordinals: Sequence[int] | None, end: Position) -> None:
        self.messages = messages
        self.end = end
        self.refusal: Refusal | None = None
        self.asides: tuple[Aside, ...] = ()
        self.records_aside: dict[int, Record] = {}
        self.epoch = 0
        self.lanes: list[LaneKey] = []
        self.next = 0
        self.bytes, _ = total(messages.sizes)
        self._ordinals = ordinals

    @property
    def records(self) -> int:
        """How many there are."""
        return self.messages.records

    def part(self, count: int, callback_of: Callable[[int], Callback] | None) -> Rows:
        """The next records. callback_of: makes the callback of the record at an address."""
        callbacks: list[Callback] | None = None
        if callback_of is not None:
            callbacks = [callback_of(address) for address in self.messages.addresses]
        return self.messages.part(self.lanes, self.next, self.next + count, callbacks)

    def position(self, i: int) -> Position:
        """Of the record at i, or the end."""
        if i == self.records:
            return self.end
        ordinal = None if self._ordinals is None else self._ordinals[i]
        return Position(self.messages.addresses[i], ordinal)

    def keep(self, kept: Sequence[int]) -> None:
        """Drops all other records."""
        self.messages = self.messages.take(kept)
        self.bytes, _ = total(self.messages.sizes)
        if self._ordinals is not None:
            self._ordinals = [self._ordinals[i] for i in kept]

    def refuse(self, i: int, refusal: Refusal) -> None:
        """The record at i is refused: neither it nor the following ones are sent."""
        self.end, self.refusal = self.position(i), refusal
        self.messages = self.messages.first(i)
        self.bytes, _ = total(self.messages.sizes)


class Prefetch:
    """Reads a log ahead, up to `records` or 16 MiB. admission: the topics' limits. routing: where records
    go. stop_at_poison: whether poison ends what is ready, as every other refused record does. refusals: of
    records that the cluster has refused, by address. aside: addresses of records that were set aside.
    idle: whether the last read found nothing new. Not thread-safe. Raises what Reader raises."""

    def __init__(
        self,
        source: LogSource,
        partitions: Partitions,
        cluster: Cluster,
        *,
        admission: Admission,
        routing: Routing,
        uuid: bytes,
        records: int,
        stop_at_poison: bool,
    ) -> None:
        self._source = source
        self._admission = admission
        self._stop_at_poison = stop_at_poison
        self.refusals: dict[int, Refusal] = {}
        self.aside: set[int] = set()
        self._partitions = partitions
        self._cluster = cluster
        self._routing = routing
        self._uuid = uuid
        self._spreading = Partitioner(uuid)
        self._records = records
        self._held = 0
        self._batch: Batch | None = None  # read, while some of its topics are not known yet
        self.ready: deque[Ready] = deque()
        self.idle = False

    @property
    def room(self) -> bool:
        """Whether more may be read."""
        return (
            self._held < self._records
            and len(self.ready) < _BATCHES_MAX
            and sum(ready.bytes for ready in self.ready) < _BYTES_MAX
        )

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
        ready = self._ours(batch)
        refusals: dict[int, Refusal] = {}
        for topic in dict.fromkeys(ready.messages.topics):
            to = self._routing.of(topic)
            assert to is not None
            found, refusal = self._find(to)
            if refusal is not None:
                of_topic = zip(ready.messages.addresses, ready.messages.topics, strict=True)
                refusals |= {address: refusal for address, named in of_topic if named == topic}
            elif not found:
                return
        self._admit(ready, batch, refusals)
        messages = ready.messages
        lanes = lanes_by_topic(messages.topics, messages.keys, messages.addresses, self._lanes_of)
        ready.lanes = cast("list[LaneKey]", lanes)
        self._batch = None
        if messages.records or ready.asides or ready.refusal is not None:
            self._held += messages.records
            self._source.rate_limit.spend(messages.records, ready.bytes, now_s=time.monotonic())
            self.ready.append(ready)

    def _admit(self, ready: Ready, batch: Batch, refusals: dict[int, Refusal]) -> None:
        """Leaves out records that cannot be sent. refusals: of records whose topic cannot be used."""
        messages = ready.messages
        now_ms = int(time.time() * 1_000)
        known = self._admission.refusals(messages, self._topic_of, now_ms=now_ms)
        refusals = known | refusals_of(batch) | self.refusals | refusals
        if refusals.keys().isdisjoint(messages.addresses) and not self.aside:
            return
        kept, asides = [], []
        for i, address in enumerate(messages.addresses):
            refusal = refusals.get(address)
            if address in self.aside:
                continue
            if refusal is None:
                kept.append(i)
            elif self._stop_at_poison or not refusal.is_poison:
                ready.refuse(i, refusal)
                break
            else:
                asides.append(Aside(ready.position(i), self._lane_of(messages, i), refusal))
        ready.keep(kept)
        if asides:
            wanted = {aside.position.address for aside in asides}
            ready.asides, ready.epoch = tuple(asides), batch.frames[0].epoch
            ready.records_aside = {r.address: r for r in batch if r.address in wanted}

    def _topic_of(self, named: str | None) -> str | None:
        to = self._routing.of(named)
        return None if to is None else to.topic

    def _lane_of(self, messages: Messages, i: int) -> LaneKey:
        """The record's destination; without a partition if its topic was not found."""
        topic = self._topic_of(messages.topics[i])
        if topic is None or topic not in self._partitions.topics:
            return topic or "", NO_PARTITION
        (lane,) = self._lanes_of(messages.topics[i], [messages.keys[i]], [messages.addresses[i]])
        return lane

    def _ours(self, batch: Batch) -> Ready:
        """The batch without records that go to another cluster."""
        of, messages = self._routing.of, messages_of(batch, self._uuid, view_of(batch))
        first = first_ordinal(batch)
        ordinals: Sequence[int] | None = None
        if first is not None:
            ordinals = range(first, first + messages.records)
        others = {topic for topic in set(messages.topics) if of(topic) is None}
        if others:
            kept = [i for i, topic in enumerate(messages.topics) if topic not in others]
            messages = messages.take(kept)
            ordinals = None if ordinals is None else [ordinals[i] for i in kept]
        return Ready(messages, ordinals, self._source.position)

    def _lanes_of(
        self, named: str | None, keys: Sequence[bytes | None], addresses: Sequence[int]
    ) -> Sequence[LaneKey]:
        to = self._routing.of(named)
        assert to is not None
        assert to.topic is not None
        partitions = self._partitions.of(to.topic)
        return self._spreading.lanes(to, partitions, keys, addresses)

    def _find(self, to: Destination) -> tuple[bool, Refusal | None]:
        """Whether the topic can be used; why nothing can ever be sent there, if so. (False, None): read
        again in a moment."""
        if to.topic is None:
            return False, NO_TOPIC
        try:
            if self._partitions.find(to.topic):
                if isinstance(to.partition, str) or to.partition < self._partitions.of(to.topic):
                    return True, None
                return True, no_partition((to.topic, to.partition))
        except Refused as error:
            return False, Refusal(str(error), error.code)
        except NotReachable as error:
            self._cluster.unanswered(error)
        time.sleep(TOPIC_PAUSE_S)
        return False, None
