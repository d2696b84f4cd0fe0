"""Kafka as a Buffer's provider. Keys go to the partitions that Java's partitioner chooses; messages without
a key go to one partition of each topic.

The client never gives up a message: it would go on with later messages, which would overtake the one
that is sent again. So the timeout is here: when a message has taken too long, its producer ends with
all that it holds, and a new producer sends that again, in order.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from math import inf
from typing import Any, TypeAlias

from confluent_kafka import KafkaError, KafkaException

from aolog.errors import RecordRefused, UsageError
from aolog.record import Headers
from bridge.errors import Rejected, Unanswered
from bridge.kafka.client import FIXED, words
from bridge.kafka.client_limits import client_headers, over_queue
from bridge.kafka.connection import Connection, Listener, Terms
from bridge.kafka.error_table import TOO_LARGE, Kind, kind_of
from bridge.kafka.lane import Refusal
from bridge.kafka.queueing import RowProducer
from bridge.kafka.settings import check
from bridge.kafka.topic_creation import CreateTopics

_POLL_S = 0.05
_BY_KEY = -1  # the client chooses the partition
_FIXED: dict[str, Any] = {
    **FIXED,
    "partitioner": "murmur2",  # as Java's; messages without a key go to one partition, too
    # A message has no report if it was delivered: a Python call for each would take as long as
    # sending it. What the client has no report on, and no longer has, was delivered.
    "delivery.report.only.error": True,
    "statistics.interval.ms": 0,  # nobody takes them while nothing is sent
}
_UNKNOWN = KafkaError(KafkaError._PURGE_INFLIGHT)  # noqa: SLF001 -- a public name

_Content: TypeAlias = "tuple[str, bytes | None, bytes | None]"  # topic, value, key; None if empty
Sendable: TypeAlias = "tuple[str, bytes | None, bytes | None, Headers, int]"
"""A bridge.client.buffer.provider.Message, or a plain tuple of its fields."""


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
        self._connection = Connection(
            bootstrap_servers,
            {"linger.ms": 1, **(settings or {})},  # a flush waits for it
            Listener(lambda _: None, lambda _: None),  # the messages that an error ends report it
            Terms(create_topics=create_topics),
        )
        self._delivery_s = delivery_s
        self.name = f"Kafka at {bootstrap_servers}"
        self._found: set[str] = set()  # topics
        # Of each message since the last flush: itself, and when it was queued.
        self._messages: list[Sendable] = []
        self._times_s: list[float] = []
        self._late_s = inf  # no message is late before this time
        # The reports on messages that failed, in their order: topic, value and key, and the error.
        self._reports: list[tuple[_Content, KafkaError]] = []
        self._unreported = False  # a producer ended before it reported on all of its messages
        # Why the first failed message was not delivered, until `flush` reports it.
        self._failed: str | None = None
        # Hashes of messages that were refused in one request: any of them may be the bad one, so
        # each is sent alone.
        self._suspects: set[int] = set()

    def open(self) -> None:
        """Makes a producer. The first message to a topic finds out whether the cluster answers."""
        self._connection.identity.forget()  # no cursor of ours belongs to a cluster
        self._connection.open(_FIXED, reports=True)

    def _end_producer(self) -> None:
        """Nothing that the producer holds is sent any more, except what is on the wire."""
        producer = self._connection.client
        self._connection.close()
        if producer is not None:
            self._take_failures(producer)
            self._unreported = self._unreported or len(producer) > 0

    # --- sending ------------------------------------------------------------------------------

    def send(self, message: Sendable) -> None:
        """Queues a message. Raises Rejected, Unanswered, KafkaException."""
        self._check()  # a later message would overtake one that failed
        if self._suspects and hash(message) in self._suspects:
            self._send_alone(message)
        else:
            self._queue(message)
            self._add([message])

    def send_all(self, messages: list[Sendable], at: int) -> int:
        """Queues plain messages from this index on. Returns the index of the first one that is left to `send`."""
        producer = self._connection.client
        queue = None if producer is None else producer.queue_all
        if queue is None or self._failed is not None or self._suspects:
            return at
        end = queue(self._found, messages, at)
        if end > at:
            self._add(messages[at:end])
        return end

    def _add(self, queued: list[Sendable]) -> None:
        now_s = time.monotonic()
        if not self._messages:
            self._late_s = now_s + self._delivery_s
        self._messages += queued
        self._times_s += [now_s] * len(queued)
        if now_s >= self._late_s:
            self._poll()

    def _send_alone(self, message: Sendable) -> None:
        """Waits for the outcome of a suspect."""
        self._wait()
        self._check()
        self._queue(message)
        self._add([message])
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
        if self._connection.client is None:  # the last one ended
            self.open()
        producer = self._connection.opened
        if topic not in self._found:
            self._find(topic)
        all_headers: Any = None
        try:
            if headers:
                all_headers = list(client_headers(headers))
            if (why := over_queue(len(value or b""), self._connection.queue_kbytes)) is not None:
                raise Rejected(f"{TOO_LARGE}: {why}")
        except (RecordRefused, TypeError) as error:
            raise Rejected(f"the client cannot take the message: {error}") from None
        time_ms = max(1, timestamp_us // 1_000) if timestamp_us else 0  # which is the present
        report = self._on_report if producer.queue_all is None else None
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

    def _find(self, topic: str) -> None:
        """Returns if there is such a topic. Raises Rejected, Unanswered."""
        found: int | Refusal | None = None
        try:
            found = self._connection.partitions(topic)
        except Unanswered as error:
            reason = str(error)
        if found is None:
            raise Unanswered(self._connection.unanswered(reason))
        if isinstance(found, Refusal):
            raise (Rejected if found.is_poison else Unanswered)(found.reason)
        self._connection.answered()
        self._found.add(topic)

    # --- outcomes -----------------------------------------------------------------------------

    def _poll(self) -> None:
        """Collects outcomes. After a failed message, drops what is queued. Gives up after a fatal error
        and when a message is late."""
        producer = self._connection.opened
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
        if fatal is not None:  # messages without an outcome count as not delivered
            self._failed = self._failed or fatal
            self._end_producer()

    def _is_late(self) -> bool:
        """Whether a message without an outcome has taken too long. Sets when one will have. Only the number
        of messages under way is known: the first of them was queued no later than as many before the
        last. The client counts its reports of errors, too."""
        under_way = len(self._connection.client or ())
        if not under_way or not self._times_s:
            self._late_s = time.monotonic() + self._delivery_s
            return False
        self._late_s = self._times_s[-under_way:][0] + self._delivery_s
        return time.monotonic() >= self._late_s

    def _wait(self) -> None:
        """Until every outcome is known, for little more than `delivery_s`."""
        while self._connection.client is not None and len(self._connection.client):
            self._poll()
        if self._connection.client is not None:
            self._take_failures(self._connection.client)

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
        """A producer that has failed was ended before: it has no more of them."""
        self._failed, self._reports, self._unreported = None, [], False

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

    def _on_report(self, error: Any, message: Any) -> None:
        """The client calls it for a message that failed."""
        self._note((message.topic(), message.value() or None, message.key() or None), error)


def _words_of(error: KafkaError) -> str:
    return f"{error.name()}: {error.str()}"
