"""A producer on a Kafka cluster, as the engine's proof needs it: idempotent, gapless, patient
without end. It tells what happens as events, and decides nothing."""

from __future__ import annotations

import contextlib
import json
import logging
import re
import time
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar

from confluent_kafka import KafkaError, KafkaException, Producer

from bridge.config.routing import is_topic_name
from bridge.errors import WrongSetting
from bridge.kafka.admission import Admission
from bridge.kafka.certificate import names_another_host
from bridge.kafka.client import (
    ALL_DOWN,
    ANSWER_S,
    AUTO_CREATE,
    BATCH_BYTES,
    CLIENT_LOG,
    DEFAULTS,
    FIXED,
    MESSAGE_BYTES_MAX,
    NotReachable,
    Refused,
    away,
    broker_of,
    closed_at_once,
    let_go,
    words,
)
from bridge.kafka.error_table import Kind, advice, kind_of
from bridge.kafka.identity import Identity
from bridge.kafka.lane import Refusal
from bridge.kafka.queueing import RowProducer
from bridge.kafka.read_back import ReadBack
from bridge.kafka.stalls import Sent
from bridge.kafka.topic_creation import TopicCreation
from bridge.kafka.topic_settings import TopicSettings

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator

    from confluent_kafka.admin import TopicMetadata  # type: ignore[attr-defined]  # not said so

    from aolog.format.native.speed import Rows
    from bridge.kafka.admission import Bounds
    from bridge.kafka.lane import LaneKey
    from bridge.kafka.messages import Callback
    from bridge.kafka.topic_creation import CreateTopics

__all__ = [
    "Cluster",
    "Delivered",
    "Failed",
    "Forbade",
    "KafkaEvent",
    "Put",
    "check",
    "with_names",
]

Headers: TypeAlias = list[tuple[str, str | bytes | None]]

_log = logging.getLogger("bridge.kafka")
_MEET_S = 1.0  # the second question only saves time
_NAME_WAIT_S = 1.0  # ends with the first that names a lane; it lags behind the error by a moment
_NAME_POLL_S = 0.05
_CERTIFICATE_S = 30.0  # the client is refused each second; to look at the certificate takes a while
_SAY_WHY_S = 0.05  # the client's reasons come a moment after the failure
_CLUSTERID = "CLUSTERID"  # facility of the line that says so (rdkafka_metadata.c), a warning
_WARNING, _INFO = 4, 6  # librdkafka's log_level
_OTHER_NAMES = {  # the client's aliases
    "request.required.acks": "acks",
    "delivery.timeout.ms": "message.timeout.ms",
    "metadata.broker.list": "bootstrap.servers",
}
_NUMBERS = {  # which the bridge reads too: the client takes 1e6 for 1, and 010 for 8
    "batch.size",
    "log_level",
    "message.max.bytes",
    "retry.backoff.max.ms",
    "retry.backoff.ms",
    "transaction.timeout.ms",
}
_NUMBER = re.compile("[1-9][0-9]{0,8}|0")  # what it takes for the same
_SAME = {"acks": {"all", "-1"}}  # changes nothing, so it is accepted
_FOREIGN = ("test.mock.", "transactional.id", "bootstrap.servers")
_CALLBACKS = ("_cb", "on_delivery", "logger")


class _Listening(logging.LoggerAdapter[logging.Logger]):
    """The client's log: there, and nowhere else, it says that another cluster answers, and that a
    broker closes each connection at once."""

    def __init__(self, other: Callable[[], None], broken: Callable[[str], None]) -> None:
        super().__init__(CLIENT_LOG)
        self._other = other
        self._broken = broken

    def log(self, level: int, msg: object, *args: object, **more: Any) -> None:
        """For the client, in the thread that serves it."""
        if args[:1] == ("FAIL",):
            self._broken(str(args[-1]))
        if level >= logging.WARNING and args[:1] == (_CLUSTERID,):  # below, it says its first
            self._other()
        super().log(level, msg, *args, **more)


class Put(NamedTuple):
    """How many were queued, and why the next one can never be, if it cannot. spoiled: nothing more
    is taken, as something failed that a commit will tell."""

    records: int
    refusal: Refusal | None
    spoiled: bool = False


class Delivered(NamedTuple):
    """A marked record is in its partition, and all before it in the lane."""

    lane: LaneKey
    address: int
    offset: int


class Failed(NamedTuple):
    """Something was not delivered. suspect: the cluster refused a request, and it may be for one
    record in it. code: Kafka's name for the reason. lane, address: of the record that reported it,
    where that is known. named: the addresses of the records that the cluster itself names."""

    reason: str
    suspect: bool
    code: str = ""
    lane: LaneKey | None = None
    address: int | None = None
    named: tuple[int, ...] = ()


class Forbade(NamedTuple):
    """The cluster does not know us, does not let us in, or (topic) not into this topic: no retry
    helps until somebody acts. code: Kafka's name for the reason."""

    reason: str
    code: str
    topic: str | None = None


KafkaEvent = Delivered | Failed | Forbade
_Event = TypeVar("_Event")


def with_names(events: Iterable[_Event]) -> list[_Event | Failed]:
    """Of the reports on a refused request one that names the records to blame, where the cluster
    does: then, and only then, it reports others in the same request as innocent."""
    reports: dict[LaneKey, list[Failed]] = {}
    others: list[_Event | Failed] = []
    for event in events:
        if isinstance(event, Failed) and event.lane is not None:
            reports.setdefault(event.lane, []).append(event)
        else:
            others.append(event)
    by_name: list[_Event | Failed] = []
    by_request: list[_Event | Failed] = []
    for of_lane in reports.values():
        guilty = [report for report in of_lane if kind_of(report.code) is Kind.POISON]
        if 0 < len(guilty) < len(of_lane):
            named = tuple(r.address for r in guilty if r.address is not None)
            by_name.append(guilty[0]._replace(named=named))
        else:
            by_request += of_lane
    return others + by_name + by_request


def check(settings: dict[str, str]) -> None:
    """Raises WrongSetting for a setting that the client does not know or that is not ours to
    give. Connects to nothing."""
    for key, value in settings.items():
        name = _OTHER_NAMES.get(key, key)
        if name in FIXED and str(value).lower() not in _SAME.get(name, {str(FIXED[name]).lower()}):
            raise WrongSetting(
                f"{key} is set by the bridge, its guarantees rest on it",
                hint="use --create-topics" if name == AUTO_CREATE else "leave it out",
            )
        if name.startswith(_FOREIGN) or name.endswith(_CALLBACKS):
            raise WrongSetting(f"{key} cannot be set here", hint="leave it out")
        if name in _NUMBERS and not _NUMBER.fullmatch(str(value)):
            raise WrongSetting(
                f"{key} is {value!r}, which is no plain number",
                hint="write up to nine digits, without a sign, a point or a leading zero",
            )
    try:
        Producer({**DEFAULTS, **settings, **FIXED, "log_level": 0}, logger=CLIENT_LOG)
        ReadBack(dict(settings), bool).close()
    except (KafkaException, ValueError, TypeError, AttributeError) as error:
        raise WrongSetting(f"the Kafka client refuses a setting: {words(error)}") from None


class Cluster:
    """A producer and what comes back from it. Not thread-safe: one thread sends and polls.

    settings: librdkafka's, checked before. identity: which cluster it has to be. create_topics:
    see TopicCreation. reads_back: whether readers read records, see ReadBack.
    """

    _statistics_ms = 1_000
    _heeds_others = True

    def __init__(
        self,
        bootstrap_servers: str,
        settings: dict[str, str],
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
        self._generation = 0
        self._careful = False
        self._met = False
        self._naming = False
        self._events: deque[KafkaEvent] = deque()
        self.reachable = False
        self.sent: dict[LaneKey, Sent] = {}  # by the latest statistics, each in a dict of its own
        self._leaders: dict[LaneKey, str] = {}  # the last that was known
        self.last_error: str | None = None
        self._away: str | None = None  # which broker cannot be reached and why, while none is
        self._made_s = 0.0
        self.forbidden: str | None = None
        self._certificates: dict[
            str, tuple[bool, float]
        ] = {}  # see _words: the verdict, and since when
        self._batch_bytes = int(self._settings.get("batch.size", BATCH_BYTES))

    def admission(self) -> Admission:
        """What is known of records before they are sent: at first, by the client's settings."""
        names = ("compression.type", "compression.codec")
        codecs = {str(self._settings.get(name, "none")) for name in names}
        return Admission(
            int(self._settings.get("message.max.bytes", MESSAGE_BYTES_MAX)),
            compresses=codecs != {"none"},
        )

    def topic_settings(self, admission: Admission) -> TopicSettings:
        """Asks for settings of topics."""
        return TopicSettings(self._settings, admission)

    def fit(self, bounds: Iterable[Bounds]) -> None:
        """From the next connection on requests are no larger than these topics take."""
        taken = [min(each.batch_bytes, each.segment_bytes) for each in bounds]
        self._batch_bytes = max(1, min([self._batch_bytes, *taken]))

    # --- producing ----------------------------------------------------------------------------

    def connect(self, *, careful: bool = False) -> None:
        """A new producer; it reaches for the cluster in the background. careful: a refusal is
        looked for, so it is worth waiting until its lane is named."""
        self.disconnect()
        self._careful = careful
        self._make({**FIXED, "batch.size": self._batch_bytes})

    def _make(self, fixed: dict[str, Any]) -> None:
        self._generation += 1
        self._met = False
        self._made_s = time.monotonic()
        self._producer = RowProducer(
            {
                **DEFAULTS,
                **self._settings,
                **fixed,
                "log_level": max(_WARNING, int(self._settings.get("log_level", _INFO))),
                "error_cb": partial(self._on_error, self._generation),
                "stats_cb": self._on_stats,
                "statistics.interval.ms": self._statistics_ms,
            },
            logger=_Listening(
                partial(self._on_other, self._generation),
                partial(self._on_broken, self._generation),
            ),
        )

    def disconnect(self) -> None:
        """What is not delivered is forgotten here; it is in the log. What was told before still
        counts."""
        producer, self._producer = self._producer, None
        self._generation += 1
        self.reachable = False
        if producer is not None:
            let_go(producer)  # what the purged records' callbacks say is ignored
        self._events.clear()

    def reporting(self, lane: LaneKey, address: int) -> Callback:
        """For the record that carries its lane's callback: what it reports is told by `poll`."""
        return partial(self._on_delivery, self._generation, lane, address)

    def put(self, messages: Rows) -> Put:
        """Queues records in order, up to one that can never be sent, or until the queue is full:
        poll and put the rest again. messages: see Messages.part."""
        sent, error = self._queue(messages)
        if error is None:
            return Put(sent, None)
        if kind_of(error.name()) is Kind.POISON:
            return Put(sent, Refusal(error.str(), error.name()))
        if error.code() != KafkaError._FATAL:  # noqa: SLF001 -- a public name
            self._fail(error, None)
        return Put(sent, None)  # the next poll tells why

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
        """Serves the client for a while; what happened."""
        self.serve(timeout_s)
        while self._events:
            yield self._events.popleft()

    def trouble(self, failure: str | None) -> str | None:
        """Why nothing goes on, in words for status; None if it does. failure: what was last done
        for nothing."""
        if self.forbidden is not None:
            return self.forbidden
        if self.reachable:
            return failure
        if self._away is not None:  # says more than a failure that follows from it
            return f"{self._away}; trying again"
        late = self._producer is not None and time.monotonic() - self._made_s > ANSWER_S
        silent = f"{self._servers}: no answer; trying again" if late else None
        return failure or self.last_error or silent

    def unanswered(self, error: Exception) -> str:
        """Why a question was not answered, for status and logs. That the cluster does not let us
        in comes another way than the answer, so it is listened for."""
        self.serve(_SAY_WHY_S)
        self.last_error = self.forbidden or self._away or str(error)
        return self.last_error

    def serve(self, timeout_s: float = 0.0) -> None:
        """Lets the client work through its callbacks; what they say waits for `poll`.

        A fatal error (a gap in what an idempotent producer delivered) is raised by the client's
        poll, once, in the order of the events; what succeeds behind it proves nothing.
        """
        if self._producer is None:
            return
        try:
            self._producer.poll(timeout_s)
        except KafkaException as error:
            if self._named():
                self._events = deque(with_names(self._events))
            else:
                self._fail(error.args[0], None)
            self._generation += 1

    def _named(self) -> bool:
        """Waits for the callback that says which lane's request was refused; whether it came.
        There is none where none of the refused records carries one."""
        assert self._producer is not None
        self._naming = True
        wait_s = _NAME_WAIT_S if self._careful else _NAME_POLL_S
        try:
            for _ in range(int(wait_s / _NAME_POLL_S)):
                with contextlib.suppress(KafkaException):
                    self._producer.poll(_NAME_POLL_S)
                if any(isinstance(event, Failed | Forbade) for event in self._events):
                    return True
        finally:
            self._naming = False
        return False

    def _on_delivery(
        self, generation: int, lane: LaneKey, address: int, error: KafkaError | None, message: Any
    ) -> None:
        if generation != self._generation:
            return
        if error is not None:
            self._fail(error, lane, address)
        elif not self._naming:
            self.reachable = True  # the statistics say so a second later
            offset = message.offset()
            self._events.append(Delivered(lane, address, -1 if offset is None else offset))

    def _on_error(self, generation: int, error: KafkaError) -> None:
        kind = kind_of(error.name())
        if kind is Kind.UNREACHABLE:
            self.last_error = self._away = away(error.str(), self._servers)
        elif error.code() != ALL_DOWN or self.last_error is None:
            # How many are down says less than why one is.
            self.last_error = f"{self._servers}: {error.str()}"
        if generation != self._generation:
            return
        if error.code() == ALL_DOWN and not self._closed_for_idleness:
            self.reachable = False
        if error.fatal() or kind is Kind.LOCKED_OUT:
            self._fail(error, None)
        else:
            _log.debug("%s", error)

    def _on_other(self, generation: int) -> None:
        """The servers lead to another cluster now: what it acknowledges proves nothing, and who
        connects anew is told so."""
        if generation == self._generation and self._heeds_others:
            self._generation += 1
            self._events.append(Failed("another cluster answers", False))

    def _on_broken(self, generation: int, said: str) -> None:
        if generation == self._generation and (broker := closed_at_once(said)) is not None:
            protocol = self._settings.get("security.protocol", "PLAINTEXT")
            self._away = (
                f"{broker}: it closes the connection at once: check security.protocol, which is "
                f"{protocol}; the listener may ask for SASL, or for TLS"
            )

    def _names_another_host(self, broker: str) -> bool:
        now_s = time.monotonic()
        verdict, asked_s = self._certificates.get(broker, (False, -_CERTIFICATE_S))
        if now_s - asked_s >= _CERTIFICATE_S:
            verdict = names_another_host(broker, self._settings)
            self._certificates[broker] = verdict, now_s
        return verdict

    def _words(self, error: KafkaError) -> str:
        """What the client says of it; for a certificate that was refused, the cause where it is
        known."""
        if error.name() == "_SSL" and "certificate verify failed" in error.str():
            broker = broker_of(error.str())
            if broker is not None and self._names_another_host(broker):
                host = broker.rpartition(":")[0]
                return (
                    f"_SSL: {broker}: its certificate is trusted, but does not name the host "
                    f"{host!r}: connect by a name that is in the certificate"
                )
        return f"{error.name()}: {error.str()}: {advice(error.name())}"

    def _fail(self, error: KafkaError, lane: LaneKey | None, address: int | None = None) -> None:
        kind, reason = kind_of(error.name()), f"{error.name()}: {error.str()}"
        if kind is Kind.LOCKED_OUT:
            self.forbidden = self._words(error)
            self._events.append(Forbade(reason, error.name()))
        elif kind is Kind.TOPIC_FORBIDDEN and lane is not None:
            self._events.append(Forbade(reason, error.name(), lane[0]))
        elif lane is None or kind is not Kind.CONSEQUENCE:
            suspect = kind in {Kind.POISON, Kind.NEIGHBOUR}
            self._events.append(Failed(reason, suspect, error.name(), lane, address))

    def _on_stats(self, text: str) -> None:
        told = json.loads(text)
        self._on_brokers(told["brokers"].values())
        self.sent = self._sent_to(told)

    def _sent_to(self, told: dict[str, Any]) -> dict[LaneKey, Sent]:
        """By statistics."""
        nodes = {b["nodeid"]: b for b in told["brokers"].values()}
        return {
            (topic, each["partition"]): self._sent((topic, each["partition"]), each, nodes)
            for topic, of_topic in told["topics"].items()
            for each in of_topic["partitions"].values()
            if each["partition"] >= 0
        }

    def _sent(self, lane: LaneKey, told: dict[str, Any], nodes: dict[int, dict[str, Any]]) -> Sent:
        """A partition whose leader died has none in the statistics: then the last one is named."""
        begun = told["xmit_msgq_cnt"] + told["msgs_inflight"]
        waiting = told["msgq_cnt"] + begun
        number = told["leader"]
        if number >= 0 and (node := nodes.get(number)) is not None:
            self._leaders[lane] = leader = f"{node['nodename']}, node {number}"
            asked = begun > 0 or node["state"] != "UP"
        else:
            leader = f"none, before {self._leaders[lane]}" if lane in self._leaders else "none"
            asked = True
        return Sent(waiting, told["acked_msgid"], leader, asked)

    def _on_brokers(self, brokers: Collection[dict[str, Any]]) -> None:
        if any(b["state"] == "UP" and b["nodeid"] >= 0 for b in brokers):
            self.reachable = True
            self.forbidden = self._away = self.last_error = None
        elif not self._closed_for_idleness:
            self.reachable = False

    @property
    def _closed_for_idleness(self) -> bool:
        """Whether no connection is up only because nothing is sent: brokers and load balancers
        close idle ones. The client connects again within a second or two, and says it if that
        fails."""
        return self._away is None and self._producer is not None and not len(self._producer)

    # --- looking ------------------------------------------------------------------------------

    def partitions(self, topic: str, answer_s: float = ANSWER_S) -> int:
        """How many partitions a topic has; 0 if there is no such topic: `missing` says why, and it
        may have been asked for meanwhile. Raises NotReachable, OtherCluster, and Refused for what
        can be no topic's name."""
        no_name = Refused(f"{topic!r} is no name for a topic", "TOPIC_EXCEPTION")
        if not is_topic_name(topic):
            raise no_name
        found = self._look_for(topic, answer_s)
        if found.error is None:
            self.reachable = True
            self._away = None
            self._creation.found(topic, found)
            return len(found.partitions)
        kind = kind_of(found.error.name())
        if kind is Kind.LOCKED_OUT:
            self._fail(found.error, None)
        if kind is Kind.TOPIC_MISSING:
            self._creation.missing(topic)
            return 0
        if kind is Kind.POISON:
            raise no_name
        if kind is Kind.TOPIC_FORBIDDEN:
            raise Refused(f"topic {topic!r} is not ours to use", found.error.name())
        raise NotReachable(found.error.str())

    def missing(self, topic: str) -> str:
        """Why there is no such topic, in words."""
        return self._creation.reason(topic)

    def _look_for(self, topic: str, answer_s: float = ANSWER_S) -> TopicMetadata:
        """What the cluster says of it. A new client is asked twice: an idempotent one wants an id,
        of a broker that it is connected to, and looks for one with each answer that it gets and
        each half second. What the first answer comes through it drops, and connects anew only to
        ask the second: then the first record arrives after 85 ms instead of 1,060, where a broker
        is 10 ms away (measured). Raises NotReachable, of the first question, and OtherCluster."""
        try:
            found = self._ask_for(topic, answer_s)
        except KafkaException as error:
            raise NotReachable(f"{self._servers}: {words(error)}") from error
        if not self._met:
            self._met = True
            with contextlib.suppress(KafkaException):
                found = self._ask_for(topic, _MEET_S)
        return found

    def _ask_for(self, topic: str, timeout_s: float) -> TopicMetadata:
        """Raises KafkaException, OtherCluster."""
        assert self._producer is not None
        told = self._producer.list_topics(topic, timeout=timeout_s)
        self._identity.meet(told.cluster_id, self._servers)
        found: TopicMetadata = told.topics[topic]
        return found

    def reader(self, give_up: Callable[[], bool]) -> ReadBack:
        """For looking into partitions. give_up: asked now and then. Close it."""
        return ReadBack(self._settings, give_up, self._identity, reads=self._reads_back)
