"""The feed: from the log to the lanes. Reads batches, plans them, and sends what was planned."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from aolog.errors import StorageError, SyncFailed
from bridge.engine import Command, Engine, LaneKey, Position
from bridge.kafka import Cluster, NotReachable, Refused
from bridge.planning import MARK_EVERY, Outgoing, plan
from bridge.routing import partition_of
from bridge.stamp import HEADER_NAME, encode_stamp

if TYPE_CHECKING:
    from aolog import Reader, Record
    from aolog.batch import Batch
    from bridge.topics import Topics

__all__ = ["NO_TOPIC", "READ_BYTES", "TOPIC_PAUSE_S", "Feed", "first_ordinal", "milliseconds"]

NO_TOPIC = "it names no topic and there is no default"
READ_BYTES = 256 << 10  # a batch: a few thousand small records, a tick's worth of work
TOPIC_PAUSE_S = 0.2  # before a topic that is not there is asked for again
SERVE_EVERY = 4096


class Feed:
    """Sends a log's records as the engine wants them. What follows is told as its commands.

    topic: for records that name none. source: the UUID in the stamps.
    """

    def __init__(
        self,
        reader: Reader,
        engine: Engine,
        cluster: Cluster,
        topics: Topics,
        *,
        topic: str | None,
        source: bytes,
    ) -> None:
        self._reader = reader
        self._engine = engine
        self._cluster = cluster
        self._topics = topics
        self._topic = topic
        self._source = source
        self._mark_every = MARK_EVERY
        self._batch: Batch | None = None
        self._epoch = 0
        self._opening: set[LaneKey] = set()
        self.waiting: list[Outgoing] = []
        self.idle = False
        self.skipped = 0

    @property
    def pending(self) -> bool:
        """Whether a batch was read whose lanes are not known yet."""
        return self._batch is not None

    def connected(self, *, careful: bool) -> None:
        """Sending begins on a new connection. careful: each record has a mark of its own."""
        self._mark_every = 1 if careful else MARK_EVERY

    def forget(self) -> None:
        """What was read and planned will be read again."""
        self.waiting.clear()
        self._opening.clear()
        self._batch = None
        self.idle = False

    def read(self, timeout_s: float) -> list[Command]:
        """Reads a batch, waiting for one so long, and begins to send it. Raises what Reader
        raises."""
        engine = self._engine
        batch = self._batch or self._reader.read_batch(READ_BYTES, timeout=timeout_s)
        self.idle = batch is None
        if batch is None:  # the position moves on over seals and gaps
            engine.read(Position(self._reader.tell(), self._reader.ordinal), [])
            return engine.stands(now_s=time.monotonic())
        self._batch = batch
        records, read_to = self._until_refused(batch)
        for record in records:
            told = self._find(record)
            if told is not None:
                return told
        self._batch = None
        self.waiting, marks = plan(
            records,
            first_ordinal(batch),
            self._lane_of,
            engine.holds,
            engine.opened,
            mark_every=self._mark_every,
        )
        self.skipped += len(records) - len(self.waiting)
        engine.read(read_to, marks)
        self._epoch = batch.frames[0].epoch
        return self.send() or engine.stands(now_s=time.monotonic())

    def send(self) -> list[Command]:
        """Sends what is planned, as far as the client's queue takes it."""
        epoch, source = self._epoch, self._source
        send, opened, opening = self._cluster.send, self._engine.opened, self._opening
        waiting = self.waiting
        for i, (record, lane, marked) in enumerate(waiting):
            if lane in opening:
                if not opened(lane):
                    self.waiting = waiting[i:]
                    return []
                opening.discard(lane)
            stamp = encode_stamp(source, epoch, record.address, record.timestamp)
            headers: list[tuple[str, str | bytes | None]] = [*record.headers, (HEADER_NAME, stamp)]
            mark = record.address if marked else None
            try:
                sent = send(
                    lane, record.value, record.key, milliseconds(record.timestamp), headers, mark
                )
            except Refused as error:
                return self._engine.refused(str(error), record.address, now_s=time.monotonic())
            if not sent:
                self.waiting = waiting[i:]
                return []
            if marked and not opened(lane):
                opening.add(lane)
            if not i % SERVE_EVERY and i:
                self._cluster.serve()
        self.waiting = []
        return []

    # --- inside -------------------------------------------------------------------------------

    def _until_refused(self, batch: Batch) -> tuple[list[Record], Position]:
        """The batch's records, up to one that the cluster will not take."""
        records = list(batch)
        at = self._engine.failed_at
        kept = records if at is None else [r for r in records if r.address < at]
        if at is None or len(kept) == len(records):
            return records, Position(self._reader.tell(), self._reader.ordinal)
        first = first_ordinal(batch)
        return kept, Position(at, None if first is None else first + len(kept))

    def _lane_of(self, record: Record) -> LaneKey:
        topic = record.topic or self._topic
        assert topic is not None
        return topic, partition_of(record.key, self._source, self._topics.partitions(topic))

    def _find(self, record: Record) -> list[Command] | None:
        """None if the lanes of the record's topic are known; else what follows from it."""
        topic = record.topic or self._topic
        now_s = time.monotonic()
        if topic is None:
            return self._engine.refused(NO_TOPIC, record.address, now_s=now_s)
        try:
            if self._topics.find(topic):
                return None
        except Refused as error:
            return self._engine.refused(str(error), record.address, now_s=now_s)
        except (NotReachable, StorageError) as error:
            if isinstance(error, SyncFailed):
                raise
            self._cluster.last_error = str(error)
            return self._engine.failed(str(error), now_s=now_s)
        time.sleep(TOPIC_PAUSE_S)
        return []


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
