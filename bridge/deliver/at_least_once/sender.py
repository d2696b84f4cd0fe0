"""Sender: queues the records that the engine has admitted, as far as the client's queue takes them."""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, cast

from bridge.kafka.message_rows import MessageRows

if TYPE_CHECKING:
    from bridge.deliver.at_least_once.batch_planner import Planned
    from bridge.deliver.intake import Judged
    from bridge.kafka.lane import LaneKey, Refusal
    from bridge.kafka.message_rows import Callback
    from bridge.kafka.messages import Messages
    from bridge.kafka.producer import IdempotentProducer

SERVE_EVERY = 4096  # records that are queued between two calls of the client's poll


class _Outgoing:
    """Records to send: a lane and a callback for each. next: the first that is not queued."""

    def __init__(self, messages: Messages, lanes: list[LaneKey], callbacks: list[Callback]) -> None:
        self.messages = messages
        self.lanes = lanes
        self.callbacks = callbacks
        self.next = 0


class Sender:
    """Of one log. Not thread-safe."""

    def __init__(self, producer: IdempotentProducer) -> None:
        self._producer = producer
        self._outgoing: _Outgoing | None = None

    @property
    def waiting(self) -> bool:
        """Whether admitted records are not queued yet."""
        return self._outgoing is not None

    def forget(self) -> None:
        """The connection is closed: what was not queued will be read again."""
        self._outgoing = None

    def take(self, judged: Judged, planned: Planned) -> None:
        """These records of a batch are the next to queue."""
        messages, lanes, sent = judged.messages, judged.lanes, planned.sent
        if len(sent) < messages.records:
            messages, lanes = messages.take(sent), [lanes[i] for i in sent]
        callbacks: list[Callback] = [None] * messages.records
        for key, mark in planned.marks:
            i = bisect_left(messages.addresses, mark.last_address)
            callbacks[i] = self._producer.reporting(key, mark.last_address, messages.times_ms[i])
        self._outgoing = _Outgoing(messages, cast("list[LaneKey]", lanes), callbacks)

    def send(self) -> tuple[int, Refusal] | None:
        """Queues records, until the client's queue is full. Returns the address of a record that the client
        refuses, and why; it is the next one."""
        producer, outgoing = self._producer, self._outgoing
        while outgoing is not None:
            messages, begin = outgoing.messages, outgoing.next
            if begin == messages.records:
                self._outgoing = None
                break
            if begin:
                producer.connection.serve()
            end = min(begin + SERVE_EVERY, messages.records)
            rows = MessageRows(messages, outgoing.lanes, begin, end, outgoing.callbacks)
            put = producer.put(rows)
            outgoing.next += put.records
            if put.refusal is not None:
                return messages.addresses[outgoing.next], put.refusal
            if outgoing.next < end:
                break
        return None
