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
from bridge.kafka.kept_values import KeptValues
from bridge.kafka.lane import LaneKey
from bridge.kafka.message_rows import Callback, MessageRows

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
