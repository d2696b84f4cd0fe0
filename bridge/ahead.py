"""What was read ahead of the transaction that is open: batches of the log as the producer takes
them, with where each record goes and its stamp.

Read while a transaction is being committed, so that the next one is sent without a pause.
"""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING

from bridge.engine import Position
from bridge.feed import NO_TOPIC, READ_BYTES, first_ordinal, milliseconds, no_partition
from bridge.kafka import NotReachable, Refused
from bridge.lane import Refusal
from bridge.stamp import encode_stamp
from bridge.topics import TOPIC_PAUSE_S

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from aolog import Record
    from aolog.batch import Batch
    from bridge.engine import LaneKey
    from bridge.kafka import Cluster
    from bridge.partitions import Partitions
    from bridge.routing import Destination, Routing
    from bridge.source import Source
    from bridge.transactional import Message

__all__ = ["Ahead", "Ready"]

_BATCHES = 64  # of READ_BYTES each are held at most: 16 MiB


class Ready:
    """Records of one batch, and behind which position they end. refusal: why the record at `end`
    can never be sent, if it cannot. next: of the first that was not taken."""

    def __init__(
        self, records: list[Record], ordinals: Sequence[int] | None, end: Position
    ) -> None:
        self.records = records
        self.end = end
        self.refusal: Refusal | None = None
        self.lanes: list[LaneKey] = []
        self.stamps: list[bytes] = []
        self.times_ms: list[int] = []
        self.next = 0
        self._ordinals = ordinals

    def messages(self, count: int) -> Iterator[Message]:
        """The next ones. Made as they go: thousands that are kept cost the collector dearly."""
        part = slice(self.next, self.next + count)
        columns = self.lanes[part], self.records[part], self.stamps[part], self.times_ms[part]
        return zip(*columns, strict=True)

    def position(self, i: int) -> Position:
        """Of the record at i, or of the end."""
        if i == len(self.records):
            return self.end
        ordinal = None if self._ordinals is None else self._ordinals[i]
        return Position(self.records[i].address, ordinal)

    def refuse(self, i: int, refusal: Refusal) -> None:
        """The record at i is refused; it and what follows are not sent."""
        self.end, self.refusal = self.position(i), refusal
        del self.records[i:]


class Ahead:
    """Reads a log as far ahead as `records`, or some megabytes. routing: where records go. Not
    thread-safe. Raises what Reader raises."""

    def __init__(
        self,
        source: Source,
        partitions: Partitions,
        cluster: Cluster,
        *,
        routing: Routing,
        uuid: bytes,
        records: int,
    ) -> None:
        self._source = source
        self._partitions = partitions
        self._cluster = cluster
        self._routing = routing
        self._uuid = uuid
        self._records = records
        self._held = 0
        self._batch: Batch | None = None  # read, and not all of its topics are known yet
        self.ready: deque[Ready] = deque()
        self.idle = False

    @property
    def room(self) -> bool:
        """Whether more may be read."""
        return self._held < self._records and len(self.ready) < _BATCHES

    @property
    def empty(self) -> bool:
        """Whether all that was read was taken."""
        return not self.ready and self._batch is None

    def forget(self) -> None:
        """What was read will be read again."""
        self.ready.clear()
        self._held = 0
        self._batch = None
        self.idle = False

    def taken(self, records: int) -> None:
        """So many of the first batch were sent; it goes when it is empty and ends well."""
        ready = self.ready[0]
        ready.next += records
        self._held -= records
        if ready.next == len(ready.records) and ready.refusal is None:
            self.ready.popleft()

    def read(self, timeout_s: float) -> None:
        """Reads a batch, waiting for one so long, and makes its records ready. idle: there was
        none."""
        batch = self._batch or self._source.reader.read_batch(READ_BYTES, timeout=timeout_s)
        self.idle = batch is None
        if batch is None:
            return
        self._batch = batch
        ready = self._ours(batch)
        wanted = [(r.topic, r.key) for r in ready.records]
        lanes: dict[tuple[str | None, bytes | None], LaneKey] = {}
        turns = False
        for pair in dict.fromkeys(wanted):  # keys recur, and a look is cheaper than a hash
            to = self._routing.of(pair[0])
            assert to is not None
            found, refusal = self._find(to)
            if refusal is not None:
                ready.refuse(wanted.index(pair), refusal)
                break
            if not found:
                return
            turns = turns or to.partition == "round-robin"
            lanes[pair] = self._lane(to, pair[1], 0)
        ready.lanes = [lanes[pair] for pair in wanted[: len(ready.records)]]
        if turns:
            ready.lanes = [
                self._lane(to, r.key, r.address)
                for r in ready.records
                if (to := self._routing.of(r.topic)) is not None
            ]
        epoch, uuid = batch.frames[0].epoch, self._uuid
        ready.stamps = [encode_stamp(uuid, epoch, r.address, r.timestamp) for r in ready.records]
        ready.times_ms = [milliseconds(r.timestamp) for r in ready.records]
        self._batch = None
        if ready.records or ready.refusal is not None:
            self._held += len(ready.records)
            size = sum(len(r.value or b"") + len(r.key or b"") for r in ready.records)
            self._source.pace.spend(len(ready.records), size, now_s=time.monotonic())
            self.ready.append(ready)

    def _ours(self, batch: Batch) -> Ready:
        """Without records that go to another cluster."""
        of, records = self._routing.of, list(batch)
        first = first_ordinal(batch)
        ordinals: Sequence[int] | None = None
        if first is not None:
            ordinals = range(first, first + len(records))
        if any(of(topic) is None for topic in {record.topic for record in records}):
            kept = [i for i, record in enumerate(records) if of(record.topic) is not None]
            records = [records[i] for i in kept]
            ordinals = None if ordinals is None else [ordinals[i] for i in kept]
        return Ready(records, ordinals, self._source.position)

    def _lane(self, to: Destination, key: bytes | None, address: int) -> LaneKey:
        assert to.topic is not None
        partitions = self._partitions.of(to.topic)
        return to.topic, to.partition_of(key, address, self._uuid, partitions)

    def _find(self, to: Destination) -> tuple[bool, Refusal | None]:
        """Whether it is there, else ask again; why nothing can ever be sent there, if so."""
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
