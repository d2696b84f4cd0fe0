"""The feed: from the log to the lanes. Reads batches, plans them, and sends what was planned."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from aolog.errors import StorageError, SyncFailed
from bridge.engine import Command, Engine, LaneKey, Planned, Position
from bridge.kafka import Cluster, NotReachable, Refused
from bridge.lane import NO_PARTITION, Refusal
from bridge.planning import Outgoing, Poisonous, plan
from bridge.routing import partition_of
from bridge.stamp import HEADER_NAME, encode_stamp
from bridge.topics import UNKNOWN

if TYPE_CHECKING:
    from collections.abc import Callable

    from aolog import Reader, Record
    from aolog.batch import Batch
    from bridge.pace import Paces
    from bridge.routing import Routing
    from bridge.topics import Topics

__all__ = ["NO_TOPIC", "READ_BYTES", "Feed", "first_ordinal", "milliseconds", "no_partition"]

NO_TOPIC = Refusal("it names no topic and there is no default", "NO_TOPIC")
READ_BYTES = 256 << 10  # a batch: a few thousand small records, a tick's worth of work
SERVE_EVERY = 4096


class Feed:
    """Sends a log's records as the engine wants them. What follows is told as its commands.

    routing: where records go. source: the UUID in the stamps. go_to: makes the reader stand at
    a position. pace: what is sent is spent of it. view: what becomes of each record that is read.
    keyless: the UUID that chooses the partition of records without a key, if it is not `source`.
    records: of the batch that was read last, by address, where a command names them.
    """

    def __init__(
        self,
        reader: Reader,
        engine: Engine,
        cluster: Cluster,
        topics: Topics,
        *,
        routing: Routing,
        source: bytes,
        go_to: Callable[[Position], None],
        pace: Paces,
        view: Callable[[Record], Record] | None = None,
        keyless: bytes | None = None,
    ) -> None:
        self._reader = reader
        self._engine = engine
        self._cluster = cluster
        self._topics = topics
        self._routing = routing
        self._source = source
        self._go_to = go_to
        self._pace = pace
        self._view = view
        self._keyless = keyless or source
        self._bytes_max = cluster.message_bytes_max
        self.epoch = 0
        self.records: dict[int, Record] = {}
        self.waiting: list[Outgoing] = []
        self.idle = False

    def forget(self) -> None:
        """What was planned and not sent will be read again."""
        self.waiting.clear()
        self.idle = False

    def read(self, timeout_s: float) -> list[Command]:
        """Reads a batch, waiting for one so long, and begins to send it. Raises what Reader
        raises."""
        engine, now_s = self._engine, time.monotonic()
        told = self._ask(self._topics.look_again)
        if told is not None:
            return told
        at = engine.read_to
        begin = engine.begin()
        if begin.address != at.address:
            self._go_to(begin)
        catching_up = begin.address < engine.frontier.address
        size = 0 if engine.careful else READ_BYTES  # a frame at least: for groups of a few
        batch = self._reader.read_batch(size, timeout=0.0 if catching_up else timeout_s)
        self.idle = batch is None and not catching_up
        if batch is None:  # the position moves on over seals and gaps
            if catching_up:  # what was there is not any more
                self._go_to(engine.frontier)
            return engine.read(self._stands(), Planned([], {}, [], {}), now_s=now_s)
        records = [record for record in batch if record.address < engine.until]
        if self._view is not None:
            records = list(map(self._view, records))
        named = map(self._routing.of, {record.topic for record in records})
        topics = {to.topic for to in named if to is not None and to.topic is not None}
        told = self._ask(lambda: self._topics.look(topics))
        if told is not None:
            self._go_to(begin)
            return told
        outgoing, planned = plan(
            records,
            first_ordinal(batch),
            self._lane_of,
            engine.lane,
            begin=begin.address,
            aside=engine.aside,
            bytes_max=self._bytes_max,
            stop_at_poison=engine.poison == "stop",
        )
        self.epoch = batch.frames[0].epoch
        self.records = {}
        if planned.poison:
            self.records = {record.address: record for record in records}
        self.waiting = outgoing
        size = sum(mark.bytes for _, mark in planned.marks)
        self._pace.spend(len(outgoing), size, now_s=now_s)
        return engine.read(self._stands(), planned, now_s=now_s) or self.send()

    def send(self) -> list[Command]:
        """Sends what is planned, as far as the client's queue takes it."""
        epoch, source, send = self.epoch, self._source, self._cluster.send
        waiting = self.waiting
        for i, (record, lane, marked) in enumerate(waiting):
            stamp = encode_stamp(source, epoch, record.address, record.timestamp)
            headers: list[tuple[str, str | bytes | None]] = [*record.headers, (HEADER_NAME, stamp)]
            mark = record.address if marked else None
            try:
                sent = send(
                    lane, record.value, record.key, milliseconds(record.timestamp), headers, mark
                )
            except Refused as error:
                return self._engine.refused(
                    str(error), error.code, record.address, now_s=time.monotonic()
                )
            if not sent:
                self.waiting = waiting[i:]
                return []
            if not i % SERVE_EVERY and i:
                self._cluster.serve()
        self.waiting = []
        return []

    # --- inside -------------------------------------------------------------------------------

    def _stands(self) -> Position:
        return Position(self._reader.tell(), self._reader.ordinal)

    def _lane_of(self, record: Record) -> LaneKey | None:
        """None: another cluster's. Raises Poisonous."""
        to = self._routing.of(record.topic)
        if to is None:
            return None
        topic = to.topic
        if topic is None:
            raise Poisonous(("", NO_PARTITION), NO_TOPIC)
        partitions = self._topics.partitions(topic)
        if partitions is None:
            key, refusal = (topic, NO_PARTITION), self._topics.refusal(topic)
            if self._engine.lane(key).closed is not None:
                return key  # it waits there
            raise Poisonous(key, refusal)
        if to.partition == "key":  # as nearly always: a call less
            key = topic, partition_of(record.key, self._keyless, partitions)
        else:
            key = topic, to.partition_of(record.key, record.address, self._keyless, partitions)
            if key[1] >= partitions:
                raise Poisonous(key, no_partition(key))
        if self._engine.refusals and record.address in self._engine.refusals:
            raise Poisonous(key, self._engine.refusals[record.address])
        return key

    def _ask(self, look: Callable[[], None]) -> list[Command] | None:
        """None if all is known of the topics that can be; else what follows."""
        try:
            look()
        except (NotReachable, StorageError) as error:
            if isinstance(error, SyncFailed):
                raise
            return self._engine.failed(self._cluster.unanswered(error), now_s=time.monotonic())
        return None


def no_partition(key: LaneKey) -> Refusal:
    """Of a record that a rule sends to a partition by its number."""
    return Refusal(f"there is no partition {key[1]} in topic {key[0]!r}", UNKNOWN)


def first_ordinal(batch: Batch) -> int | None:
    """Of the batch's first record; None in format 1."""
    frame = batch.frames[0]
    return None if frame.ordinal is None else frame.ordinal + frame.skip


def milliseconds(timestamp_us: int | None) -> int:
    """Kafka's timestamp: rounded down. 0 makes the client take the present, which is right for a
    record without one; what lies before 1970 Kafka cannot say, so it becomes its first
    millisecond and only the stamp has the truth."""
    if timestamp_us is None:
        return 0
    return max(1, timestamp_us // 1000)
