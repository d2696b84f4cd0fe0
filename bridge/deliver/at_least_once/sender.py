"""Sender: queues the records that the engine has admitted, as far as the client's queue takes them."""

from __future__ import annotations

from bisect import bisect_left
from typing import cast

from bridge.deliver.at_least_once.batch_planner import Planned
from bridge.deliver.intake import Judged
from bridge.kafka.lane import LaneKey, Refusal
from bridge.kafka.messages import Callback, MessageRows
from bridge.kafka.producer import IdempotentProducer

SERVE_EVERY = 4096  # records that are queued between two calls of the client's poll


class Sender:
    """Of one log. Not thread-safe."""

    def __init__(self, producer: IdempotentProducer) -> None:
        self._producer = producer
        self._rows: MessageRows | None = None  # admitted, and not all queued

    @property
    def waiting(self) -> bool:
        """Whether admitted records are not queued yet."""
        return self._rows is not None

    def forget(self) -> None:
        """The connection is closed: what was not queued will be read again."""
        self._rows = None

    def take(self, judged: Judged, planned: Planned) -> None:
        """These records of a batch are the next to queue."""
        messages, lanes, sent = judged.messages, judged.given.lanes, planned.sent
        if len(sent) < messages.records:
            messages, lanes = messages.take(sent), [lanes[i] for i in sent]
        callbacks: list[Callback] = [None] * messages.records
        for key, mark in planned.marks:
            i = bisect_left(messages.addresses, mark.last_address)
            callbacks[i] = self._producer.reporting(key, mark.last_address, messages.times_ms[i])
        self._rows = MessageRows(messages, cast("list[LaneKey]", lanes), 0, 0, callbacks)
        self._rows.last = {key: mark.last_address for key, mark in planned.marks}

    def send(self) -> tuple[int, Refusal] | None:
        """Queues records while there is room. Returns the address of a record that the client refuses, and why."""
        producer, rows = self._producer, self._rows
        while rows is not None:
            begin, records = rows.at, rows.messages.records
            if begin == records:
                self._rows = None
                break
            if begin:
                producer.connection.serve()
            rows.end = min(begin + SERVE_EVERY, records)
            put = producer.put(rows)
            if put.refusal is not None:
                return rows.messages.addresses[rows.at], put.refusal
            if rows.at < rows.end:
                break
        return None
