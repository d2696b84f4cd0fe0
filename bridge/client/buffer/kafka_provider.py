"""Kafka as a Buffer's provider. Keys go to the partitions that Java's partitioner chooses; messages without
a key go to one partition of each topic.

The client never gives up a message: it would go on with later messages, which would overtake the one
that is sent again. So the timeout is here: when a message has taken too long, its producer ends with
all that it holds, and a new producer sends that again, in order.
"""

from __future__ import annotations

import time
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any, TypeAlias

from confluent_kafka import KafkaError, KafkaException

from aolog.errors import RecordRefused, UsageError
from bridge.errors import Rejected, Unanswered
from bridge.kafka.client import (
    ALL_DOWN,
    ANSWER_S,
    DEFAULTS,
    FIXED,
    away,
    let_go,
    made,
    words,
)
from bridge.kafka.client_queue import QUEUE_KBYTES, over_queue, queue_kbytes_of
from bridge.kafka.error_table import TOO_LARGE, Kind, kind_of
from bridge.kafka.headers import client_headers
from bridge.kafka.lane import Refusal
from bridge.kafka.queueing import RowProducer
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

_Content: TypeAlias = "tuple[str, bytes | None, bytes | None]"  # topic, value, key; None if empty
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
        self._value_bytes_max = self._queue_kbytes * 1024
        self._settings: dict[str, Any] = {
            **DEFAULTS,
            "linger.ms": 1,  # a flush waits for it
            QUEUE_KBYTES: self._queue_kbytes,
            **(settings or {}),
            "partitioner": "murmur2",  # as Java's; messages without a key go to one partition, too
            **FIXED,
            # A message has no report if it was delivered: a Python call for each would take as long as
            # sending it. What the client has no report on, and no longer has, was delivered.
            "delivery.report.only.error": True,
            "bootstrap.servers": bootstrap_servers,
            "error_cb": self._on_error,
        }
        self._delivery_s = delivery_s
        self.name = f"Kafka at {bootstrap_servers}"
        self._producer: RowProducer | None = None
        self._queue_plain: Callable[..., bool] | None = None  # the producer's
        self._found: set[str] = set()  # topics
        # Of each message since the last flush: itself, and when it was queued.
        self._messages: list[Sendable] = []
        self._times_s: list[float] = []
        self._late_s = inf  # no message is late before this time
        # The reports on messages that failed, in their order: topic, value and key, and the error.
        self._reports: list[tuple[_Content, KafkaError]] = []
        self._report = partial(self._on_report, self._reports)
        self._unreported = False  # a producer ended before it reported on all of its messages
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
        """Makes a producer. Raises Unanswered if the cluster does not answer."""
        producer = self._make()
        try:
            producer.list_topics(timeout=ANSWER_S)
        except KafkaException as error:
            failure = words(error)
        else:
            return
        producer.poll(0)  # its callbacks have the reason
        raise Unanswered(f"{failure} ({self._last_error})")

    def _make(self) -> RowProducer:
        producer = self._producer = made(partial(RowProducer, reports=True), self._settings)
        self._queue_plain = producer.queue_plain
        return producer

    def _end_producer(self) -> None:
        """Nothing that the producer holds is sent any more, except what is on the wire."""
        producer, self._producer, self._queue_plain = self._producer, None, None
        if producer is not None:
            let_go(producer)
            self._take_failures(producer)
            self._unreported = self._unreported or len(producer) > 0

    # --- sending ------------------------------------------------------------------------------

    def send(self, message: Sendable) -> None:
        """Queues a message. Raises Rejected, Unanswered, KafkaException."""
        topic, value, key, headers, timestamp_us = message
        queue = self._queue_plain
        taken = (
            queue is not None
            and self._failed is None
            and not self._suspects
            and not headers
            and topic in self._found
            and queue(topic, value, key, timestamp_us // 1_000 or (1 if timestamp_us else 0))
        )
        if not taken:
            self._check()  # a later message would overtake one that failed
            if self._suspects and hash(message) in self._suspects:
                self._send_alone(message)
                return
            self._queue(message)
        now_s = time.monotonic()
        if not self._messages:
            self._late_s = now_s + self._delivery_s
        self._messages.append(message)
        self._times_s.append(now_s)
        if now_s >= self._late_s:
            self._poll()

    def _send_alone(self, message: Sendable) -> None:
        """Waits for the outcome of a suspect."""
        self._wait()
        self._check()
        self._queue(message)
        self._messages.append(message)
        self._times_s.append(time.monotonic())
        self._late_s = self._times_s[-1] + self._delivery_s
        self._wait()
        self._suspects.discard(hash(message))
        if self._failed is None:
            return
        # It is this message: nothing else was under way.
        why, error = self._failed, self._reports[-1][1] if self._reports else _UNKNOWN
        del self._messages[-1], self._times_s[-1]
        self._end_producer()  # the error may have been fatal
        self._forget_reports()
        if kind_of(error.name()) is Kind.POISON:
            raise Rejected(_words_of(error))
        self._suspects.add(hash(message))
        self._failed = why
        raise Unanswered(why)

    def _check(self) -> None:
        if self._failed is not None:
            raise Unanswered(self._failed)

    def _queue(self, message: Sendable) -> None:
        """Puts a message into the client's queue; waits for room. Raises Rejected, Unanswered if
        another message fails meanwhile, and KafkaException, perhaps about other messages."""
        topic, value, key, headers, timestamp_us = message
        producer = self._producer
        if producer is None:  # the last one ended
            producer = self._make()
        if topic not in self._found:
            self._find(producer, topic)
        all_headers: Any = None
        try:
            if headers:
                all_headers = list(client_headers(headers))
            if value is not None and len(value) > self._value_bytes_max:
                raise Rejected(f"{TOO_LARGE}: {over_queue(len(value), self._queue_kbytes)}")
        except (RecordRefused, TypeError) as error:
            raise Rejected(f"the client cannot take the message: {error}") from None
        time_ms = timestamp_us // 1_000
        if time_ms < 1 and timestamp_us:
            time_ms = 1  # 0 would be the present
        report = self._report if self._queue_plain is None else None
        while True:
            try:
                producer.produce(topic, value, key, _BY_KEY, report, None, time_ms, all_headers)
            except BufferError:
                pass
            except KafkaException as error:
                if kind_of(error.args[0].name()) is Kind.POISON:
                    raise Rejected(words(error)) from None
                raise
            except (TypeError, ValueError, OverflowError) as error:
                raise Rejected(f"the client cannot take the message: {error}") from None
            else:
                break
            self._poll()
            self._check()

    def _find(self, producer: RowProducer, topic: str) -> None:
        """Returns if there is such a topic. Raises Rejected, Unanswered."""
        if not is_topic_name(topic):
            raise Rejected(impossible_name(topic).reason)
        try:
            found = producer.list_topics(topic, timeout=ANSWER_S).topics[topic]
        except KafkaException as error:
            raise Unanswered(words(error)) from None
        partitions = self._creation.partitions(topic, found)
        if isinstance(partitions, Refusal):
            raise (Rejected if partitions.is_poison else Unanswered)(partitions.reason)
        self._found.add(topic)

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
        self._take_failures(producer)
        if fatal is None and self._failed is not None:
            producer.purge(in_flight=False)
        if fatal is None and time.monotonic() >= self._late_s and self._is_late():
            fatal = f"no answer within {self._delivery_s:g} s"
        if fatal is not None:
            self._give_up(fatal)

    def _is_late(self) -> bool:
        """Whether a message without an outcome has taken too long. Sets when one will have. Only the number
        of messages under way is known: the first of them was queued no later than as many before the
        last. The client counts its reports of errors, too."""
        under_way = len(self._producer or ())
        if not under_way or not self._times_s:
            self._late_s = time.monotonic() + self._delivery_s
            return False
        self._late_s = self._times_s[-under_way:][0] + self._delivery_s
        return time.monotonic() >= self._late_s

    def _give_up(self, why: str) -> None:
        """Messages without an outcome count as not delivered, and the producer ends."""
        self._failed = self._failed or why
        self._end_producer()

    def _wait(self) -> None:
        """Until every outcome is known, for little more than `delivery_s`."""
        while self._producer is not None and len(self._producer):
            self._poll()
        if self._producer is not None:
            self._take_failures(self._producer)

    def flush(self) -> Mapping[int, str]:
        """Positions of messages that were not delivered, and why. After a failure, a new producer sends."""
        self._wait()
        if self._failed is None:
            self._forget()
            return {}
        messages, why = self._messages, self._failed
        failed = self._failures()
        refused = {
            hash(messages[i]) for i, error in failed.items() if kind_of(error.name()) is Kind.POISON
        }
        if refused:  # otherwise keep those that are known
            self._suspects = refused
        self._end_producer()
        self._forget()
        return {
            i: why if kind_of(error.name()) is Kind.CONSEQUENCE else _words_of(error)
            for i, error in failed.items()
        }

    def _failures(self) -> dict[int, KafkaError]:
        """The messages that failed, by position. Of equal ones the last: they are in one partition, in
        order. If reports are missing, or are about no message that was sent, all count as failed."""
        places: dict[_Content, list[int]] = {}
        for i, (topic, value, key, _, _) in enumerate(self._messages):
            places.setdefault((topic, value or None, key or None), []).append(i)
        failed: dict[int, KafkaError] = {}
        everything = self._unreported
        for content, error in reversed(self._reports):
            found = places.get(content)
            if found:
                failed[found.pop()] = error
            else:
                everything = True
        if everything:
            failed = {i: failed.get(i, _UNKNOWN) for i in range(len(self._messages))}
        return dict(sorted(failed.items()))

    def close(self) -> None:
        """Ends the producer and forgets what it has not delivered."""
        self._end_producer()
        self._found.clear()
        self._forget()

    def _forget(self) -> None:
        self._messages, self._times_s = [], []
        self._forget_reports()

    def _forget_reports(self) -> None:
        if self._failed is not None or self._unreported:
            self._failed, self._reports, self._unreported = None, [], False
            self._report = partial(
                self._on_report, self._reports
            )  # no report on what was forgotten

    def _take_failures(self, producer: RowProducer) -> None:
        """Those that the compiled half noted."""
        for failure in producer.failures():
            if failure is None:
                self._unreported, self._failed = True, self._failed or "it failed"
            else:
                topic, value, key, code = failure
                self._note((topic.decode(), value or None, key or None), KafkaError(code))

    def _note(self, content: _Content, error: KafkaError) -> None:
        self._reports.append((content, error))
        if self._failed is None:
            self._failed = _words_of(error)

    def _on_report(
        self, reports: list[tuple[_Content, KafkaError]], error: KafkaError, message: Any
    ) -> None:
        """The client calls it for a message that failed."""
        if reports is self._reports:  # otherwise it is about what was forgotten
            self._note((message.topic(), message.value() or None, message.key() or None), error)


def _words_of(error: KafkaError) -> str:
    return f"{error.name()}: {error.str()}"
