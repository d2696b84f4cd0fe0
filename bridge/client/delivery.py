"""What `send` returns: the place of a message in Kafka, known at once or later.

A Delivery is the callback that librdkafka calls with the report, and so one object a message.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from bridge.client.errors import SendFailed
from bridge.kafka.error_table import row_of

if TYPE_CHECKING:
    from collections import deque

    from confluent_kafka import KafkaError, Message, Producer

_WAIT_S = 0.05  # another thread may have served the report; a signal's handler runs so soon


class Delivery:
    """The place of a message. Its attributes wait for the acknowledgement; so does `result`."""

    __slots__ = ("_error", "_failures", "_message", "_producer", "_topic")

    def __init__(self, producer: Producer, topic: str, failures: deque[Delivery]) -> None:
        self._producer = producer
        self._topic = topic
        self._failures: deque[Delivery] | None = failures
        self._message: Message | None = None
        self._error: KafkaError | None = None

    def __call__(self, error: KafkaError | None, message: Message) -> None:
        """For librdkafka, when the outcome is known."""
        if error is not None:
            self._error = error
            if self._failures is not None:
                self._failures.append(self)
        self._message = message

    @property
    def done(self) -> bool:
        """Whether the outcome is known. Does not wait."""
        if self._message is None:
            self._producer.poll(0)
        return self._message is not None

    def result(self, timeout_s: float | None = None) -> Delivery:
        """Waits for the acknowledgement; itself. Raises SendFailed, and TimeoutError when the
        outcome is not known in time."""
        self._wait(timeout_s)
        if self._error is not None:
            self._failures = None
            raise send_failed(self._topic, self._error)
        return self

    def _wait(self, timeout_s: float | None) -> Message:
        until_s = None if timeout_s is None else time.monotonic() + timeout_s
        while self._message is None:
            if until_s is not None and time.monotonic() >= until_s:
                raise TimeoutError(f"no answer for a message to {self._topic} in {timeout_s:g} s")
            self._producer.poll(_WAIT_S)
        return self._message

    def ignore_failure(self) -> None:
        """Nobody will ask for the outcome."""
        self._failures = None

    def take_failure(self) -> SendFailed | None:
        """The error of a failed message, once; None where the caller has taken it."""
        if self._failures is None or self._error is None:
            return None
        self._failures = None
        return send_failed(self._topic, self._error)

    @property
    def topic(self) -> str:
        """The topic's name."""
        return self._topic

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
            return f"Delivery(topic={self._topic!r}, under way)"
        if self._error is not None:
            return f"Delivery(topic={self._topic!r}, failed: {self._error.name()})"
        return (
            f"Delivery(topic={self._topic!r}, partition={self.partition}, offset={self.offset},"
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
