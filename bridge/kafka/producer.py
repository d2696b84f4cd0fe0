"""A producer on a Kafka cluster, as at-least-once delivery needs it: idempotent, gapless, patient
without end. It reports what happens as events, and decides nothing."""

from __future__ import annotations

import contextlib
import json
import logging
import time
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaError, KafkaException

from bridge.config.names import is_topic_name
from bridge.kafka.admission import Admission
from bridge.kafka.client import (
    ALL_DOWN,
    ANSWER_S,
    BATCH_BYTES,
    DEFAULTS,
    FIXED,
    NotReachable,
    advertised,
    away,
    broker_of,
    let_go,
    made,
    words,
)
from bridge.kafka.client_log import ListeningLog
from bridge.kafka.client_queue import MESSAGE_BYTES_MAX, QUEUE_KBYTES, queue_kbytes_of
from bridge.kafka.error_table import Kind, advice, kind_of
from bridge.kafka.events import Delivered, Failed, KafkaEvent, Put, with_names
from bridge.kafka.identity import Identity
from bridge.kafka.lane import Refusal
from bridge.kafka.queueing import RowProducer
from bridge.kafka.read_back import ReadBack
from bridge.kafka.refused_times import INVALID_TIMESTAMP
from bridge.kafka.stalls import any_up, connecting_to, lanes_of
from bridge.kafka.telemetry import note_brokers
from bridge.kafka.topic_creation import TopicCreation, impossible_name
from bridge.kafka.topic_settings import TopicSettings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from confluent_kafka.admin import TopicMetadata  # type: ignore[attr-defined]  # not said so

    from aolog.format.native.speed import Rows
    from bridge.kafka.lane import LaneKey
    from bridge.kafka.messages import Callback
    from bridge.kafka.stalls import Sent
    from bridge.kafka.topic_creation import CreateTopics

_log = logging.getLogger("bridge.kafka")
_SECOND_QUESTION_S = 1.0  # it only saves time
_NAME_WAIT_S = 1.0  # ends with the first report that names a lane
_NAME_POLL_S = 0.05
_REASON_WAIT_S = 0.05  # the client gives its reasons a moment after the failure
_WARNING, _INFO = 4, 6  # librdkafka's log_level


class Cluster:
    """A producer and its events. Not thread-safe: one thread sends and polls.

    settings: librdkafka's, checked before. identity: which cluster it has to be. create_topics:
    see TopicCreation. reads_back: whether `reader` reads records, see ReadBack.

    reachable: whether a broker is connected. last_error: the latest reason why none is. forbidden:
    why the cluster does not accept the bridge, if it does not. sent: what each partition has not
    acknowledged, by the latest statistics; a new mapping each second. admission: judges records before
    they are sent; at first by the client's settings alone.
    """

    _heeds_others = True  # whether an answer from another cluster counts as a failure
    _reported_later = KafkaError._FATAL  # noqa: SLF001 -- a public name; the next poll reports why

    def __init__(
        self,
        bootstrap_servers: str,
        settings: dict[str, Any],
        identity: Identity | None = None,
        *,
        create_topics: CreateTopics = "never",
        reads_back: bool = True,
    ) -> None:
        self._reads_back = reads_back
        self._settings: dict[str, Any] = {"bootstrap.servers": bootstrap_servers, **settings}
        self._creation = TopicCreation(self._settings, create_topics)
        self._servers = bootstrap_servers
        self._identity = identity or Identity()
        self._producer: RowProducer | None = None
        self._generation = 0  # callbacks of an earlier one are ignored
        self._careful = False
        self._asked_twice = False
        self._naming = False
        self._events: deque[KafkaEvent] = deque()
        self.reachable = False
        self.sent: dict[LaneKey, Sent] = {}
        self._leaders: dict[LaneKey, str] = {}  # the last known ones
        self.last_error: str | None = None
        self._away: str | None = None  # which broker cannot be reached and why, while none is
        self._silent: str | None = None  # which broker gives no answer, while none is connected
        self._was_up = False  # whether this producer was connected to a broker
        self._queued = 0  # records in this producer's queue, by the last statistics
        self._made_s = 0.0
        self.forbidden: str | None = None
        self._batch_bytes = int(self._settings.get("batch.size", BATCH_BYTES))
        names = ("compression.type", "compression.codec")
        codecs = {str(self._settings.get(name, "none")) for name in names}
        self._queue_kbytes = queue_kbytes_of(self._settings)
        self.admission = Admission(
            int(self._settings.get("message.max.bytes", MESSAGE_BYTES_MAX)),
            self._queue_kbytes,
            compresses=codecs != {"none"},
        )
        self.topic_settings = TopicSettings(self._settings, self.admission)

    def learn(self, topics: Iterable[str]) -> bool:
        """After a refusal: asks for the limits of these topics; whether any are new. From the next
        connection on, requests are no larger than they take."""
        bounds = self.topic_settings.learn(topics)
        taken = [min(each.batch_bytes, each.segment_bytes) for each in bounds]
        self._batch_bytes = max(1, min([self._batch_bytes, *taken]))
        return bool(bounds)

    def refused_alone(self, event: Failed, waited_s: float) -> None:
        """A record was refused, alone in its request, this long after it was sent. Others may be refused
        for the same reason."""
        if event.code == INVALID_TIMESTAMP and event.lane and event.time_ms is not None:
            sent_ms = int((time.time() - waited_s) * 1_000)
            self.admission.times.note(event.lane, event.time_ms, sent_ms=sent_ms)

    # --- producing ----------------------------------------------------------------------------

    def connect(self, *, careful: bool = False) -> None:
        """Makes a new producer, which connects in the background. careful: a refused record is being
        searched for, so it is worth waiting until the client names its lane."""
        self.disconnect()
        self._careful = careful
        self._make({**FIXED, "batch.size": self._batch_bytes})

    def _make(self, fixed: dict[str, Any]) -> None:
        self._generation += 1
        self._asked_twice = self._was_up = False
        self._queued = 0
        self._made_s = time.monotonic()
        self._producer = made(
            RowProducer,
            {
                **DEFAULTS,
                QUEUE_KBYTES: self._queue_kbytes,
                **self._settings,
                **fixed,
                "log_level": max(_WARNING, int(self._settings.get("log_level", _INFO))),
                "error_cb": partial(self._on_error, self._generation),
                "stats_cb": partial(self._on_stats, self._generation, {}),
                "statistics.interval.ms": 1_000,
            },
            ListeningLog(
                partial(self._on_other_cluster, self._generation),
                partial(self._on_closed, self._generation),
            ),
        )

    def disconnect(self) -> None:
        """Drops the producer and what it has not delivered, which is still in the log."""
        producer, self._producer = self._producer, None
        self._generation += 1
        self.reachable = False
        if producer is not None:
            let_go(producer)  # the callbacks of purged records are ignored
        self._events.clear()

    def reporting(self, lane: LaneKey, address: int, time_ms: int) -> Callback:
        """The callback for the record that reports for its lane; `poll` gives what it reports."""
        return partial(self._on_delivery, self._generation, lane, address, time_ms)

    def put(self, messages: Rows) -> Put:
        """Queues records in order, up to one that can never be sent, or until the queue is full.
        Then poll, and put the rest again. messages: see Messages.part."""
        sent, error = self._queue(messages)
        if error is None:
            return Put(sent, None)
        if kind_of(error.name()) is Kind.POISON:
            return Put(sent, Refusal(error.str(), error.name()))
        if error.code() == self._reported_later:
            return Put(sent, None, spoiled=True)
        self._fail(error)
        return Put(sent, None)

    def _queue(self, messages: Rows) -> tuple[int, KafkaError | None]:
        """How many were queued, and why the next one was not unless the queue is full."""
        assert self._producer is not None
        first = messages.at
        try:
            self._producer.put(messages)
        except BufferError:
            return messages.at - 1 - first, None
        except KafkaException as error:
            return messages.at - 1 - first, error.args[0]
        return messages.at - first, None

    def poll(self, timeout_s: float) -> Iterator[KafkaEvent]:
        """Serves the client for so long; yields what happened."""
        self.serve(timeout_s)
        while self._events:
            yield self._events.popleft()

    def trouble(self, failure: str | None) -> str | None:
        """Why nothing is delivered, for status; None if something is. failure: the delivery's own
        latest failure."""
        if self.forbidden is not None:
            return self.forbidden
        if self.reachable:
            return failure
        if self._away is not None:  # says more than a failure that follows from it
            return f"{self._away}; trying again"
        late = self._producer is not None and time.monotonic() - self._made_s > ANSWER_S
        if late and self._silent is not None:
            return f"{self._silent}; trying again"
        silent = f"{self._servers}: no answer; trying again" if late else None
        return failure or self.last_error or silent

    def unanswered(self, reason: str) -> str:
        """Why a question was not answered, for status and logs. The reason reaches the client's
        callbacks, so they are served first."""
        self.serve(_REASON_WAIT_S)
        self.last_error = self.forbidden or self._away or self._silent or reason
        return self.last_error

    def serve(self, timeout_s: float = 0.0) -> None:
        """Runs the client's callbacks; `poll` gives what they report.

        The client's poll raises a fatal error (an idempotent producer has a gap in what it
        delivered) once, in the order of the events; successes after it prove nothing.
        """
        if self._producer is None:
            return
        fatal: KafkaError | None = None
        try:
            self._producer.poll(timeout_s)
        except KafkaException as error:
            fatal = error.args[0]
        if fatal is None:
            return
        if self._named():
            self._events = deque(with_names(self._events))
        else:
            self._fail(fatal)
        self._generation += 1

    def _named(self) -> bool:
        """Waits for the callback that names the lane of the refused request; whether it came. None
        comes if no refused record has a callback."""
        assert self._producer is not None
        self._naming = True
        wait_s = _NAME_WAIT_S if self._careful else _NAME_POLL_S
        try:
            for _ in range(int(wait_s / _NAME_POLL_S)):
                with contextlib.suppress(KafkaException):
                    self._producer.poll(_NAME_POLL_S)
                if any(isinstance(event, Failed) for event in self._events):
                    return True
        finally:
            self._naming = False
        return False

    def _on_delivery(
        self,
        generation: int,
        lane: LaneKey,
        address: int,
        time_ms: int,
        error: KafkaError | None,
        message: Any,
    ) -> None:
        if generation != self._generation:
            return
        if error is not None:
            self._fail(error, lane, address, time_ms)
        elif not self._naming:
            self.reachable = self._was_up = True  # the statistics show it a second later
            offset = message.offset()
            self._events.append(Delivered(lane, address, -1 if offset is None else offset))

    def _on_error(self, generation: int, error: KafkaError) -> None:
        if broker_of(error.str()) is not None:
            self.last_error = self._away = away(error.str(), self._servers)
        elif error.code() != ALL_DOWN or self.last_error is None:
            # Why one broker is down is worth more than how many are.
            self.last_error = f"{self._servers}: {error.str()}"
        if generation != self._generation:
            return
        if error.code() == ALL_DOWN and not self._closed_for_idleness:
            self.reachable = False
        if error.fatal() or kind_of(error.name()) is Kind.LOCKED_OUT:
            self._fail(error)
        else:
            _log.debug("%s", error)

    def _on_other_cluster(self, generation: int) -> None:
        """What another cluster acknowledges proves nothing. The next connection names it."""
        if generation == self._generation and self._heeds_others:
            self._generation += 1
            self._events.append(Failed("another cluster answers"))

    def _on_closed(self, generation: int, broker: str) -> None:
        if generation == self._generation:
            protocol = self._settings.get("security.protocol", "PLAINTEXT")
            self._away = (
                f"{broker}: it closes the connection at once: check security.protocol, which is "
                f"{protocol}; the listener may expect SASL or TLS{advertised(broker, self._servers)}"
            )

    def _locked_out(self, error: KafkaError) -> str:
        """Notes why the cluster does not accept the bridge, and returns that."""
        self.forbidden = f"{error.name()}: {error.str()}: {advice(error.name())}"
        return self.forbidden

    def _fail(
        self,
        error: KafkaError,
        lane: LaneKey | None = None,
        address: int | None = None,
        time_ms: int | None = None,
    ) -> None:
        """Reports a failure: the record's that these name, or the producer's. Not one that follows from
        another record's, which is reported by itself."""
        if lane is not None and kind_of(error.name()) is Kind.CONSEQUENCE:
            return
        event = self._event_of(error)
        if isinstance(event, Failed):
            event = event._replace(lane=lane, address=address, time_ms=time_ms)
        self._report(event)

    def _event_of(self, error: KafkaError) -> Any:
        """What a failure means."""
        if kind_of(error.name()) is Kind.LOCKED_OUT:
            self._locked_out(error)
        return Failed(f"{error.name()}: {error.str()}", error.name())

    def _report(self, event: Any) -> None:
        self._events.append(event)

    def _on_stats(self, generation: int, retries: dict[str, int], text: str) -> None:
        """retries: of this producer, by broker; updated."""
        if generation != self._generation:
            return
        statistics = json.loads(text)
        self._queued = statistics["msg_cnt"]
        if any_up(statistics):
            self.reachable = self._was_up = True
            self.forbidden = self._away = self._silent = self.last_error = None
        elif not self._closed_for_idleness:
            self.reachable = False
            if (broker := connecting_to(statistics)) is not None:
                self._silent = f"{broker}: no answer{advertised(broker, self._servers)}"
        self.sent = self._sent_by(statistics)
        note_brokers(statistics, retries)

    def _sent_by(self, statistics: Mapping[str, Any]) -> dict[LaneKey, Sent]:
        return lanes_of(statistics, self._leaders)

    @property
    def _closed_for_idleness(self) -> bool:
        """Whether no broker is connected only because nothing is sent: brokers and load balancers
        close idle connections. The client reconnects within a second or two, and reports an error
        if that fails."""
        return self._was_up and self._away is None and not self._queued

    # --- questions ----------------------------------------------------------------------------

    def partitions(self, topic: str, answer_s: float = ANSWER_S) -> int | Refusal:
        """How many partitions a topic has, or why it cannot be used: see TopicCreation.partitions. Raises
        NotReachable, OtherCluster."""
        if not is_topic_name(topic):
            return impossible_name(topic)
        found = self._look_for(topic, answer_s)
        if found.error is None:
            # A bootstrap server answers also where no broker can be reached that it advertises.
            self.reachable = self.reachable or (self._away is None and self._silent is None)
        elif kind_of(found.error.name()) is Kind.LOCKED_OUT:
            self._fail(found.error)
        return self._creation.partitions(topic, found)

    def _look_for(self, topic: str, answer_s: float = ANSWER_S) -> TopicMetadata:
        """The cluster's description of a topic. Raises NotReachable and OtherCluster.

        The first time the cluster is asked twice. An idempotent client needs a producer id, which it
        requests from a connected broker, and it looks for one with each answer and each half second.
        It drops the connection of the first answer, and reconnects only for the second question. So
        the first record arrives after 85 ms instead of 1,060 ms (measured, 10 ms from the broker).
        """
        try:
            found = self._ask_for(topic, answer_s)
        except KafkaException as error:
            raise NotReachable(f"{self._servers}: {words(error)}") from error
        if not self._asked_twice:
            self._asked_twice = True
            with contextlib.suppress(KafkaException):
                found = self._ask_for(topic, _SECOND_QUESTION_S)
        return found

    def _ask_for(self, topic: str, timeout_s: float) -> TopicMetadata:
        """Raises KafkaException, OtherCluster."""
        assert self._producer is not None
        answer = self._producer.list_topics(topic, timeout=timeout_s)
        self._identity.meet(answer.cluster_id, self._servers)
        found: TopicMetadata = answer.topics[topic]
        return found

    def reader(self, give_up: Callable[[], bool]) -> ReadBack:
        """Reads partitions. give_up: asked now and then. Close it."""
        return ReadBack(self._settings, give_up, self._identity, reads=self._reads_back)
