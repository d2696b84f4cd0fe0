"""Consumed messages as columns: a run is messages of one partition, in its order; and a consumer that takes them so.

Columns take the place of messages at once, because the garbage collector visits each message that is kept,
and never looks into columns of bytes and numbers. What a log cannot hold of a message is left out. `_produce.c`, if it
could be compiled, reads messages before the client makes an object of each: making these, and asking them, takes
longer than all else.
"""

from __future__ import annotations

import logging
import time
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from itertools import compress, groupby, repeat
from typing import Any, NamedTuple

from confluent_kafka import Consumer, KafkaError, Message

from aolog.format.slab import NO_TIMESTAMP
from aolog.record import Headers
from bridge.kafka.catalog import Place
from bridge.kafka.consumed import LeftOut, Pairs, headers_of, time_ms_of
from bridge.kafka.plugin import ARRIVALS, plugin

# A run ends when its values have so many bytes: it becomes a frame, and a frame of large messages would need much
# memory to write and to read, and exceed the bound of a log.
BYTES_MAX = 512 << 10
_LOG_MS_MAX = ((1 << 63) - 1) // 1_000  # a log's times are microseconds
# How many a step takes. Columns: Python's calls of a step take a tenth of the time of 500, and the compiled half takes
# no more than this. Messages: the garbage collector visits those that are kept, and so few are released before it runs.
_COLUMNS_STEP, _MESSAGES_STEP = 1_000, 500


class Run(NamedTuple):
    """Messages of one partition, in its order."""

    place: Place
    offsets: list[int]  # rising
    timestamps_us: list[int]  # NO_TIMESTAMP for none
    keys: list[bytes | None] | None  # None if no message has one, as headers
    headers: list[Pairs | None] | None
    values: list[bytes | None]
    left_out: list[LeftOut | None] | None  # None if nothing was left out of any message

    def within(self, begin: int, end: int) -> Run:
        """The messages with offsets in [begin, end)."""
        offsets = self.offsets
        if begin <= offsets[0] and offsets[-1] < end:
            return self
        first, last = bisect_left(offsets, begin), bisect_left(offsets, end)
        return self._each(lambda column: column[first:last])

    def chosen(self, wanted: list[bool]) -> Run:
        """The messages for which it is true."""
        return self._each(lambda column: list(compress(column, wanted)))

    def _each(self, change: Callable[[list[Any]], list[Any]]) -> Run:
        place, *columns = self
        changed: list[Any] = [None if column is None else change(column) for column in columns]
        return Run(place, *changed)


def runs_of(messages: Iterable[Any], records_max: int) -> Iterator[Run]:
    """The runs of messages without errors, in order; none has more records, and each ends at BYTES_MAX."""
    for place, of_place in groupby(
        messages, lambda message: (message.topic(), message.partition())
    ):
        rows: list[tuple[Any, ...]] = []
        size = 0
        for message in of_place:
            rows.append(_row(message))
            size += len(message)
            if len(rows) == records_max or size >= BYTES_MAX:
                yield _run(place, rows)
                rows, size = [], 0
        if rows:
            yield _run(place, rows)


def _row(message: Any) -> tuple[Any, ...]:
    """What a log can hold of a message, in the order of Run's columns."""
    pairs, unnamed = headers_of(message)
    time_ms = time_ms_of(message)
    is_kept = time_ms is None or abs(time_ms) <= _LOG_MS_MAX
    time_us = NO_TIMESTAMP if time_ms is None or not is_kept else 1_000 * time_ms
    left_out = None if is_kept and not unnamed else LeftOut(unnamed, None if is_kept else time_ms)
    return message.offset(), time_us, message.key(), pairs or None, message.value(), left_out


def _run(place: Place, rows: list[tuple[Any, ...]]) -> Run:
    offsets, times_us, keys, headers, values, left_out = map(list, zip(*rows, strict=True))
    return Run(place, offsets, times_us, _used(keys), _used(headers), values, _used(left_out))


def _used(column: list[Any]) -> list[Any] | None:
    return None if column.count(None) == len(column) else column


class ColumnConsumer(Consumer):
    """The client's, and `take`. One thread."""

    def __init__(
        self,
        settings: dict[str, Any],
        *,
        logger: logging.Logger | logging.LoggerAdapter[logging.Logger],
    ) -> None:
        compiled = plugin()
        self._arrivals: Any = None
        if compiled is not None:
            settings = compiled.begin(settings, ARRIVALS)
        super().__init__(settings, logger=logger)
        if compiled is not None:
            self._half, self._arrivals = compiled.half, compiled.half.arrivals()
        self.step = _MESSAGES_STEP if self._arrivals is None else _COLUMNS_STEP

    def take(
        self, count: int, timeout_s: float, records_max: int | None
    ) -> tuple[list[Run], list[Any]]:
        """What `consume` gives: runs and errors, as messages. records_max: of a run; None: no runs, only messages.
        After a rebalance a message may come again, in a later run."""
        if self._arrivals is None or records_max is None:
            arrived = self.consume(count, timeout=timeout_s)
            if records_max is None:
                return [], arrived
            good = [message for message in arrived if message.error() is None]
            return list(runs_of(good, records_max)), [m for m in arrived if m.error() is not None]
        self._half.want(self._arrivals, count, int(1_000 * timeout_s))
        failed: list[Any] = []
        left_s, until_s = timeout_s, time.monotonic() + timeout_s
        while len(failed) < count and (arrived := self.consume(1, timeout=left_s)):
            if arrived[0].error() is None:  # it, and those that follow, are among the columns
                break
            failed += arrived
            left_s = max(0.0, until_s - time.monotonic())
        runs, errors = self._half.columns(self._arrivals, records_max, BYTES_MAX, LeftOut)
        for topic, partition, offset, *error in errors:
            failed.append(Message(topic, partition, offset, error=KafkaError(*error)))
        return [Run(*each) for each in runs], failed

    def close(self) -> None:
        """Leaves the cluster."""
        self._arrivals = None
        super().close()


def numbered_headers(name: str, prefix: bytes, numbers: list[int]) -> list[Headers]:
    """Headers for each number: a pair of the name, and the prefix with the number in decimal."""
    compiled = plugin()
    found: list[Headers] | None = None
    if compiled is not None:
        found = compiled.half.headers(name, prefix, numbers)
    if found is None:
        values = map((prefix.replace(b"%", b"%%") + b"%d").__mod__, numbers)
        found = list(zip(zip(repeat(name), values, strict=False)))  # a tuple of one pair for each
    return found
