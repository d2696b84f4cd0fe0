"""What `send` returns: the place of a message in Kafka, known at once or later.

A Delivery is the callback that librdkafka calls with the report, and so one object a message.
"""

from __future__ import annotations

import importlib
import time
from typing import TYPE_CHECKING, Any, cast

from aolog.format.native.speed import backend
from bridge.client.connection import interruptible
from bridge.client.errors import SendFailed
from bridge.kafka.error_table import row_of

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message, Producer

_WAIT_S = 0.05  # another thread may have served the report; a signal's handler runs so soon
_IN_C = {"__slots__", "_message", "_route", "__init__", "__call__"}


class Failures:
    """Messages of a producer that failed. count: since its start. untaken: those that nobody has
    asked for, by their identity in memory. They know no Delivery: that would be a cycle, and the
    collector does not know those of `_report.c`."""

    def __init__(self) -> None:
        self.count = 0
        self.untaken: dict[int, Message] = {}


class Route:
    """Where the messages to a topic go, and where their failures are noted."""

    __slots__ = ("failures", "produce", "producer", "topic")

    def __init__(self, topic: str, producer: Producer, failures: Failures) -> None:
        self.topic = topic
        self.producer = producer
        self.produce = producer.produce
        self.failures = failures

    def fail(self, message: Message) -> None:
        """A message failed. Called before its Delivery shows that, so that it can be taken from then on."""
        self.failures.count += 1
        self.failures.untaken[id(message)] = message


def _kept_by_c(delivery: type[Delivery]) -> type[Delivery]:
    """The same class with `_report.c` for its attributes and its call, if that could be compiled."""
    try:
        compiled: Any = importlib.import_module("bridge.client._report")
    except ImportError:
        return delivery
    for name in vars(delivery).keys() - _IN_C:
        setattr(compiled.Delivery, name, vars(delivery)[name])
    return cast("type[Delivery]", compiled.Delivery)


@_kept_by_c if backend == "compiled" else lambda delivery: delivery
class Delivery:
    """The place of a message. Its attributes wait for the acknowledgement; so does `result`."""

    __slots__ = ("_message", "_route")

    def __init__(self, route: Route) -> None:
        self._route = route
        self._message: Message | None = None

    def __call__(self, error: KafkaError | None, message: Message) -> None:
        """For librdkafka, when the outcome is known."""
        if error is not None:
            self._route.fail(message)
        self._message = message

    @property
    def done(self) -> bool:
        """Whether the outcome is known. Does not wait."""
        if self._message is None:
            self._route.producer.poll(0)
        return self._message is not None

    def result(self, timeout_s: float | None = None) -> Delivery:
        """Waits for the acknowledgement; itself. Raises SendFailed, and TimeoutError when the
        outcome is not known in time."""
        until_s = None if timeout_s is None else time.monotonic() + timeout_s
        while self._message is None:
            if until_s is not None and time.monotonic() >= until_s:
                raise TimeoutError(f"no answer for a message to {self.topic} in {timeout_s:g} s")
            with interruptible():
                self._route.producer.poll(_WAIT_S)
        if (error := self._message.error()) is not None:
            self._route.failures.untaken.pop(id(self._message), None)
            raise send_failed(self.topic, error)
        return self

    def ignore_failure(self) -> None:
        """Nobody will ask for the outcome."""
        route, self._route = self._route, Route(self.topic, self._route.producer, Failures())
        route.failures.untaken.pop(id(self._message), None)

    @property
    def topic(self) -> str:
        """The topic's name."""
        return self._route.topic

    @property
    def partition(self) -> int:
        """The partition's number."""
        partition = self._place().partition()
        assert partition is not None  # it is acknowledged
        return partition

    @property
    def offset(self) -> int:
        """The offset in the partition."""
        offset = self._place().offset()
        assert offset is not None  # it is acknowledged
        return offset

    @property
    def timestamp(self) -> int:
        """Milliseconds since the epoch, UTC: the message's, or the broker's where the topic says so."""
        milliseconds: int = self._place().timestamp()[1]
        return milliseconds

    def _place(self) -> Message:
        self.result()
        assert self._message is not None
        return self._message

    def __repr__(self) -> str:
        if self._message is None:
            return f"Delivery(topic={self.topic!r}, under way)"
        if (error := self._message.error()) is not None:
            return f"Delivery(topic={self.topic!r}, failed: {error.name()})"
        return (
            f"Delivery(topic={self.topic!r}, partition={self.partition}, offset={self.offset},"
            f" timestamp={self.timestamp})"
        )


def send_failed(topic: str, error: KafkaError) -> SendFailed:
    """The error in words, with what to do about it."""
    code = error.name()
    return SendFailed(
        f"a message to {topic!r} was not acknowledged: {code}: {error.str()}",
        hint=row_of(code).does,
        topic=topic,
        kafka_code=code,
    )
