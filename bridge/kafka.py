"""The one module that speaks to a Kafka cluster as a client.

It makes the producer that the engine's proof needs (idempotent, gapless, patient without end),
tells what happens as events, and reads partitions back. It decides nothing.

Found with confluent-kafka 2.16: positional arguments of `produce` are markedly faster than
keywords; `produce_batch` drops headers and partitions silently and is not used; a delivery
report has no headers, so what a callback stands for is bound to it.
"""

from __future__ import annotations

import contextlib
import json
import logging
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from bridge.errors import WrongSetting
from bridge.stamp import decode_stamp

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from bridge.engine import LaneKey

__all__ = [
    "Arrived",
    "Cluster",
    "Delivered",
    "Failed",
    "Forbade",
    "KafkaEvent",
    "NotReachable",
    "ReadBack",
    "Refused",
    "TopicReader",
    "check",
]

_log = logging.getLogger("bridge.kafka")
CLIENT_LOG = logging.getLogger("bridge.librdkafka")
CLIENT_LOG.addHandler(logging.NullHandler())  # an outage fills pages: shown only on request

# What the guarantees rest on; a user's setting for one of these is refused.
FIXED: dict[str, object] = {
    "enable.idempotence": True,  # a retry is neither stored twice nor out of order
    "enable.gapless.guarantee": True,  # nothing behind a record that failed is delivered
    "acks": "all",
    "message.timeout.ms": 0,  # an outage has no end; other values leave silent gaps
}
_DEFAULTS: dict[str, object] = {
    "linger.ms": 5,
    # An idempotent producer has one request in flight a partition (measured), so a partition's
    # rate is the request's size over the round trip: as large as brokers take by default.
    "batch.size": 1_000_000,
    "queue.buffering.max.messages": 100_000,
    "queue.buffering.max.kbytes": 65_536,  # bounds memory while a backlog drains
    "retry.backoff.ms": 100,
    "retry.backoff.max.ms": 1_000,
    "reconnect.backoff.ms": 50,
    "reconnect.backoff.max.ms": 1_000,  # a cluster that comes back is seen within a second
    "socket.keepalive.enable": True,
    "client.id": "aolog-bridge",
}
_CAREFUL: dict[str, object] = {
    "batch.num.messages": 1,
    "linger.ms": 0,
    "max.in.flight.requests.per.connection": 1,
}
ANSWER_S = 5.0  # how long a question may take before the cluster counts as out of reach
_NAME_WAIT_S = 1.0  # ends with the first callback; it may lag behind the error by a moment
_PURGE_POLLS = 20  # a second at most; what is left then goes with the producer
_OTHER_NAMES = {  # the client's aliases
    "request.required.acks": "acks",
    "delivery.timeout.ms": "message.timeout.ms",
    "metadata.broker.list": "bootstrap.servers",
}
_FOREIGN = ("test.mock.", "transactional.id", "bootstrap.servers")
_CALLBACKS = ("_cb", "on_delivery", "logger")
CONSUMER_ONLY = {"linger.ms", "compression.type", "compression.codec"}

# Found in no partition however long one waits: the record or the rights are wrong.
NEVER = {
    KafkaError.MSG_SIZE_TOO_LARGE,
    KafkaError.INVALID_RECORD,
    KafkaError.TOPIC_EXCEPTION,
    KafkaError.RECORD_LIST_TOO_LARGE,
    KafkaError.INVALID_TIMESTAMP,
}
NO_TOPIC = {
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError._UNKNOWN_TOPIC,  # noqa: SLF001 -- the library's public names begin so
}
FORBIDDEN = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError.SASL_AUTHENTICATION_FAILED,
    KafkaError._AUTHENTICATION,  # noqa: SLF001 -- the library's public names begin so
    KafkaError._SSL,  # noqa: SLF001 -- as above
}


class NotReachable(Exception):
    """The cluster did not answer, or not yet as it will. Try again later."""


class Refused(Exception):
    """The client itself will never send the record."""


class Delivered(NamedTuple):
    """A marked record is in its partition, and all before it in the lane."""

    lane: LaneKey
    address: int
    offset: int


class Failed(NamedTuple):
    """Something was not delivered. suspect: the cluster refused a request, and it may be for one
    record in it. address: of the refused record, where it is known (in careful mode)."""

    reason: str
    suspect: bool
    address: int | None


class Forbade(NamedTuple):
    """The cluster does not know us or does not let us: no retry helps until somebody acts."""

    reason: str


KafkaEvent = Delivered | Failed | Forbade


def check(settings: dict[str, str]) -> None:
    """Raises WrongSetting for a setting that the client does not know or that is not ours to
    give. Connects to nothing."""
    for key in settings:
        name = _OTHER_NAMES.get(key, key)
        if name in FIXED:
            raise WrongSetting(
                f"{key} is set by the bridge, its guarantees rest on it", hint="leave it out"
            )
        if name.startswith(_FOREIGN) or name.endswith(_CALLBACKS):
            raise WrongSetting(f"{key} cannot be set here", hint="leave it out")
    try:
        Producer({**_DEFAULTS, **settings, **FIXED, "log_level": 0}, logger=CLIENT_LOG)
        ReadBack(dict(settings), bool).close()
    except (KafkaException, ValueError, TypeError, AttributeError) as error:
        raise WrongSetting(f"the Kafka client refuses a setting: {words(error)}") from None


def words(error: Exception) -> str:
    first = error.args[0] if error.args else error
    return first.str() if isinstance(first, KafkaError) else str(first)


class Cluster:
    """A producer and what comes back from it. Not thread-safe: one thread sends and polls.

    settings: librdkafka's, checked before.
    """

    def __init__(self, bootstrap_servers: str, settings: dict[str, str]) -> None:
        self._settings: dict[str, Any] = {"bootstrap.servers": bootstrap_servers, **settings}
        self._producer: Producer | None = None
        self._generation = 0
        self._careful = False
        self._events: deque[KafkaEvent] = deque()
        self.reachable = False
        self.last_error: str | None = None

    # --- producing ----------------------------------------------------------------------------

    def connect(self, *, careful: bool = False) -> None:
        """A new producer; it reaches for the cluster in the background. careful: one record a
        request, one request at a time, so that a refusal names its record."""
        self.disconnect()
        self._careful = careful
        self._make({**FIXED, **(_CAREFUL if careful else {})})

    def _make(self, fixed: dict[str, Any]) -> None:
        self._generation += 1
        self._producer = Producer(
            {
                **_DEFAULTS,
                **self._settings,
                **fixed,
                "error_cb": partial(self._on_error, self._generation),
                "stats_cb": self._on_stats,
                "statistics.interval.ms": 1_000,
            },
            logger=CLIENT_LOG,
        )

    def disconnect(self) -> None:
        """What is not delivered is forgotten here; it is in the log. What was told before still
        counts."""
        producer, self._producer = self._producer, None
        self._generation += 1
        self.reachable = False
        if producer is not None:
            # Purged first: after a fatal error what is in flight would never leave the queue.
            # Not flushed: with a fatal error pending, flush runs callbacks in a state in which
            # they fail. What the purged records' callbacks say is ignored.
            with contextlib.suppress(KafkaException):
                producer.purge()
            for _ in range(_PURGE_POLLS):
                if not len(producer):
                    break
                with contextlib.suppress(KafkaException, SystemError):
                    producer.poll(0.05)
        self._events.clear()

    def send(
        self,
        lane: LaneKey,
        value: bytes | None,
        key: bytes | None,
        timestamp_ms: int,
        headers: list[tuple[str, str | bytes | None]],
        mark: int | None,
    ) -> bool:
        """Queues a record; False if the queue is full: poll and send it again. mark: its address
        if it carries its lane's callback. Raises Refused for what can never be sent."""
        assert self._producer is not None
        callback = (
            None if mark is None else partial(self._on_delivery, self._generation, lane, mark)
        )
        try:
            self._producer.produce(
                lane[0], value, key, lane[1], callback, None, timestamp_ms, headers
            )
        except BufferError:
            return False
        except KafkaException as error:
            code = error.args[0].code()
            if code in NEVER:
                raise Refused(words(error)) from error
            if code != KafkaError._FATAL:  # noqa: SLF001 -- a public name
                self._fail(error.args[0], None)
            return False  # the next poll tells why
        return True

    def poll(self, timeout_s: float) -> Iterator[KafkaEvent]:
        """Serves the client for a while; what happened."""
        self.serve(timeout_s)
        while self._events:
            yield self._events.popleft()

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
            if self._careful:  # the refused record's own callback names it: it comes at once
                with contextlib.suppress(KafkaException):
                    self._producer.poll(_NAME_WAIT_S)
            self._fail(error.args[0], None)
            self._generation += 1

    def _on_delivery(
        self, generation: int, lane: LaneKey, address: int, error: KafkaError | None, message: Any
    ) -> None:
        if generation != self._generation:
            return
        if error is None:
            offset = message.offset()
            self._events.append(Delivered(lane, address, -1 if offset is None else offset))
        else:
            self._fail(error, address)

    def _on_error(self, generation: int, error: KafkaError) -> None:
        self.last_error = error.str()
        if generation != self._generation:
            return
        if error.code() == KafkaError._ALL_BROKERS_DOWN:  # noqa: SLF001 -- a public name
            self.reachable = False
        if error.fatal() or error.code() in FORBIDDEN:
            self._fail(error, None)
        else:
            _log.debug("%s", error)

    def _fail(self, error: KafkaError, address: int | None) -> None:
        code, reason = error.code(), f"{error.name()}: {error.str()}"
        if code in FORBIDDEN:
            self._events.append(Forbade(reason))
            return
        refused = code in NEVER
        gap = code == KafkaError._GAPLESS_GUARANTEE  # noqa: SLF001 -- a public name
        known = address if refused and self._careful else None
        self._events.append(Failed(reason, refused or gap, known))

    def _on_stats(self, text: str) -> None:
        brokers = json.loads(text)["brokers"].values()
        up = [b for b in brokers if b["state"] == "UP" and b["nodeid"] >= 0]
        self.reachable = bool(up)

    # --- looking ------------------------------------------------------------------------------

    def partitions(self, topic: str) -> int:
        """How many partitions a topic has; 0 if there is no such topic (asking may create it).
        Raises NotReachable, and Refused for what can be no topic's name."""
        assert self._producer is not None
        try:
            found = self._producer.list_topics(topic, timeout=ANSWER_S).topics[topic]
        except KafkaException as error:
            raise NotReachable(words(error)) from error
        if found.error is None:
            self.reachable = True
            return len(found.partitions)
        if found.error.code() in FORBIDDEN:
            self._fail(found.error, None)
        if found.error.code() in NO_TOPIC:
            return 0
        if found.error.code() == KafkaError.TOPIC_EXCEPTION:
            raise Refused(f"{topic!r} is no name for a topic")
        raise NotReachable(found.error.str())

    def reader(self, give_up: Callable[[], bool]) -> ReadBack:
        """For looking into partitions. give_up: asked now and then. Close it."""
        return ReadBack(self._settings, give_up)


class ReadBack:
    """Looks into destination partitions: their ends, and our stamps in them. No group is joined
    and nothing is committed."""

    def __init__(self, settings: dict[str, Any], give_up: Callable[[], bool]) -> None:
        self._give_up = give_up
        kept = {k: v for k, v in settings.items() if k not in CONSUMER_ONLY}
        self._consumer = Consumer(
            {
                **kept,
                "group.id": "aolog-bridge-read-back",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_uncommitted",
                "fetch.wait.max.ms": 50,
            },
            logger=CLIENT_LOG,
        )

    def partitions(self, topic: str) -> int:
        """How many partitions a topic has; 0 if there is no such topic, and none is created.
        Raises NotReachable."""
        try:
            found = self._consumer.list_topics(topic, timeout=ANSWER_S).topics[topic]
        except KafkaException as error:
            raise NotReachable(words(error)) from error
        if found.error is not None and found.error.code() not in NO_TOPIC:
            raise NotReachable(found.error.str())
        return len(found.partitions)

    def ends(self, lane: LaneKey) -> tuple[int, int]:
        """(first offset, offset behind the last). Raises NotReachable."""
        self._mind(lane)
        try:
            found = self._consumer.get_watermark_offsets(TopicPartition(*lane), timeout=ANSWER_S)
        except KafkaException as error:
            raise NotReachable(words(error)) from error
        if found is None:
            raise NotReachable(f"no answer for the ends of {lane[0]}/{lane[1]}")
        return int(found[0]), int(found[1])

    def last_stamp(
        self, lane: LaneKey, source: bytes, begin: int, end: int, below: int
    ) -> int | None:
        """The greatest address stamped by `source` in [begin, end); None if there is none.
        Records of strangers are passed over. Raises NotReachable if nothing comes for so long,
        and where it is to give up."""
        greatest: int | None = None
        at = begin
        patience_s = ANSWER_S * 2
        self._consumer.assign([TopicPartition(*lane, begin)])
        try:
            while at < end:
                messages = self._consumer.consume(min(10_000, end - at), timeout=0.2)
                self._mind(lane)
                if not messages:
                    patience_s -= 0.2
                    if patience_s <= 0:
                        raise NotReachable(f"{lane[0]}/{lane[1]} could not be read back")
                    at = max(at, self._position(lane))
                for message in messages:
                    if message.error() is not None:
                        continue
                    at = (message.offset() or 0) + 1
                    stamp = decode_stamp(message.headers()) if at <= end else None
                    if stamp is not None and stamp.topic_uuid == source and stamp.address < below:
                        greatest = max(stamp.address, -1 if greatest is None else greatest)
        except KafkaException as error:
            raise NotReachable(words(error)) from error
        finally:
            self._consumer.unassign()
        return greatest

    def _mind(self, lane: LaneKey) -> None:
        """Raises where it is to give up: many lanes, or a long one, take long."""
        if self._give_up():
            raise NotReachable(f"told to stop before {lane[0]}/{lane[1]} was read back")

    def _position(self, lane: LaneKey) -> int:
        """Where the consumer stands: behind control records, which are not handed out."""
        (found,) = self._consumer.position([TopicPartition(*lane)])
        return int(found.offset)

    def close(self) -> None:
        """Leaves the cluster."""
        self._consumer.close()


class Arrived(NamedTuple):
    """A message as a consumer sees it."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]
    timestamp_ms: int


class TopicReader:
    """All of a topic from its begin, while it grows: an independent consumer, for the demo."""

    def __init__(self, bootstrap_servers: str, topic: str, partitions: int) -> None:
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap_servers,
                "group.id": "aolog-bridge-demo",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",  # what the broker dropped is not to be passed over
                "fetch.wait.max.ms": 20,
                "reconnect.backoff.max.ms": 500,
            },
            logger=CLIENT_LOG,
        )
        self._consumer.assign([TopicPartition(topic, p, 0) for p in range(partitions)])

    def poll(self, timeout_s: float) -> list[Arrived]:
        """What has arrived since; perhaps nothing."""
        arrived = []
        for message in self._consumer.consume(5_000, timeout=timeout_s):
            error = message.error()
            if error is not None:
                if error.code() == KafkaError._AUTO_OFFSET_RESET:  # noqa: SLF001 -- a public name
                    raise NotReachable(error.str())
                continue
            headers: Any = message.headers() or []
            key: Any = message.key()
            value: Any = message.value()
            arrived.append(
                Arrived(
                    message.partition() or 0,
                    message.offset() or 0,
                    key,
                    value,
                    headers,
                    message.timestamp()[1],
                )
            )
        return arrived

    def close(self) -> None:
        """Leaves the cluster."""
        self._consumer.close()
