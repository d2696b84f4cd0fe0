"""Messages in memory, in order, with a bound on their number, bytes and age; and the batch under delivery."""

from __future__ import annotations

from collections import deque
from itertools import islice
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from bridge.client.buffer.provider import Message

_OVERHEAD_BYTES = 300  # of a message in memory, in addition to its key and value


def bytes_of(message: Message) -> int:
    """The approximate memory of a message, in bytes."""
    _, value, key, _, _ = message
    return len(value or b"") + len(key or b"") + _OVERHEAD_BYTES


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
        return [i for i, done in enumerate(self.done) if not done]

    def add(self, message: Message, address: int) -> None:
        """Appends a message of the backlog."""
        self.addresses[len(self.messages)] = address
        self.messages.append(message)
        self.done.append(0)

    def not_done(self) -> Batch:
        """The messages that are not done, as a new batch. All are in the backlog."""
        rest = Batch()
        for i in self.left():
            rest.add(self.messages[i], self.addresses[i])
        return rest


class MemoryQueue:
    """Not thread-safe. bytes: of all its messages, approximately. messages_max, bytes_max, age_max_s: `append`
    takes nothing beyond these. The age is that of the oldest message when the next one comes, by their
    timestamps: a clock that is set forward ends a live phase early, which loses nothing."""

    def __init__(self, messages_max: int, bytes_max: int, age_max_s: float) -> None:
        self._entries: deque[Message] = deque()
        self._messages_max, self._bytes_max, self._age_max_us = (
            messages_max,
            bytes_max,
            age_max_s * 1e6,
        )
        self.bytes = 0
        self._batch = Batch()  # the first messages, while they are delivered; otherwise empty
        self._poured = 0  # of those in the batch, how many left this queue for the backlog

    def __len__(self) -> int:
        return len(self._entries)

    def append(self, message: Message) -> bool:
        """Takes it. False, and nothing is changed, if a bound is reached."""
        entries = self._entries
        if entries and (
            len(entries) >= self._messages_max
            or self.bytes >= self._bytes_max
            or message[4] - entries[0][4] > self._age_max_us
        ):
            return False
        entries.append(message)
        # As bytes_of, whose call would take as long as the rest.
        self.bytes += len(message[1] or b"") + len(message[2] or b"") + _OVERHEAD_BYTES
        return True

    def take(self, count: int) -> Batch:
        """The oldest messages, at most so many, for a delivery. They stay here until `settle`."""
        self._batch = Batch(islice(self._entries, count))
        self._poured = 0
        return self._batch

    def settle(self) -> None:
        """The delivery has ended: removes what is done of its batch."""
        entries, done, first = self._entries, self._batch.done, self._poured
        if len(entries) == len(done) - first and 0 not in done:  # mostly nothing came meanwhile
            entries.clear()
            self.bytes = 0
            first = len(done)
        kept = []
        for i in range(first, len(done)):
            message = entries.popleft()
            if done[i]:
                self.bytes -= bytes_of(message)
            else:
                kept.append(message)
        entries.extendleft(reversed(kept))
        self._batch, self._poured = Batch(), 0

    def pour(self, store: Callable[[Message], int]) -> None:
        """Empties it, in order. store: stores a message elsewhere, and returns its address, which the batch
        under delivery notes. If it raises, that message and later ones stay. Leaves out what is done."""
        batch = self._batch
        while self._entries:
            message = self._entries[0]
            i = self._poured
            if i >= len(batch):
                store(message)
            elif not batch.done[i]:
                batch.addresses[i] = store(message)
            self._entries.popleft()
            self.bytes -= bytes_of(message)
            self._poured += 1

    def take_all(self) -> list[Message]:
        """Empties it. The messages that are not done."""
        left: list[Message] = []

        def keep(message: Message) -> int:
            left.append(message)
            return 0

        self.pour(keep)
        return left
