"""The client's messages as columns: a run is messages of one partition, in its order.

Columns take the place of messages at once, because the garbage collector visits each message that is kept,
and never looks into columns of bytes and numbers. What a log cannot hold of a message is left out.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator
from itertools import accumulate, compress, pairwise
from operator import ne
from typing import Any, NamedTuple

from confluent_kafka import Message

from aolog.format.slab import NO_TIMESTAMP
from bridge.kafka.catalog import Place
from bridge.kafka.consumed import LeftOut, Pairs, headers_column, time_ms_of, usable_ms

# A run ends when its values have so many bytes: it becomes a frame, and a frame of large messages would need much
# memory to write and to read, and exceed the bound of a log.
BYTES_MAX = 512 << 10
_LOG_MS_MAX = ((1 << 63) - 1) // 1_000  # a log's times are microseconds


class Run(NamedTuple):
    """Messages of one partition, in its order."""

    place: Place
    offsets: list[int]  # rising
    timestamps_us: list[int]  # NO_TIMESTAMP for none
    keys: list[bytes | None] | None  # None if no message has one, as headers
    headers: list[Pairs | None] | None
    values: list[bytes | None]
    left_out: list[LeftOut | None] | None  # None if nothing was left out of any message

    def cut(self, begin: int, end: int) -> Run:
        """The messages with these indices."""
        return self._each(lambda column: column[begin:end])

    def within(self, begin: int, end: int) -> Run:
        """The messages with offsets in [begin, end)."""
        offsets = self.offsets
        if begin <= offsets[0] and offsets[-1] < end:
            return self
        return self.cut(bisect_left(offsets, begin), bisect_left(offsets, end))

    def chosen(self, wanted: list[bool]) -> Run:
        """The messages for which it is true."""
        return self._each(lambda column: list(compress(column, wanted)))

    def _each(self, change: Callable[[list[Any]], list[Any]]) -> Run:
        place, *columns = self
        changed: list[Any] = [None if column is None else change(column) for column in columns]
        return Run(place, *changed)


def runs_of(messages: list[Any], records_max: int) -> Iterator[Run]:
    """The runs of messages without errors, in order; none has more records, and each ends at BYTES_MAX. Each of the client's methods is called
    for all messages by `map`, which takes a third of a loop."""
    changes = {0}
    for of in (Message.topic, Message.partition):
        column: list[Any] = list(map(of, messages))
        if column.count(column[0] if column else None) < len(column):
            changes.update(compress(range(1, len(column)), map(ne, column[1:], column)))
    for begin, end in pairwise([*sorted(changes), len(messages)]):
        at = begin
        while at < end:
            run = messages[at : min(end, at + records_max)]
            bytes_to = list(accumulate(map(len, run)))
            run = run[: bisect_left(bytes_to, BYTES_MAX) + 1]
            yield _run(run)
            at += len(run)


def _run(messages: list[Any]) -> Run:
    headers, unnamed = headers_column(messages)
    offsets: list[Any] = list(map(Message.offset, messages))
    stamps = map(Message.timestamp, messages)
    timestamps_us = [
        1_000 * ms if kind and 0 <= ms <= _LOG_MS_MAX else _odd_us(kind, ms) for kind, ms in stamps
    ]
    return Run(
        (messages[0].topic(), messages[0].partition()),
        offsets,
        timestamps_us,
        _used(list(map(Message.key, messages))),
        _used(headers),
        list(map(Message.value, messages)),
        _left_out(messages, timestamps_us, unnamed),
    )


def _used(column: list[Any]) -> list[Any] | None:
    return None if column[0] is None and column.count(None) == len(column) else column


def _odd_us(kind: int, time_ms: int) -> int:
    """The microseconds of a time that is missing, before 1970, or beyond what a log can hold."""
    usable = usable_ms(kind, time_ms)
    if usable is None or not -_LOG_MS_MAX <= usable <= _LOG_MS_MAX:
        return NO_TIMESTAMP
    return 1_000 * usable


def _left_out(
    messages: list[Any], timestamps_us: list[int], unnamed: dict[int, int]
) -> list[LeftOut | None] | None:
    found = {i: LeftOut(headers) for i, headers in unnamed.items()}
    if NO_TIMESTAMP in timestamps_us:
        for i, us in enumerate(timestamps_us):
            if us == NO_TIMESTAMP and (time_ms := time_ms_of(messages[i])) is not None:
                found[i] = LeftOut(unnamed.get(i, 0), time_ms)
    return [found.get(i) for i in range(len(messages))] if found else None
