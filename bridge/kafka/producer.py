"""A producer as at-least-once delivery needs it: idempotent, gapless, patient without end. It reports what happens
as events, and decides nothing."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Iterator
from functools import partial
from typing import Any

from confluent_kafka import KafkaError, KafkaException

from bridge.kafka.client import FIXED
from bridge.kafka.connection import USUAL_TERMS, Connection, Listener, Terms
from bridge.kafka.error_table import Kind, kind_of
from bridge.kafka.events import Delivered, Failed, KafkaEvent, Put, with_names
from bridge.kafka.lane import LaneKey
from bridge.kafka.messages import Callback, MessageRows
from bridge.kafka.queueing import Held

_NAME_WAIT_S = 1.0  # ends with the first report that names a lane
NAME_POLL_S = 0.05
_REPORTED_LATER = KafkaError._FATAL  # noqa: SLF001 -- a public name; the next poll reports why


class IdempotentProducer:
    """On one connection after the other. The arguments are those of Connection and KeptValues. One thread sends and
    polls."""

    def __init__(
        self,
        bootstrap_servers: str,
        settings: dict[str, Any],
        terms: Terms = USUAL_TERMS,
        *,
        kept_bytes_max: int = 0,
    ) -> None:
        listener = Listener(self._fail, self._fatal, self._other_cluster)
        self.connection = Connection(bootstrap_servers, settings, listener, terms)
        self._kept = KeptValues(kept_bytes_max)
        self._careful = False
        self._naming = False
        self._events: deque[KafkaEvent] = deque()

    def connect(self, *, careful: bool = False) -> None:
        """Makes a new producer, which connects in the background. careful: a refused record is being
        searched for, so it is worth waiting until the client names its lane."""
        self.disconnect()
        self._careful = careful
        self.connection.open(FIXED)

    def disconnect(self) -> None:
        """Drops the producer and what it has not delivered, which is still in the log."""
        self._kept.end(answered=self.connection.close())
        self._events.clear()

    close = disconnect

    def reporting(self, lane: LaneKey, address: int, time_ms: int) -> Callback:
        """The callback for the record that reports for its lane; `poll` gives what it reports."""
        return partial(self._on_delivery, self.connection.generation, lane, address, time_ms)

    def put(self, messages: MessageRows) -> Put:
        """Queues records in order, up to one that can never be sent, while there is room. Poll, then put the rest."""
        last, messages.last = messages.last, None
        if last and (held := self.connection.opened.keep(messages, self._kept.room)) is not None:
            self._kept.add(held, last)
        return self.connection.put(messages, later=_REPORTED_LATER)

    def poll(self, timeout_s: float) -> Iterator[KafkaEvent]:
        """Serves the client for so long; yields what happened."""
        self.connection.serve(timeout_s)
        while self._events:
            yield self._events.popleft()

    # --- what the client reports ----------------------------------------------------------------

    def _fatal(self, error: KafkaError) -> None:
        """An idempotent producer has a gap in what it delivered; successes after it prove nothing."""
        if self._named():
            self._events = deque(with_names(self._events))
        else:
            self._fail(error)

    def _named(self) -> bool:
        """Whether a callback names the lane of the refused request in time. None does if no record of it has one."""
        client = self.connection.opened
        self._naming = True
        wait_s = _NAME_WAIT_S if self._careful else NAME_POLL_S
        try:
            for _ in range(int(wait_s / NAME_POLL_S)):
                with contextlib.suppress(KafkaException):
                    client.poll(NAME_POLL_S)
                if any(isinstance(event, Failed) for event in self._events):
                    return True
        finally:
            self._naming = False
        return False

    def _on_delivery(
        self,
        generation: int,
        lane: LaneKey,
        address: int,
        time_ms: int,
        error: KafkaError | None,
        message: Any,
    ) -> None:
        if generation != self.connection.generation:
            return
        if error is None:
            if not self._naming:
                self.connection.acknowledged()
                self._kept.acknowledged(lane, address)
                offset = message.offset()
                last = self._events[-1] if self._events else None
                if isinstance(last, Delivered) and last.lane == lane:
                    self._events.pop()  # a broker's answer makes many reports in a row
                self._events.append(Delivered(lane, address, -1 if offset is None else offset))
        elif kind_of(error.name()) is not Kind.CONSEQUENCE:  # its cause is reported by itself
            reason = self._reason(error)
            self._events.append(Failed(reason, error.name(), lane, address, time_ms))

    def _fail(self, error: KafkaError) -> None:
        self._events.append(Failed(self._reason(error), error.name()))

    def _reason(self, error: KafkaError) -> str:
        if kind_of(error.name()) is Kind.LOCKED_OUT:
            self.connection.locked_out(error)
        return f"{error.name()}: {error.str()}"

    def _other_cluster(self) -> None:
        self._events.append(Failed("another cluster answers"))


class KeptValues:
    """Values that the client reads where they are, in the batch, so that none is copied. Of one connection after the
    other. Not thread-safe. bytes_max: more is copied. So a lane that takes nothing, while others do, costs no more than
    this in addition to what is in flight.

    The client may read a value until its message is answered for. It answers for the messages of a lane in order, so a
    batch can go once each of its lanes has an acknowledgement of its last record. When the connection ends, they can go
    if the client has answered for all of its messages, or has ended. Whatever is dropped in another way stays in
    memory for good: that is a leak, but no record ever arrives with other bytes.
    """

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self.bytes = 0
        # With the last address of each lane that is not acknowledged.
        self._batches: list[tuple[Held, dict[LaneKey, int]]] = []

    @property
    def room(self) -> int:
        """How many more bytes may be kept."""
        return self._bytes_max - self.bytes

    def add(self, held: Held, last: dict[LaneKey, int]) -> None:
        """These values are about to be queued. last: the address of each lane's last record."""
        self._batches.append((held, last))
        self.bytes += held.bytes

    def acknowledged(self, lane: LaneKey, address: int) -> None:
        """The client has answered for all records of the lane up to this one."""
        is_over = False
        for _, last in self._batches:
            if last.get(lane, address + 1) <= address:
                del last[lane]
                is_over = is_over or not last
        if is_over:
            over = [held for held, last in self._batches if not last]
            self._batches = [batch for batch in self._batches if batch[1]]
            self._release(over)

    def end(self, *, answered: bool) -> None:
        """The connection has ended. answered: whether the client reads no value any more."""
        held = [held for held, _ in self._batches]
        self._batches = []
        if answered:
            self._release(held)
        else:
            self.bytes = 0

    def _release(self, batches: list[Held]) -> None:
        for held in batches:
            self.bytes -= held.bytes
            held.release()
