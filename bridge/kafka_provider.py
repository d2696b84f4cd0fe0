"""Kafka as a Buffer's provider. Java's partitions for keys; no key: one partition a topic."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import xxhash
from confluent_kafka import KafkaError, KafkaException, Producer

from bridge.kafka import check
from bridge.librdkafka import ALL_DOWN, CLIENT_LOG, DEFAULTS, NEVER, NotReachable, away, words
from bridge.provider import Message, Rejected
from bridge.routing import partition_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["KafkaProvider"]

_ANSWER_S = 5.0
_POLL_S = 0.05
_PURGE_POLLS = 20  # a second at most
_UNKNOWN = KafkaError(KafkaError._PURGE_INFLIGHT)  # noqa: SLF001 -- a public name


class KafkaProvider:
    """Sends to a cluster with an idempotent producer.

    settings: librdkafka's. delivery_s: how long a message may take; then it counts as not
    delivered, and what the cluster took of it without saying so is sent again. Raises
    WrongSetting, and connects to nothing before `open`.
    """

    retry_wait_s = 0.2

    def __init__(
        self,
        bootstrap_servers: str,
        settings: dict[str, str] | None = None,
        *,
        delivery_s: float = 10.0,
    ) -> None:
        check(settings or {})
        self._settings: dict[str, Any] = {
            **DEFAULTS,
            **(settings or {}),
            "bootstrap.servers": bootstrap_servers,
            "enable.idempotence": True,
            "enable.gapless.guarantee": True,  # behind what failed nothing is delivered
            "acks": "all",
            "message.timeout.ms": max(1, round(delivery_s * 1_000)),
            "transaction.timeout.ms": max(1_000, round(delivery_s * 1_000)),
            "error_cb": self._on_error,
        }
        self.name = f"Kafka at {bootstrap_servers}"
        self._producer: Producer | None = None
        self._partitions: dict[str, tuple[bytes, int]] = {}
        self._outcomes: list[KafkaError | None] = []  # None: delivered
        self._messages: list[Message] = []
        self._open = 0
        self._failed: str | None = None  # the first that was not delivered, until `flush` tells
        # Hashes. Refused in a request with others, so nobody knows which one: sent alone.
        self._suspects: set[int] = set()
        self._last_error = "no answer"

    def _on_error(self, error: KafkaError) -> None:
        if error.code() != ALL_DOWN:
            self._last_error = away(error.str())  # how many are down says less than why one is

    def open(self) -> None:
        """Makes a producer. Raises NotReachable if the cluster does not answer."""
        producer = self._producer = Producer(self._settings, logger=CLIENT_LOG)
        try:
            producer.list_topics(timeout=_ANSWER_S)
        except KafkaException as error:
            producer.poll(0)  # the client's own words come with its callbacks
            raise NotReachable(f"{words(error)} ({self._last_error})") from None

    def send(self, message: Message) -> None:
        """Queues a message. Raises Rejected, NotReachable, KafkaException."""
        suspect = hash(message)
        alone = suspect in self._suspects
        if alone:
            self._wait()
            self._check()
        position = len(self._outcomes)
        self._queue(message, position)
        if alone:
            self._wait()
            error = self._outcomes[position]
            if error is not None and error.code() in NEVER:
                self._suspects.discard(suspect)
                del self._outcomes[position], self._messages[position]
                self._producer = Producer(self._settings, logger=CLIENT_LOG)  # it was fatal
                self._failed = None  # and it was alone
                raise Rejected(_said(error))
            if error is not None:  # a suspect still
                del self._outcomes[position], self._messages[position]
            self._check()
            self._suspects.discard(suspect)

    def _check(self) -> None:
        """Raises NotReachable where a message was not delivered: what follows it would overtake
        it, for the client goes on behind what took too long."""
        if self._failed is not None:
            raise NotReachable(self._failed)

    def _queue(self, message: Message, position: int) -> None:
        producer, topic = self._producer, message.topic
        assert producer is not None
        source, partitions = self._partitions.get(topic) or self._find(topic)
        partition = partition_of(message.key, source, partitions)
        outcomes = self._outcomes

        def done(error: KafkaError | None, _message: object) -> None:
            outcomes[position] = error
            if producer is self._producer:
                self._open -= 1
                if error is not None and self._failed is None:
                    self._failed = _said(error)

        self._outcomes.append(_UNKNOWN)
        self._messages.append(message)
        try:
            self._produce(producer, message, partition, done)
        except BaseException:  # it was not taken
            del self._outcomes[position], self._messages[position]
            raise
        self._open += 1

    def _find(self, topic: str) -> tuple[bytes, int]:
        """The topic's own 16 bytes, and how many partitions it has."""
        assert self._producer is not None
        try:
            found = self._producer.list_topics(topic, timeout=_ANSWER_S).topics[topic]
        except KafkaException as error:
            raise NotReachable(words(error)) from None
        if found.error is not None and found.error.code() == KafkaError.TOPIC_EXCEPTION:
            raise Rejected(f"{topic!r} is no name for a topic")
        if found.error is not None:
            raise NotReachable(f"topic {topic!r}: {found.error.str()}")
        known = xxhash.xxh3_128_digest(topic.encode()), len(found.partitions)
        self._partitions[topic] = known
        return known

    def _produce(
        self,
        producer: Producer,
        message: Message,
        partition: int,
        done: Callable[[KafkaError | None, object], None],
    ) -> None:
        """Into the client's queue, once there is room. Raises Rejected, and NotReachable where
        the wait for it shows that another failed; KafkaException may be of other messages."""
        headers: Any = list(message.headers)
        while True:
            try:
                producer.produce(
                    message.topic, message.value, message.key, partition, done, None,
                    max(1, message.timestamp_us // 1_000), headers,
                )  # fmt: skip  # as the client names them
            except BufferError:
                self._poll(producer)
                self._check()
            except KafkaException as error:
                if error.args[0].code() in NEVER:
                    raise Rejected(words(error)) from None
                raise
            else:
                return

    def _poll(self, producer: Producer) -> None:
        """Takes outcomes. Behind one that failed nothing more is to be sent."""
        producer.poll(_POLL_S)
        if self._failed is not None:
            producer.purge(in_flight=False)

    def _wait(self) -> None:
        """Until every outcome is known, which takes `delivery_s` at most, and a little. After a
        fatal error what is not known to be delivered counts as not."""
        producer = self._producer
        assert producer is not None
        try:
            while self._open:
                self._poll(producer)
        except KafkaException as error:
            self._failed = self._failed or words(error)
            producer.purge()
            for _ in range(_PURGE_POLLS):
                with contextlib.suppress(KafkaException):
                    producer.poll(_POLL_S)
                if not self._open:
                    break
            self._open = 0

    def flush(self) -> Mapping[int, str]:
        """Which were not delivered, and why."""
        self._wait()
        outcomes, messages = self._outcomes, self._messages
        self._outcomes, self._messages, self._failed = [], [], None
        failed = {i: error for i, error in enumerate(outcomes) if error is not None}
        refused = {hash(messages[i]) for i, error in failed.items() if error.code() in NEVER}
        if refused:  # those before them may never come again
            self._suspects = refused
        return {i: _said(error) for i, error in failed.items()}

    def close(self) -> None:
        """Forgets the producer and everything that it has not delivered."""
        producer, self._producer = self._producer, None
        self._partitions.clear()
        self._outcomes, self._messages, self._open = [], [], 0
        self._failed = None
        if producer is not None:
            with contextlib.suppress(KafkaException):
                producer.purge()


def _said(error: KafkaError) -> str:
    return f"{error.name()}: {error.str()}"
