"""`MessageRows`: some messages of a batch, one after the other, as the client takes them.

The compiled half of queueing.py reads their columns. Otherwise each is the arguments of one call of the
client's, made when it is needed: keeping thousands slows the garbage collector.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import repeat
from operator import itemgetter, length_hint
from typing import Any, TypeAlias

from aolog.format.origin import HEADER_NAME, STAMP
from bridge.kafka.lane import LaneKey
from bridge.kafka.messages import Messages

Callback: TypeAlias = "Callable[..., None] | None"
"""What the client calls when the record has arrived, or failed."""


class MessageRows:
    """The messages in [at, end). lanes, callbacks: of all of the batch; callbacks is None: no message has one."""

    def __init__(
        self,
        messages: Messages,
        lanes: list[LaneKey],
        at: int,
        end: int,
        callbacks: list[Callback] | None,
    ) -> None:
        self.end = end
        self.messages, self._lanes, self._callbacks = messages, lanes, callbacks
        # The address of each lane's last record, if that has a callback: then values need not be copied.
        self.last: dict[LaneKey, int] | None = None
        self.is_kept = False  # the client reads the values where they are, see KeptValues
        self.skip_to(at)

    @property
    def at(self) -> int:
        """The index of the next one."""
        return self._until - length_hint(self._left)

    def skip_to(self, at: int) -> None:
        """The next one is the one at this index."""
        self._left: Iterator[LaneKey] = iter(())
        self._until = at

    def columns(self) -> tuple[Any, ...] | None:
        """What the compiled half takes before the range; None if it cannot."""
        messages = self.messages
        if messages.headers is not None:
            return None
        stamps = HEADER_NAME, STAMP.size, messages.stamps
        return (
            self._lanes,
            messages.values,
            messages.keys,
            self._callbacks,
            messages.times_ms,
            stamps,
        )

    def calls(self, most: int) -> Iterator[tuple[Any, ...]]:
        """The arguments of the client's `produce` for each of the next messages, at most so many: topic,
        value, key, partition, callback, None, milliseconds, headers. `at` counts those that were returned."""
        begin, end = self.at, min(self.at + most, self.end)
        messages, callbacks = self.messages, self._callbacks
        lanes = self._lanes[begin:end]
        self._left, self._until = iter(lanes), end
        stamped = ([(HEADER_NAME, messages.stamp(i))] for i in range(begin, end))
        return zip(
            map(itemgetter(0), self._left),
            messages.entries(begin, end),
            messages.keys[begin:end],
            map(itemgetter(1), lanes),
            repeat(None) if callbacks is None else callbacks[begin:end],
            repeat(None),
            messages.times_ms[begin:end],
            stamped if messages.headers is None else messages.headers[begin:end],
            strict=False,
        )
