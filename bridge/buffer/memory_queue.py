"""Messages in memory, in order, with a bound on their number and bytes."""

from __future__ import annotations

from collections import deque
from itertools import islice
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bridge.buffer.provider import Message

_OVERHEAD_BYTES = 300  # of a message in memory, in addition to its key and value


class Item:
    """A message on its way. since_s: when it was accepted. address: in the backlog, or None.
    done: delivered, or rejected and stored elsewhere."""

    __slots__ = ("address", "done", "message", "since_s")

    def __init__(self, message: Message, since_s: float, address: int | None = None) -> None:
        self.message = message
        self.since_s = since_s
        self.address = address
        self.done = False

    @property
    def bytes(self) -> int:
        """The approximate memory of the message, in bytes."""
        return len(self.message.value or b"") + len(self.message.key or b"") + _OVERHEAD_BYTES


class MemoryQueue:
    """Not thread-safe. bytes: of all its items."""

    def __init__(self, messages_max: int, bytes_max: int) -> None:
        self._items: deque[Item] = deque()
        self._messages_max, self._bytes_max = messages_max, bytes_max
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._items)

    @property
    def full(self) -> bool:
        """Whether it should take no more."""
        return len(self._items) >= self._messages_max or self.bytes >= self._bytes_max

    def first(self, count: int) -> list[Item]:
        """The oldest items, at most so many."""
        return list(islice(self._items, count))

    def append(self, item: Item) -> None:
        """Also beyond the bounds."""
        self._items.append(item)
        self.bytes += item.bytes

    def popleft(self) -> Item:
        """Removes the oldest item."""
        item = self._items.popleft()
        self.bytes -= item.bytes
        return item

    def drop_done(self, count: int) -> None:
        """Removes those of the first `count` items that are done."""
        first = [self.popleft() for _ in range(min(count, len(self._items)))]
        left = [item for item in first if not item.done]
        self._items.extendleft(reversed(left))
        self.bytes += sum(item.bytes for item in left)

    def take_all(self) -> list[Message]:
        """Empties it. The messages that are not done."""
        messages = [item.message for item in self._items if not item.done]
        self._items.clear()
        self.bytes = 0
        return messages
