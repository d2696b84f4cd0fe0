"""`MessageRows`: some messages of a batch, one after the other, as the client takes them.

The compiled half of queueing.py reads their columns. Otherwise each is the arguments of one call of the
client's, made when it is needed: keeping thousands slows the garbage collector.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from aolog.format.origin import HEADER_NAME, STAMP
from bridge.kafka.lane import LaneKey
from bridge.kafka.messages import Messages

Callback: TypeAlias = "Callable[..., None] | None"
"""What the client calls when the record has arrived, or failed."""


@dataclass(slots=True)
class MessageRows:
    """The messages in [at, end). lanes, callbacks: of all of the batch; callbacks is None: no message has one."""

    messages: Messages
    lanes: list[LaneKey]
    at: int  # the next one
    end: int
    callbacks: list[Callback] | None
    # The address of each lane's last record, if that has a callback: then values need not be copied.
    last: dict[LaneKey, int] | None = None
    is_kept: bool = False  # the client reads the values where they are, see KeptValues

    def columns(self) -> tuple[Any, ...] | None:
        """What the compiled half takes before the range; None if it cannot."""
        _, _, keys, values, _, times_ms, stamps, headers, _ = self.messages
        if headers is not None:
            return None
        stamped = HEADER_NAME, STAMP.size, stamps
        return self.lanes, values, keys, self.callbacks, times_ms, stamped

    def call(self, i: int) -> tuple[Any, ...]:
        """The arguments of the client's `produce` for the message at i: topic, value, key, partition, callback, None,
        milliseconds, headers."""
        messages, (topic, partition), callbacks = self.messages, self.lanes[i], self.callbacks
        callback = None if callbacks is None else callbacks[i]
        headers = messages.headers
        sent = [(HEADER_NAME, messages.stamp(i))] if headers is None else headers[i]
        key, time_ms = messages.keys[i], messages.times_ms[i]
        return topic, messages.value(i), key, partition, callback, None, time_ms, sent
