"""Sender: from the log to the lanes. It reads a batch, routes it, asks the engine what to send, and
queues that for the producer. The engine's state shows what failed."""

from __future__ import annotations

import time
from bisect import bisect_left
from typing import TYPE_CHECKING, cast

from aolog.errors import StorageError, SyncFailed
from bridge.deliver.at_least_once.batch_planner import Given
from bridge.deliver.position import first_ordinal
from bridge.kafka.client import NotReachable, ToldToStop
from bridge.kafka.messages import Messages, messages_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from aolog.read.batch import Batch
    from bridge.deliver.at_least_once.batch_planner import Planned
    from bridge.deliver.at_least_once.engine import Engine
    from bridge.deliver.at_least_once.topics import Topics
    from bridge.deliver.log_source import LogSource
    from bridge.deliver.router import Router
    from bridge.kafka.lane import LaneKey
    from bridge.kafka.messages import Callback
    from bridge.kafka.producer import Cluster

SERVE_EVERY = 4096  # records that are queued between two calls of the client's poll


class _Outgoing:
    """Records to send: a lane and a callback for each. next: the first that is not queued."""

    def __init__(self, messages: Messages, lanes: list[LaneKey], callbacks: list[Callback]) -> None:
        self.messages = messages
        self.lanes = lanes
        self.callbacks = callbacks
        self.next = 0


class Sender:
    """Of one log. Not thread-safe.

    uuid: in the stamps. batch: the last one, if some of its records are to be set aside. idle: the last
    read found no batch.
    """

    def __init__(
        self,
        source: LogSource,
        engine: Engine,
        cluster: Cluster,
        topics: Topics,
        router: Router,
        *,
        uuid: bytes,
    ) -> None:
        self._source = source
        self._engine = engine
        self._cluster = cluster
        self._topics = topics
        self._router = router
        self._uuid = uuid
        self._outgoing: _Outgoing | None = None
        self.batch: Batch | None = None
        self.idle = False

    @property
    def waiting(self) -> bool:
        """Whether admitted records are not queued yet."""
        return self._outgoing is not None

    def forget(self) -> None:
        """The connection is closed: what was not queued will be read again."""
        self._outgoing = None
        self.idle = False

    def look_again(self) -> None:
        """Asks again for topics and partitions that could not be used, if it is time to. Call it
        before `read`, which begins where a lane left its records."""
        self._ask(self._topics.look_again)

    def read(self, timeout_s: float) -> None:
        """Reads a batch, waiting for one so long, and begins to send it. Raises what Reader
        raises."""
        engine, source, now_s = self._engine, self._source, time.monotonic()
        catching_up = engine.catching_up
        begin = engine.begin()
        if begin.address != source.position.address:
            source.go_to(begin)
        batch = source.read_batch(0.0 if catching_up else timeout_s, engine.batch_bytes)
        self.idle = batch is None and not catching_up
        if batch is None:
            if catching_up:  # the records are no longer there
                source.go_to(engine.frontier)
            engine.nothing_read(source.position)
            return
        messages = messages_of(batch, self._uuid)
        if not self._ask(lambda: self._topics.look(self._router.topics(messages))):
            source.go_to(begin)
            return
        routed = self._router.route(batch, messages, self._topics.partitions)
        ordinal = first_ordinal(batch)
        given = Given(
            messages.addresses,
            messages.sizes,
            routed.lanes,
            ordinal,
            routed.refusals,
            messages.digests,
        )
        planned = engine.admit(given, source.position, now_s=now_s)
        self.batch = batch if engine.pending else None
        self._prepare(messages, routed.lanes, planned)
        size = sum(mark.bytes for _, mark in planned.marks)
        source.rate_limit.spend(len(planned.sent), size, now_s=now_s)
        if not engine.pending:
            self.send()

    def send(self) -> None:
        """Queues admitted records, until the client's queue is full."""
        cluster, outgoing = self._cluster, self._outgoing
        while outgoing is not None:
            messages, begin = outgoing.messages, outgoing.next
            if begin == messages.records:
                self._outgoing = None
                break
            if begin:
                cluster.serve()
            end = min(begin + SERVE_EVERY, messages.records)
            put = cluster.put(messages.part(outgoing.lanes, begin, end, outgoing.callbacks))
            outgoing.next += put.records
            if put.refusal is not None:
                named = [messages.addresses[outgoing.next]]
                reason, code = put.refusal[:2]
                self._engine.suspect(reason, code, named=named, now_s=time.monotonic())
                break
            if outgoing.next < end:
                break

    # --- inside -------------------------------------------------------------------------------

    def _prepare(
        self, messages: Messages, lanes: Sequence[LaneKey | None], planned: Planned
    ) -> None:
        sent = planned.sent
        if len(sent) < messages.records:
            messages, lanes = messages.take(sent), [lanes[i] for i in sent]
        callbacks: list[Callback] = [None] * messages.records
        for key, mark in planned.marks:
            i = bisect_left(messages.addresses, mark.last_address)
            callbacks[i] = self._cluster.reporting(key, mark.last_address, messages.times_ms[i])
        self._outgoing = _Outgoing(messages, cast("list[LaneKey]", lanes), callbacks)

    def _ask(self, look: Callable[[], None]) -> bool:
        """Asks for topics. Whether they are known, as far as they exist."""
        try:
            look()
        except ToldToStop:
            return False
        except SyncFailed:
            raise
        except (NotReachable, StorageError) as error:
            reason = str(error)
        else:
            return True
        self._engine.failed(self._cluster.unanswered(reason), now_s=time.monotonic())
        return False
