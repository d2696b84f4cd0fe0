"""What a Buffer delivers to: the protocol of a provider, and the messages that it gets.

`bridge.client.buffer.kafka_provider` and `bridge.client.buffer.file_provider` are providers; `bridge.testing` has two
more for tests, and the tests that every provider has to pass.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

from aolog.errors import counted
from aolog.record import Headers
from bridge.errors import DestinationError


class Message(NamedTuple):
    """A message to deliver."""

    topic: str
    value: bytes | None
    key: bytes | None = None
    headers: Headers = ()
    timestamp_us: int = 0  # since the epoch: when `Buffer.send` accepted it; 0: unknown


class NotDelivered(DestinationError):
    """A Buffer accepted messages, did not deliver them, and does not store them: in the modes block
    and error, after a rejection, and if its log accepted no more at the end. `undelivered`: these
    messages, in order; some may have arrived. Send them again."""

    code = "not_delivered"

    def __init__(self, name: str, why: str, undelivered: Sequence[Message]) -> None:
        count = len(undelivered)
        were = "was" if count == 1 else "were"
        super().__init__(
            f"{counted(count, 'message', ',')} {were} not delivered to {name}: {why}",
            hint="send `undelivered` again, in order",
        )
        self.undelivered = list(undelivered)


class Provider(Protocol):
    """A destination. One thread calls it, one call at a time.

    Order: after a message that is not delivered, the provider delivers no other message of the same
    topic and key, until `flush` has reported the first one. A call may block, but not for ever:
    closing a Buffer may wait for it.

    Errors: any exception but Rejected means "not now". The Buffer closes the provider, waits
    `retry_wait_s`, longer each time, opens it again, and sends again what was not delivered. A
    rejected message is removed when all messages before it are delivered.

    `send_all(messages, at)` is optional: it accepts the messages of a list from an index on, as `send` would each, and
    returns the index of the first one that is left to `send`.
    """

    name: str  # for logs and errors
    retry_wait_s: float  # before the first new try, at least 0.01

    def open(self) -> None:
        """Called before the first message, and after `close`. Raises if it cannot."""

    def send(self, message: Message) -> None:
        """Accepts a message; the next `flush` delivers it at the latest. Raises if it cannot now,
        and Rejected if it never can."""

    def flush(self) -> Iterable[int]:
        """Returns when the outcome of each message accepted since the last `flush` is known. The
        positions of those that were not delivered, counted from 0; a mapping also has the reasons.
        Raises if no outcome is known."""

    def close(self) -> None:
        """Releases everything, also after an `open` that failed. May forget messages that were
        accepted and not flushed."""
