"""Kafka as a Buffer's provider. Keys go to the partitions that Java's partitioner chooses; messages without
a key go to one partition of each topic.

The client never gives up a message: it would go on with later messages, which would overtake the one
that is sent again. So the timeout is here: when a message has taken too long, its producer ends with
all that it holds, and a new producer sends that again, in order.
"""

from __future__ import annotations

import time
from math import inf
from typing import TYPE_CHECKING, Any, TypeAlias

from confluent_kafka import KafkaError, KafkaException, Producer

from aolog.errors import RecordRefused, UsageError
from bridge.errors import Rejected
from bridge.kafka.client import (
    ALL_DOWN,
    ANSWER_S,
    DEFAULTS,
    FIXED,
    NotReachable,
    away,
    let_go,
    made,
    words,
)
from bridge.kafka.client_queue import QUEUE_KBYTES, over_queue, queue_kbytes_of
from bridge.kafka.error_table import TOO_LARGE, Kind, kind_of
from bridge.kafka.headers import client_headers
from bridge.kafka.lane import Refusal
from bridge.kafka.settings import check
from bridge.kafka.topic_creation import TopicCreation, impossible_name
from bridge.kafka.topic_names import is_topic_name

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from aolog.record import Headers
    from bridge.kafka.topic_creation import CreateTopics

_POLL_S = 0.05
_BY_KEY = -1  # the client chooses the partition
_UNKNOWN = KafkaError(KafkaError._PURGE_INFLIGHT)  # noqa: SLF001 -- a public name

Sendable: TypeAlias = "tuple[str, bytes | None, bytes | None, Headers, int]"
"""A bridge.client.buffer.provider.Message, which this room does not know."""


class KafkaProvider:
    """Sends to a cluster with an idempotent producer.

    settings: librdkafka's. create_topics: "auto": the cluster creates a missing topic, if it allows
    that, with its own defaults (logged); "never": messages wait for it. delivery_s: how long a
    message may take. After that it counts as not delivered, with all messages that are under way.
    Kafka may have taken some of them without acknowledging them: these arrive twice. No message
    arrives for the first time before one that it follows.

    Raises WrongSetting, and UsageError for an invalid time. Connects only in `open`.
    """

    retry_wait_s = 0.2

    def __init__(
        self,
        bootstrap_servers: str,
        settings: dict[str, Any] | None = None,
        *,
        delivery_s: float = 10.0,
        create_topics: CreateTopics = "auto",
    ) -> None:
        if not isinstance(bootstrap_servers, str):
            raise UsageError(
                f"bootstrap_servers is a {type(bootstrap_servers).__name__}",
                hint='name hosts, as "kafka:9092"; the client\'s settings are the second argument',
            )
        check(settings or {})
        if not 0 < delivery_s < inf:
            raise UsageError(f"delivery_s={delivery_s!r}", hint="use a positive number of seconds")
        self._creation = TopicCreation(
            {**(settings or {}), "bootstrap.servers": bootstrap_servers}, create_topics
        )
        self._queue_kbytes = queue_kbytes_of(settings or {})
        self._settings: dict[str, Any] = {
            **DEFAULTS,
            QUEUE_KBYTES: self._queue_kbytes,
            **(settings or {}),
            "partitioner": "murmur2",  # as Java's; messages without a key go to one partition, too
            **FIXED,
            "bootstrap.servers": bootstrap_servers,
            "error_cb": self._on_error,
        }
        self._delivery_s = delivery_s
        self.name = f"Kafka at {bootstrap_servers}"
        self._producer: Producer | None = None
        self._found: set[str] = set()  # topics
        # For each message since the last flush: None: delivered; an error; or, while the outcome
        # is unknown, the time at which it was queued.
        self._outcomes: list[KafkaError | float | None] = []
        self._messages: list[Sendable] = []
        self._open = 0  # messages whose outcome is unknown
        self._late_s = inf  # no message is late before this time
        # Why the first failed message was not delivered, until `flush` reports it.
        self._failed: str | None = None
        # Hashes of messages that were refused in one request: any of them may be the bad one, so
        # each is sent alone.
        self._suspects: set[int] = set()
        self._last_error = "no answer"

    def _on_error(self, error: KafkaError) -> None:
        # ALL_DOWN has no reason; a producer that ends reports only that it was purged.
        if error.code() != ALL_DOWN and self._producer is not None:
            self._last_error = away(error.str(), self._settings["bootstrap.servers"])

    def open(self) -> None:
        """Makes a producer. Raises NotReachable if the cluster does not answer."""
        producer = self._make()
        try:
            producer.list_topics(timeout=ANSWER_S)
        except KafkaException as error:
            failure = words(error)
        else:
            return
        producer.poll(0)  # its callbacks have the reason
        raise NotReachable(f"{failure} ({self._last_error})")

    def _make(self) -> Producer:
        self._producer = made(Producer, self._settings)
        return self._producer

    def _end_producer(self) -> None:
        """Nothing that the producer holds is sent any more, except what is on the wire."""
        producer, self._producer = self._producer, None
        if producer is not None:
            let_go(producer)

    # --- sending ------------------------------------------------------------------------------

    def send(self, message: Sendable) -> None:
        """Queues a message. Raises Rejected, NotReachable, KafkaException."""
        self._check()
        if self._suspects and hash(message) in self._suspects:
            self._send_alone(message)
        else:
            self._queue(message)

    def _send_alone(self, message: Sendable) -> None:
        """Waits for the outcome of a suspect."""
        self._wait()
        self._check()
        self._queue(message)
        self._wait()
        error = self._outcomes[-1]
        if isinstance(error, KafkaError):
            del self._outcomes[-1], self._messages[-1]
            if kind_of(error.name()) is Kind.POISON:
                self._suspects.discard(hash(message))
                self._end_producer()  # the error was fatal
                self._failed = None  # nothing else was under way
                raise Rejected(_words_of(error))
        self._check()  # if it failed, it stays a suspect
        self._suspects.discard(hash(message))

    def _check(self) -> None:
        """Raises NotReachable after a message that failed: a later one would overtake it."""
        if self._failed is not None:
            raise NotReachable(self._failed)

    def _queue(self, message: Sendable) -> None:
        producer, topic = self._producer, message[0]
        if producer is None:  # the last one ended
            producer = self._make()
        if topic not in self._found:
            self._find(producer, topic)
        outcomes, position = self._outcomes, len(self._outcomes)

        def done(error: KafkaError | None, _message: object) -> None:
            outcomes[position] = error
            self._open -= 1
            if error is not None and self._failed is None:
                self._failed = _words_of(error)

        self._produce(producer, message, done)
        now_s = time.monotonic()
        outcomes.append(now_s)
        self._messages.append(message)
        self._open += 1
        if self._open == 1:
            self._late_s = now_s + self._delivery_s
        elif now_s >= self._late_s:
            self._poll()

    def _find(self, producer: Producer, topic: str) -> None:
        """Returns if there is such a topic. Raises Rejected, NotReachable."""
        if not is_topic_name(topic):
            raise Rejected(impossible_name(topic).reason)
        try:
            found = producer.list_topics(topic, timeout=ANSWER_S).topics[topic]
        except KafkaException as error:
            raise NotReachable(words(error)) from None
        partitions = self._creation.partitions(topic, found)
        if isinstance(partitions, Refusal):
            raise (Rejected if partitions.is_poison else NotReachable)(partitions.reason)
        self._found.add(topic)

    def _produce(
        self,
        producer: Producer,
        message: Sendable,
        done: Callable[[KafkaError | None, object], None],
    ) -> None:
        """Puts a message into the client's queue; waits for room. Raises Rejected, NotReachable if
        another message fails meanwhile, and KafkaException, perhaps about other messages."""
        topic, value, key, headers, timestamp_us = message
        try:
            all_headers: Any = list(client_headers(headers)) if headers else []
            why = over_queue(len(value or b""), self._queue_kbytes)
        except (RecordRefused, TypeError) as error:
            raise Rejected(f"the client cannot take the message: {error}") from None
        if why is not None:
            raise Rejected(f"{TOO_LARGE}: {why}")
        while True:
            try:
                producer.produce(
                    topic, value, key, _BY_KEY, done, None,
                    max(1, timestamp_us // 1_000) if timestamp_us else 0, all_headers,
                )  # fmt: skip  # one call
            except BufferError:
                pass
            except KafkaException as error:
                if kind_of(error.args[0].name()) is Kind.POISON:
                    raise Rejected(words(error)) from None
                raise
            except (TypeError, ValueError, OverflowError) as error:
                raise Rejected(f"the client cannot take the message: {error}") from None
            else:
                return
            self._poll()
            self._check()

    # --- outcomes -----------------------------------------------------------------------------

    def _poll(self) -> None:
        """Collects outcomes. After a failed message, drops what is queued. Gives up after a fatal error
        and when a message is late."""
        producer = self._producer
        assert producer is not None
        fatal: str | None = None
        try:
            producer.poll(_POLL_S)
        except KafkaException as error:
            fatal = words(error)
        if fatal is None and self._failed is not None:
            producer.purge(in_flight=False)
        if fatal is None and time.monotonic() >= self._late_s and self._is_late():
            fatal = f"no answer within {self._delivery_s:g} s"
        if fatal is not None:
            self._give_up(fatal)

    def _is_late(self) -> bool:
        """Whether the oldest message without an outcome has taken too long. Sets when it will
        have."""
        times = (outcome for outcome in self._outcomes if isinstance(outcome, float))
        self._late_s = next(times, inf) + self._delivery_s
        return time.monotonic() >= self._late_s

    def _give_up(self, why: str) -> None:
        """Messages without an outcome count as not delivered, and the producer ends."""
        self._failed = self._failed or why
        self._end_producer()
        self._outcomes = [_UNKNOWN if isinstance(each, float) else each for each in self._outcomes]
        self._open = 0

    def _wait(self) -> None:
        """Until every outcome is known, for little more than `delivery_s`."""
        while self._open:
            self._poll()

    def flush(self) -> Mapping[int, str]:
        """Positions of messages that were not delivered, and why. After a failure, a new producer sends."""
        self._wait()
        outcomes, messages, why = self._outcomes, self._messages, self._failed
        failed = {i: each for i, each in enumerate(outcomes) if isinstance(each, KafkaError)}
        refused = {
            hash(messages[i]) for i, error in failed.items() if kind_of(error.name()) is Kind.POISON
        }
        if refused:  # otherwise keep those that are known
            self._suspects = refused
        if why is not None:
            self._end_producer()
        self._forget()
        return {
            i: why if why and kind_of(e.name()) is Kind.CONSEQUENCE else _words_of(e)
            for i, e in failed.items()
        }

    def close(self) -> None:
        """Ends the producer and forgets what it has not delivered."""
        self._end_producer()
        self._found.clear()
        self._forget()

    def _forget(self) -> None:
        self._outcomes, self._messages, self._open, self._failed = [], [], 0, None


def _words_of(error: KafkaError) -> str:
    return f"{error.name()}: {error.str()}"
