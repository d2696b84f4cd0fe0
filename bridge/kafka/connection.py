"""Connection: a client of one Kafka cluster, whether it is reachable and why not, what it has not delivered, and
questions about topics. Producers have one, and tell it what to send; it decides nothing."""

from __future__ import annotations

import contextlib
import json
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, NamedTuple
from weakref import ref

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import TopicMetadata  # type: ignore[attr-defined]  # not said so

from bridge.errors import Unanswered
from bridge.kafka.admission import INVALID_TIMESTAMP, Admission
from bridge.kafka.client import (
    ALL_DOWN,
    ANSWER_S,
    BATCH_BYTES,
    DEFAULTS,
    ListeningLog,
    advertised,
    away,
    broker_of,
    let_go,
    made,
    words,
)
from bridge.kafka.client_limits import MESSAGE_BYTES_MAX, QUEUE_KBYTES, queue_kbytes_of
from bridge.kafka.error_table import Kind, advice, kind_of
from bridge.kafka.events import Failed, Put
from bridge.kafka.identity import Identity
from bridge.kafka.lane import LaneKey, Refusal, is_topic_name
from bridge.kafka.messages import MessageRows
from bridge.kafka.queueing import RowProducer
from bridge.kafka.read_back import ReadBack
from bridge.kafka.stalls import Sent, any_up, connecting_to, lanes_of
from bridge.kafka.telemetry import note_brokers
from bridge.kafka.topic_creation import CreateTopics, TopicCreation, impossible_name
from bridge.kafka.topic_settings import TopicSettings

_log = logging.getLogger("bridge.kafka")
_SECOND_QUESTION_S = 1.0  # it only saves time
_REASON_WAIT_S = 0.05  # the client gives its reasons a moment after the failure
_WARNING, _INFO = 4, 6  # librdkafka's log_level


class Listener(NamedTuple):
    """What a connection tells its owner."""

    failed: Callable[[KafkaError], None]  # an error that ends what the owner has under way
    # The client's fatal error: poll raises it once; what is reported after this call does not count.
    fatal: Callable[[KafkaError], None]
    other_cluster: Callable[[], None] | None = None  # another cluster answers; if it matters
    # What becomes of `Connection.sent` with new statistics.
    sent: Callable[[Mapping[str, Any], dict[LaneKey, Sent]], dict[LaneKey, Sent]] = lambda _, s: s


class Terms(NamedTuple):
    """How a cluster is used."""

    identity: Identity | None = None  # which cluster it has to be; None: any
    create_topics: CreateTopics = "never"  # see TopicCreation
    reads_back: bool = True  # whether `Connection.reader` reads records, see ReadBack
    answer_s: float = ANSWER_S  # a cluster that takes longer counts as unreachable
    take_over_s: float = ANSWER_S  # of a transactional producer, see Ownership


USUAL_TERMS = Terms()


class Connection:
    """A client and its cluster. Not thread-safe: one thread sends and polls. settings: checked before."""

    def __init__(
        self,
        bootstrap_servers: str,
        settings: dict[str, Any],
        listener: Listener,
        terms: Terms = USUAL_TERMS,
    ) -> None:
        self.settings: dict[str, Any] = {"bootstrap.servers": bootstrap_servers, **settings}
        self.servers = bootstrap_servers
        self.identity = terms.identity or Identity()
        self._listener = listener
        self._terms = terms
        self._creation = TopicCreation(self.settings, terms.create_topics)
        self.client: RowProducer | None = None
        self.generation = 0  # of the client: what an earlier one reports is ignored
        self._asked_twice = False
        self.reachable = False  # whether a broker is connected
        # What each partition has not acknowledged, by the latest statistics; a new mapping each second.
        self.sent: dict[LaneKey, Sent] = {}
        self._leaders: dict[LaneKey, str] = {}  # the last known ones
        self.last_error: str | None = None  # the latest reason why no broker is connected
        self.forbidden: str | None = None  # why the cluster does not accept the bridge
        self._away: str | None = None  # which broker cannot be reached and why, while none is
        self._silent: str | None = None  # which broker gives no answer, while none is connected
        self._was_up = False  # whether this client was connected to a broker
        self._queued = 0  # records in this client's queue, by the last statistics
        self._made_s = 0.0
        self._batch_bytes = int(self.settings.get("batch.size", BATCH_BYTES))
        names = ("compression.type", "compression.codec")
        codecs = {str(self.settings.get(name, "none")) for name in names}
        self.queue_kbytes = queue_kbytes_of(self.settings)
        # Judges records before they are sent; at first by the client's settings alone.
        self.admission = Admission(
            int(self.settings.get("message.max.bytes", MESSAGE_BYTES_MAX)),
            self.queue_kbytes,
            compresses=codecs != {"none"},
        )
        self.topic_settings = TopicSettings(self.settings, self.admission)

    def learn(self, topics: Iterable[str]) -> bool:
        """After a refusal: asks for the limits of these topics; whether any are new. From the next
        connection on, requests are no larger than they take."""
        bounds = self.topic_settings.learn(topics)
        taken = [min(each.batch_bytes, each.segment_bytes) for each in bounds]
        self._batch_bytes = max(1, min([self._batch_bytes, *taken]))
        return bool(bounds)

    def refused_alone(self, event: Failed, waited_s: float) -> None:
        """A record was refused, alone in its request, this long after it was sent. Others may be, too."""
        if event.code == INVALID_TIMESTAMP and event.lane and event.time_ms is not None:
            sent_ms = int((time.time() - waited_s) * 1_000)
            self.admission.times.note(event.lane, event.time_ms, sent_ms=sent_ms)

    # --- the client -----------------------------------------------------------------------------

    def open(self, fixed: dict[str, Any], *, reports: bool = False) -> None:
        """Makes a new client, which connects in the background. fixed: settings that no user's replaces. reports:
        see RowProducer."""
        self.close()
        self._asked_twice = self._was_up = False
        self._queued = 0
        self._made_s = time.monotonic()
        self.client = made(
            partial(RowProducer, reports=reports),
            {
                **DEFAULTS,
                QUEUE_KBYTES: self.queue_kbytes,
                **self.settings,
                "batch.size": self._batch_bytes,
                "statistics.interval.ms": 1_000,
                **fixed,
                "log_level": max(_WARNING, int(self.settings.get("log_level", _INFO))),
                "error_cb": partial(self._on_error, self.generation),
                "stats_cb": partial(self._on_stats, self.generation, {}),
            },
            ListeningLog(
                partial(self._on_other_cluster, self.generation),
                partial(self._on_closed, self.generation),
            ),
        )

    @property
    def opened(self) -> RowProducer:
        """The client, after `open`."""
        assert self.client is not None
        return self.client

    def close(self) -> bool:
        """Drops the client and what it has not delivered, which is still in the log. Whether the client reads no
        value of a message any more."""
        client, self.client = self.client, None
        self.retire()
        self.reachable = False
        if client is None:
            return True
        is_empty = let_go(client)  # the callbacks of purged records are ignored
        left = ref(client)
        del client  # its threads have ended then, unless something else refers to it
        return is_empty or left() is None

    def retire(self) -> None:
        """What the present client reports from now on does not count."""
        self.generation += 1

    def acknowledged(self) -> None:
        """A broker has acknowledged something; the statistics show that it is connected a second later."""
        self.reachable = self._was_up = True

    def answered(self) -> None:
        """A broker answers: no trouble is left."""
        self.acknowledged()
        self.forbidden = self._away = self._silent = self.last_error = None

    def put(self, messages: MessageRows, *, later: int) -> Put:
        """Queues records in order, up to one that can never be sent, while there is room. later: see not_queued."""
        first = messages.at
        try:
            self.opened.put(messages)
        except BufferError:
            pass
        except KafkaException as failure:
            return self.not_queued(failure.args[0], messages.at - first, later=later)
        return Put(messages.at - first, None)

    def not_queued(self, error: KafkaError, sent: int, *, later: int) -> Put:
        """After so many records, one was not queued. later: the code of an error whose cause is reported later."""
        if kind_of(error.name()) is Kind.POISON:
            return Put(sent, Refusal(error.str(), error.name()))
        if error.code() == later:
            return Put(sent, None, spoiled=True)
        self._listener.failed(error)
        return Put(sent, None)

    def serve(self, timeout_s: float = 0.0) -> None:
        """Runs the client's callbacks."""
        if self.client is None:
            return
        fatal: KafkaError | None = None
        try:
            self.client.poll(timeout_s)
        except KafkaException as error:
            fatal = error.args[0]
        if fatal is not None:
            self._listener.fatal(fatal)
            self.retire()

    # --- whether it is reachable ----------------------------------------------------------------

    def trouble(self, failure: str | None) -> str | None:
        """Why nothing is delivered; None if something is. failure: the delivery's own latest failure."""
        if self.forbidden is not None:
            return self.forbidden
        if self.reachable:
            return failure
        if self._away is not None:  # says more than a failure that follows from it
            return f"{self._away}; trying again"
        late = self.client is not None and time.monotonic() - self._made_s > self._terms.answer_s
        if late and self._silent is not None:
            return f"{self._silent}; trying again"
        silent = f"{self.servers}: no answer; trying again" if late else None
        return failure or self.last_error or silent

    def unanswered(self, reason: str) -> str:
        """Why a question was not answered. Serves the client's callbacks first: the reason reaches them."""
        self.serve(_REASON_WAIT_S)
        self.last_error = self.forbidden or self._away or self._silent or reason
        return self.last_error

    def _on_error(self, generation: int, error: KafkaError) -> None:
        if broker_of(error.str()) is not None:
            self.last_error = self._away = away(error.str(), self.servers)
        elif error.code() != ALL_DOWN or self.last_error is None:
            # Why one broker is down is worth more than how many are.
            self.last_error = f"{self.servers}: {error.str()}"
        if generation != self.generation:
            return
        if error.code() == ALL_DOWN and not self._closed_for_idleness:
            self.reachable = False
        if error.fatal() or kind_of(error.name()) is Kind.LOCKED_OUT:
            self._listener.failed(error)
        else:
            _log.debug("%s", error)

    def _on_other_cluster(self, generation: int) -> None:
        """What another cluster acknowledges proves nothing. The next connection names it."""
        if generation == self.generation and self._listener.other_cluster is not None:
            self.retire()
            self._listener.other_cluster()

    def _on_closed(self, generation: int, broker: str) -> None:
        if generation == self.generation:
            protocol = self.settings.get("security.protocol", "PLAINTEXT")
            self._away = (
                f"{broker}: it closes the connection at once: check security.protocol, which is "
                f"{protocol}; the listener may expect SASL or TLS{advertised(broker, self.servers)}"
            )

    def locked_out(self, error: KafkaError) -> str:
        """Notes why the cluster does not accept the bridge, and returns that."""
        self.forbidden = f"{error.name()}: {error.str()}: {advice(error.name())}"
        return self.forbidden

    def _on_stats(self, generation: int, retries: dict[str, int], text: str) -> None:
        """retries: of this client, by broker; updated."""
        if generation != self.generation:
            return
        statistics = json.loads(text)
        self._queued = statistics["msg_cnt"]
        if any_up(statistics):
            self.answered()
        elif not self._closed_for_idleness:
            self.reachable = False
            if (broker := connecting_to(statistics)) is not None:
                self._silent = f"{broker}: no answer{advertised(broker, self.servers)}"
        self.sent = self._listener.sent(statistics, lanes_of(statistics, self._leaders))
        note_brokers(statistics, retries)

    @property
    def _closed_for_idleness(self) -> bool:
        """Whether no broker is connected only because nothing is sent: brokers and load balancers close idle
        connections. The client reconnects within a second or two, and reports an error if that fails."""
        return self._was_up and self._away is None and not self._queued

    # --- questions ----------------------------------------------------------------------------

    def partitions(self, topic: str, answer_s: float | None = None) -> int | Refusal:
        """How many partitions a topic has, or why it cannot be used: see TopicCreation. Otherwise as look_for."""
        if not is_topic_name(topic):
            return impossible_name(topic)
        found = self.look_for(topic, answer_s)
        if found.error is None:
            # A bootstrap server answers also where no broker can be reached that it advertises.
            self.reachable = self.reachable or (self._away is None and self._silent is None)
        elif kind_of(found.error.name()) is Kind.LOCKED_OUT:
            self._listener.failed(found.error)
        return self._creation.partitions(topic, found)

    def look_for(self, topic: str, answer_s: float | None = None) -> TopicMetadata:
        """The cluster's description of a topic. answer_s: how long to wait for it; None: the usual. Raises
        Unanswered and OtherCluster.

        The first time the cluster is asked twice. An idempotent client needs a producer id, which it
        requests from a connected broker, and it looks for one with each answer and each half second.
        It drops the connection of the first answer, and reconnects only for the second question. So
        the first record arrives after 85 ms instead of 1,060 ms (measured, 10 ms from the broker)."""
        try:
            found = self._ask_for(topic, self._terms.answer_s if answer_s is None else answer_s)
        except KafkaException as error:
            raise Unanswered(f"{self.servers}: {words(error)}") from error
        if not self._asked_twice:
            self._asked_twice = True
            with contextlib.suppress(KafkaException):
                found = self._ask_for(topic, _SECOND_QUESTION_S)
        return found

    def _ask_for(self, topic: str, timeout_s: float) -> TopicMetadata:
        """Raises KafkaException, OtherCluster."""
        answer = self.opened.list_topics(topic, timeout=timeout_s)
        self.identity.meet(answer.cluster_id, self.servers)
        found: TopicMetadata = answer.topics[topic]
        return found

    def reader(self, give_up: Callable[[], bool], lane_answer_s: float | None = None) -> ReadBack:
        """Reads partitions. give_up: asked now and then. lane_answer_s: see ReadBack. Close it."""
        terms = self._terms
        return ReadBack(
            self.settings, give_up, self.identity,
            reads=terms.reads_back, answer_s=terms.answer_s, lane_answer_s=lane_answer_s,
        )  # fmt: skip  # one call
