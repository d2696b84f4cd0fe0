"""The feed: from the log to the lanes. Reads batches, plans them, and sends what was planned."""

from __future__ import annotations

import time
from bisect import bisect_left
from typing import TYPE_CHECKING, cast

from aolog.errors import StorageError, SyncFailed
from bridge.deliver.at_least_once.batch_planner import Given, plan
from bridge.deliver.at_least_once.commands import Command, Planned
from bridge.deliver.delivery import BUSY_S
from bridge.deliver.partitioner import Partitioner, lanes_by_topic
from bridge.kafka import error_table
from bridge.kafka.client import NotReachable, ToldToStop
from bridge.kafka.error_table import UNKNOWN_TOPIC, row_of
from bridge.kafka.lane import NO_PARTITION, LaneKey, Refusal
from bridge.kafka.messages import Messages, messages_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from aolog import Record
    from aolog.read.batch import Batch
    from bridge.config.routing import Routing
    from bridge.deliver.at_least_once.engine import Engine
    from bridge.deliver.at_least_once.topics import Topics
    from bridge.deliver.log_source import LogSource
    from bridge.kafka.admission import Admission
    from bridge.kafka.messages import Callback
    from bridge.kafka.producer import Cluster

__all__ = ["NO_TOPIC", "Feed", "first_ordinal", "no_partition"]

NO_TOPIC = Refusal(row_of(error_table.NO_TOPIC).reads, error_table.NO_TOPIC)
SERVE_EVERY = 4096


class _Outgoing:
    """What is planned and not all sent: a lane and a callback for each message. next: the first
    that the client has not taken."""

    def __init__(self, messages: Messages, lanes: list[LaneKey], callbacks: list[Callback]) -> None:
        self.messages = messages
        self.lanes = lanes
        self.callbacks = callbacks
        self.next = 0


class Feed:
    """Sends a log's records as the engine wants them. What follows is told as its commands.

    admission: what is known of topics. routing: where records go. uuid: in the stamps. view: what becomes of each record that is
    read. keyless: the UUID that chooses the partition of records without a key, if it is not
    `uuid`. records: of the batch that was read last, by address, where a command names them.
    """

    def __init__(
        self,
        source: LogSource,
        engine: Engine,
        cluster: Cluster,
        topics: Topics,
        *,
        admission: Admission,
        routing: Routing,
        uuid: bytes,
        view: Callable[[Record], Record] | None = None,
        keyless: bytes | None = None,
    ) -> None:
        self._source = source
        self._engine = engine
        self._cluster = cluster
        self._topics = topics
        self._routing = routing
        self._uuid = uuid
        self._view = view
        self._spreading = Partitioner(keyless or uuid)
        self._admission = admission
        self._outgoing: _Outgoing | None = None
        self.epoch = 0
        self.records: dict[int, Record] = {}
        self.idle = False

    @property
    def waiting(self) -> bool:
        """Whether something was planned and is not sent."""
        return self._outgoing is not None

    def forget(self) -> None:
        """What was planned and not sent will be read again."""
        self._outgoing = None
        self.idle = False

    def look_again(self) -> list[Command]:
        """Asks for topics and partitions that could not be used, where it is time to, also while
        nothing else is to be read; before `read`, which begins where one was left behind."""
        return self._ask(self._topics.look_again) or []

    def read(self, timeout_s: float) -> list[Command]:
        """Reads a batch, waiting for one so long, and begins to send it. Raises what Reader
        raises."""
        engine, source, now_s = self._engine, self._source, time.monotonic()
        at = engine.read_to
        if self._topics.settles and engine.next_read.address >= engine.frontier.address:
            self._cluster.serve(BUSY_S)
            return []
        begin = engine.begin()
        if begin.address != at.address:
            source.go_to(begin)
        catching_up = begin.address < engine.frontier.address
        # A frame at least: enough for groups of a few.
        size = 0 if engine.careful else engine.window.bytes
        batch = source.read_batch(0.0 if catching_up else timeout_s, size)
        self.idle = batch is None and not catching_up
        if batch is None:  # the position moves on over seals and gaps
            if catching_up:  # what was there is not any more
                source.go_to(engine.frontier)
            return engine.read(source.position, Planned([], {}, [], {}), now_s=now_s)
        messages = messages_of(batch, self._uuid, self._view)
        if messages.records and messages.addresses[-1] >= engine.until:
            messages = messages.first(bisect_left(messages.addresses, engine.until))
        named = map(self._routing.of, set(messages.topics))
        topics = {to.topic for to in named if to is not None and to.topic is not None}
        told = self._ask(lambda: self._topics.look(topics))
        if told is not None:
            source.go_to(begin)
            return told
        refusals = self._refused(messages) | engine.refusals
        lanes = self._lanes(messages, refusals)
        sent, planned = plan(
            Given(messages.addresses, messages.sizes, lanes, first_ordinal(batch), refusals),
            engine.lane,
            begin=begin.address,
            aside=engine.aside,
            stop_at_poison=engine.poison == "stop",
        )
        self.epoch = batch.frames[0].epoch
        self.records = {}
        if planned.poison:
            seen = batch if self._view is None else map(self._view, batch)
            self.records = {record.address: record for record in seen}
        self._plan_sending(messages, lanes, sent, planned)
        size = sum(mark.bytes for _, mark in planned.marks)
        source.pace.spend(len(sent), size, now_s=now_s)
        return engine.read(source.position, planned, now_s=now_s) or self.send()

    def send(self) -> list[Command]:
        """Sends what is planned, as far as the client's queue takes it."""
        cluster, outgoing = self._cluster, self._outgoing
        while outgoing is not None:
            messages, begin = outgoing.messages, outgoing.next
            if begin == messages.records:
                self._outgoing = None
                break
            if begin:
                cluster.serve()
            end = min(begin + SERVE_EVERY, messages.records)
            part = messages.part(outgoing.lanes, begin, end, outgoing.callbacks)
            put = cluster.put(part)
            outgoing.next += put.records
            if put.refusal is not None:
                refused = messages.addresses[outgoing.next]
                return self._engine.refused(*put.refusal[:2], refused, now_s=time.monotonic())
            if outgoing.next < end:
                break
        return []

    # --- inside -------------------------------------------------------------------------------

    def _plan_sending(
        self,
        messages: Messages,
        lanes: Sequence[LaneKey | None],
        sent: Sequence[int],
        planned: Planned,
    ) -> None:
        if len(sent) < messages.records:
            messages, lanes = messages.take(sent), [lanes[i] for i in sent]
        callbacks: list[Callback] = [None] * messages.records
        for key, mark in planned.marks:
            i = bisect_left(messages.addresses, mark.last_address)
            callbacks[i] = self._cluster.reporting(key, mark.last_address)
        self._outgoing = _Outgoing(messages, cast("list[LaneKey]", lanes), callbacks)

    def _lanes(self, messages: Messages, refusals: dict[int, Refusal]) -> Sequence[LaneKey | None]:
        """Of each record, None where it is another cluster's; refusals are added to."""

        def lanes_of(
            topic: str | None, keys: Sequence[bytes | None], addresses: Sequence[int]
        ) -> Sequence[LaneKey | None]:
            lanes, refusal = self._lanes_of(topic, keys, addresses)
            if refusal is not None:
                refusals.update(dict.fromkeys(addresses, refusal))
            return lanes

        return lanes_by_topic(messages.topics, messages.keys, messages.addresses, lanes_of)

    def _lanes_of(
        self, named: str | None, keys: Sequence[bytes | None], addresses: Sequence[int]
    ) -> tuple[Sequence[LaneKey | None], Refusal | None]:
        """Of records that name this topic, and why none of them is taken, if so."""
        to = self._routing.of(named)
        count = len(addresses)
        if to is None:
            return [None] * count, None
        if to.topic is None:
            return [("", NO_PARTITION)] * count, NO_TOPIC
        partitions = self._topics.partitions(to.topic)
        if partitions is None:
            key = to.topic, NO_PARTITION
            waits = self._engine.lane(key).closed is not None
            return [key] * count, None if waits else self._topics.refusal(to.topic)
        if isinstance(to.partition, int) and to.partition >= partitions:
            key = to.topic, to.partition
            return [key] * count, no_partition(key)
        return self._spreading.lanes(to, partitions, keys, addresses), None

    def _refused(self, messages: Messages) -> dict[int, Refusal]:
        """What is known beforehand."""

        def topic_of(named: str | None) -> str | None:
            to = self._routing.of(named)
            return None if to is None else to.topic

        return self._admission.refusals(messages, topic_of, now_ms=int(time.time() * 1_000))

    def _ask(self, look: Callable[[], None]) -> list[Command] | None:
        """None if all is known of the topics that can be; else what follows."""
        try:
            look()
        except ToldToStop:
            return []
        except (NotReachable, StorageError) as error:
            if isinstance(error, SyncFailed):
                raise
            return self._engine.failed(self._cluster.unanswered(error), now_s=time.monotonic())
        return None


def no_partition(key: LaneKey) -> Refusal:
    """Of a record that a rule sends to a partition by its number."""
    return Refusal(f"there is no partition {key[1]} in topic {key[0]!r}", UNKNOWN_TOPIC)


def first_ordinal(batch: Batch) -> int | None:
    """Of the batch's first record; None in format 1."""
    frame = batch.frames[0]
    return None if frame.ordinal is None else frame.ordinal + frame.skip
