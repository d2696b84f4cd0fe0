"""What `send` returns: the place of a message in Kafka, known at once or later.

A Delivery is the callback that librdkafka calls with the report, and so one object a message.
"""

from __future__ import annotations

import time
from typing import Any, TypeVar, cast

from confluent_kafka import KafkaError, Message, Producer

from bridge.client.compiled import compiled
from bridge.client.connection import interruptible
from bridge.client.errors import SendFailed
from bridge.kafka.error_table import row_of

_WAIT_S = 0.05  # another thread may have served the report; a signal's handler runs so soon
_IN_C = {"__slots__", "_message", "_route", "answered", "__init__", "__call__"}
_ClassT = TypeVar("_ClassT", bound=type)


def _kept_by_c(kept: _ClassT) -> _ClassT:
    """The same class with `_report.c` for its attributes and its call, if that could be compiled."""
    in_c = compiled(kept.__name__)
    if in_c is None:
        return kept
    for name in vars(kept).keys() - _IN_C:
        setattr(in_c, name, vars(kept)[name])
    return cast("_ClassT", in_c)


class Failures:
    """Messages of a producer that failed. None holds a reference to a Delivery: the garbage collector cannot
    free cycles through objects of `_report.c`."""

    def __init__(self) -> None:
        self.count = 0  # since its start
        self.away: str | None = None  # the client's last report of a broker that it cannot reach
        self.untaken: dict[int, Message] = {}  # that nobody has asked for, by identity in memory


@_kept_by_c
class Answers:
    """How many deliveries have an outcome: counted by them, as each one is called."""

    __slots__ = ("answered",)

    def __init__(self) -> None:
        self.answered = 0


class Route(Answers):
    """Where the messages to a topic go, and where their failures are noted; None: nowhere."""

    __slots__ = ("_ignored", "failures", "produce", "producer", "topic")

    def __init__(self, topic: str, producer: Producer, failures: Failures | None) -> None:
        super().__init__()
        self.topic = topic
        self.producer = producer
        self.produce = producer.produce
        self.failures = failures
        self._ignored: Route | None = None

    def ignored(self) -> Route:
        """The same route for messages whose failures nobody will ask for."""
        if self._ignored is None:
            self._ignored = Route(self.topic, self.producer, None)
        return self._ignored

    @property
    def answers(self) -> int:
        """How many messages have an outcome, with the ignored ones."""
        return self.answered + (0 if self._ignored is None else self._ignored.answers)

    def fail(self, message: Message) -> None:
        """A message failed. Called before its Delivery shows that, so that it can be taken from then on."""
        if self.failures is not None:
            self.failures.count += 1
            self.failures.untaken[id(message)] = message

    def take(self, message: Message | None) -> None:
        """The failure of a message is known to its caller, if it failed."""
        if self.failures is not None:
            self.failures.untaken.pop(id(message), None)


@_kept_by_c
class Delivery:
    """The place of a message. Its attributes wait for the acknowledgement; so does `result`."""

    __slots__ = ("_message", "_route")

    def __init__(self, route: Route) -> None:
        self._route = route
        self._message: Message | None = None

    def __call__(self, error: KafkaError | None, message: Message) -> None:
        """For librdkafka, when the outcome is known."""
        self._route.answered += 1
        if error is not None:
            self._route.fail(message)
        self._message = message

    @property
    def is_known(self) -> bool:
        """Whether the outcome is known by the reports that were taken."""
        return self._message is not None

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
            self._route.take(self._message)
            failures = self._route.failures
            raise send_failed(self.topic, error, failures.away if failures is not None else None)
        return self

    def ignore_failure(self) -> None:
        """Nobody will ask for the outcome."""
        route, self._route = self._route, self._route.ignored()
        route.take(self._message)

    @property
    def topic(self) -> str:
        """The topic's name."""
        return self._route.topic

    @property
    def partition(self) -> int:
        """The partition's number."""
        partition: int = self._place().partition()
        return partition

    @property
    def offset(self) -> int:
        """The offset in the partition."""
        offset: int = self._place().offset()
        return offset

    @property
    def timestamp(self) -> int:
        """Milliseconds since the epoch, UTC: the message's, or the broker's where the topic says so."""
        milliseconds: int = self._place().timestamp()[1]
        return milliseconds

    def _place(self) -> Any:
        self.result()  # an acknowledged message has a place
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


def send_failed(topic: str, error: KafkaError, away: str | None = None) -> SendFailed:
    """The error in words, with what to do about it. away: see Failures; it is why a message timed out."""
    code = error.name()
    why = f" ({away})" if away is not None and code == "_MSG_TIMED_OUT" else ""
    return SendFailed(
        f"a message to {topic!r} was not acknowledged: {code}: {error.str()}{why}",
        hint=row_of(code).does,
        topic=topic,
        kafka_code=code,
    )
