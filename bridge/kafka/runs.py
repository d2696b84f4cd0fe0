"""Consumed messages as columns: a run is messages of one partition, in its order; and the consumer that gets them so.

The columns are those of a log's frames, so that a run becomes one without an object for any of its records. What a
log cannot hold of a message is left out. `_produce.c`, if it could be compiled, reads messages before the client makes
an object of each: making these, and asking them, takes longer than all else.
"""

from __future__ import annotations

import logging
import time
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from itertools import compress, groupby
from typing import Any, NamedTuple

from confluent_kafka import Consumer, KafkaError, Message

from aolog.format.columns import BinaryColumn, Columns, columns_of, lone
from aolog.format.slab import NO_TIMESTAMP
from bridge.kafka.catalog import Place
from bridge.kafka.consumed import LeftOut, Pairs, headers_of, time_ms_of
from bridge.kafka.plugin import ARRIVALS, plugin

# A run ends when its keys and values have so many bytes: it becomes a frame, and a frame of large messages would need much
# memory to write and to read, and exceed the bound of a log.
BYTES_MAX = 512 << 10
_LOG_MS_MAX = ((1 << 63) - 1) // 1_000  # a log's times are microseconds
# How many a step takes. Columns: Python's calls of a step take a tenth of the time of 500, and the compiled half takes
# no more than this. Messages: the garbage collector visits those that are kept, and so few are released before it runs.
_COLUMNS_STEP, _MESSAGES_STEP = 1_000, 500


class Run(NamedTuple):
    """Messages of one partition, in its order."""

    place: Place
    offsets: array[int]  # rising
    columns: Columns  # timestamps (NO_TIMESTAMP for none), values, and keys if a message has one
    headers: list[Pairs | None] | None  # None if no message has any
    left_out: list[LeftOut | None] | None  # None if nothing was left out of any message

    def within(self, begin: int, end: int) -> Run:
        """The messages with offsets in [begin, end)."""
        place, offsets, columns, headers, left_out = self
        if begin <= offsets[0] and offsets[-1] < end:
            return self
        first = bisect_left(offsets, begin)
        last = max(first, bisect_left(offsets, end))
        return Run(
            place,
            offsets[first:last],
            columns.part(first, last),
            headers and headers[first:last],
            left_out and left_out[first:last],
        )

    def chosen(self, wanted: list[bool]) -> Run:
        """The messages for which it is true. Copies them, unless all are."""
        if all(wanted):
            return self
        rows = list(compress(self.rows(), wanted))
        return _run(self.place, rows) if rows else self.within(0, 0)

    def rows(self) -> Iterator[tuple[Any, ...]]:
        """The offset of each message, its time, key, value and headers, and what was left out."""
        _, offsets, columns, headers, left_out = self
        keys, values, times_us = columns.keys, columns.values, columns.timestamps
        assert values is not None
        assert times_us is not None
        nothing = [None] * columns.records
        return zip(
            offsets,
            times_us.cast("q"),
            nothing if keys is None else keys.to_list(),
            values.to_list(),
            headers or nothing,
            left_out or nothing,
            strict=True,
        )


def runs_of(messages: Iterable[Any], records_max: int) -> Iterator[Run]:
    """The runs of messages without errors, in order. A run has at most records_max messages, and ends at BYTES_MAX."""
    for place, of_place in groupby(
        messages, lambda message: (message.topic(), message.partition())
    ):
        rows: list[tuple[Any, ...]] = []
        size = 0
        for message in of_place:
            rows.append(_row(message))
            size += len(message) + len(message.key() or b"")
            if len(rows) == records_max or size >= BYTES_MAX:
                yield _run(place, rows)
                rows, size = [], 0
        if rows:
            yield _run(place, rows)


def _row(message: Any) -> tuple[Any, ...]:
    """What a log can hold of a message, as Run.rows has it."""
    pairs, unnamed = headers_of(message)
    time_ms = time_ms_of(message)
    is_kept = time_ms is None or abs(time_ms) <= _LOG_MS_MAX
    time_us = NO_TIMESTAMP if time_ms is None or not is_kept else 1_000 * time_ms
    left_out = None if is_kept and not unnamed else LeftOut(unnamed, None if is_kept else time_ms)
    return message.offset(), time_us, message.key(), message.value(), pairs or None, left_out


def _run(place: Place, rows: list[tuple[Any, ...]]) -> Run:
    offsets, times_us, keys, values, headers, left_out = zip(*rows, strict=True)
    columns = columns_of(values, timestamps=times_us, keys=_used(keys))
    return Run(place, array("q", offsets), columns, _used(headers), _used(left_out))


def _used(column: tuple[Any, ...]) -> list[Any] | None:
    return None if column.count(None) == len(column) else list(column)


def _compiled_run(
    place: Place,
    offsets: bytes,
    times_us: bytes,
    keys: Any,
    values: Any,
    headers: list[Pairs | None] | None,
    left_out: list[LeftOut | None] | None,
) -> Run:
    """From what the compiled half returns."""
    numbers = array("q", offsets)
    timestamps = memoryview(times_us)
    columns = Columns(
        len(numbers), None, _column(*values), timestamps, None if keys is None else _column(*keys)
    )
    return Run(place, numbers, columns, headers, left_out)


def _column(present: bytes | None, offsets: bytes, data: bytes) -> BinaryColumn:
    validity = None if present is None else memoryview(present)
    return BinaryColumn(validity, memoryview(offsets), memoryview(data))


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
        return [_compiled_run(*each) for each in runs], failed

    def close(self) -> None:
        """Leaves the cluster."""
        self._arrivals = None
        super().close()


def numbered(prefix: bytes, numbers: array[int]) -> BinaryColumn:
    """A column of the prefix and each number, in decimal."""
    compiled = plugin()
    if compiled is not None:
        return _column(*compiled.half.numbered(prefix, numbers))
    found = columns_of([b"%b%d" % (prefix, number) for number in numbers])
    return found.values or lone(found.value)
