"""Messages in memory, in order, with a bound on their number, bytes and age; and the batch under delivery."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Any

from bridge.client.buffer.provider import Message
from bridge.client.compiled import compiled

_OVERHEAD_BYTES = 300  # of a message in memory, in addition to its key, value and values of headers


def bytes_of(message: Message) -> int:
    """The approximate memory of a message, in bytes."""
    _, value, key, headers, _ = message
    size = len(value or b"") + len(key or b"") + _OVERHEAD_BYTES
    return size + sum(len(data or b"") for _, data in headers) if headers else size


class Batch:
    """Messages for one delivery, in order. One thread delivers it."""

    __slots__ = ("addresses", "done", "messages")

    def __init__(self, messages: Iterable[Message] = ()) -> None:
        self.messages = list(messages)
        # A byte for each message: 1 once it was delivered, or rejected and stored elsewhere.
        self.done = bytearray(len(self.messages))
        self.addresses: dict[int, int] = {}  # of messages in the backlog, by index

    def __len__(self) -> int:
        return len(self.messages)

    def left(self) -> Sequence[int]:
        """The indices of the messages that are not done."""
        if 1 not in self.done:
            return range(len(self.done))
        if 0 not in self.done:
            return ()
        return [i for i, done in enumerate(self.done) if not done]

    def add(self, messages: dict[int, Message]) -> None:
        """Appends messages of the backlog, by their addresses."""
        self.addresses.update(enumerate(messages, len(self.messages)))
        self.messages += messages.values()
        self.done += bytes(len(messages))

    def not_done(self) -> Batch:
        """The messages that are not done, as a new batch. All are in the backlog."""
        rest = Batch()
        rest.add({self.addresses[i]: self.messages[i] for i in self.left()})
        return rest


class PythonQueue:
    """Messages in order, with a bound on their number, bytes and age: `append` takes nothing beyond these. The age is
    that of the oldest message when the next one comes, by their timestamps: a clock that is set forward ends a live
    phase early, which loses nothing.

    The compiled one has a `send` of its own, which any thread may call, without a lock: it appends a plain message
    while `is_open`. Its calls are atomic."""

    is_open = waits = False
    send: Callable[..., None]

    def __init__(self, messages_max: float, bytes_max: float, age_max_us: float) -> None:
        self._messages: deque[Message] = deque()
        self._messages_max, self._bytes_max = messages_max, bytes_max
        self._age_max_us = age_max_us
        self.bytes = 0  # of all its messages, approximately

    def __len__(self) -> int:
        return len(self._messages)

    def append(self, message: Message) -> bool:
        """Takes it. False, and nothing is changed, if a bound is reached."""
        messages = self._messages
        if messages and (
            len(messages) >= self._messages_max
            or self.bytes >= self._bytes_max
            or message[4] - messages[0][4] > self._age_max_us
        ):
            return False
        messages.append(message)
        self.bytes += bytes_of(message)
        return True

    def first(self, count: int) -> list[Message]:
        """The oldest messages, at most so many, which stay here."""
        return list(islice(self._messages, count))

    def drop(self, done: bytes) -> None:
        """Of the oldest messages, each with a byte here, removes those whose byte is not 0. The others keep their
        order."""
        kept = 0
        for byte in done[: len(self._messages)]:
            if byte:
                self.bytes -= bytes_of(self._messages[kept])
                del self._messages[kept]
            else:
                kept += 1

    def serve(self, *given: Any) -> None:
        """Takes what the compiled one does; `send` is `otherwise`."""
        *_, self.send, _ = given


Queue: type[PythonQueue] = compiled("Queue") or PythonQueue


class MemoryQueue:
    """Not thread-safe, but for `queue`. The arguments are those of PythonQueue.

    Only `queue` decides which messages are here, in one call each: an exception between two lines loses none."""

    def __init__(self, messages_max: float, bytes_max: float, age_max_us: float) -> None:
        self.queue = Queue(messages_max, bytes_max, age_max_us)
        # The first messages, while they are delivered; otherwise empty. `pour` may have removed some from the queue.
        self._batch = Batch()

    def __len__(self) -> int:
        return len(self.queue)

    def append(self, message: Message) -> bool:
        """As that of PythonQueue."""
        return self.queue.append(message)

    def take(self, count: int) -> Batch:
        """The oldest messages, at most so many, for a delivery. They stay here until `settle`."""
        self._batch = Batch(self.queue.first(count))
        return self._batch

    def settle(self) -> None:
        """The delivery has ended: removes what is done of its batch."""
        batch, first, poured = self._batch, self.queue.first(1), 0
        while poured < len(batch) and not (first and batch.messages[poured] is first[0]):
            poured += 1
        self.queue.drop(bytes(batch.done[poured:]))
        self._batch = Batch()

    def pour(self, store: Callable[[Message], int]) -> None:
        """Empties it, in order. store: stores a message elsewhere, and returns its address, which the batch
        under delivery notes. If it raises, that message and later ones stay. Leaves out what is done."""
        batch = self._batch
        indices = {id(message): i for i, message in enumerate(batch.messages)}
        while found := self.queue.first(1):
            i = indices.get(id(found[0]))
            if i is None:
                store(found[0])
            elif not batch.done[i]:
                batch.addresses[i] = store(found[0])
            self.queue.drop(b"\1")

    def left(self) -> list[Message]:
        """The messages that are not done. They stay here."""
        batch = self._batch
        done = {
            id(message) for message, byte in zip(batch.messages, batch.done, strict=True) if byte
        }
        return [message for message in self.queue.first(len(self)) if id(message) not in done]

    def clear(self) -> None:
        """Empties it."""
        self.queue.drop(b"\1" * len(self))
