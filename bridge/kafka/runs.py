"""The client's messages as columns: a run is messages of one partition, in its order.

Columns take the place of messages at once, because the garbage collector visits each message that is kept,
and never looks into columns of bytes and numbers.
"""

from __future__ import annotations

from bisect import bisect_left
from itertools import compress, pairwise
from operator import ne
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from confluent_kafka import Message

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from bridge.kafka.catalog import Place

Pairs: TypeAlias = "Sequence[tuple[str, bytes | None]]"


class Run(NamedTuple):
    """offsets: rising. keys, headers: None if no message has one."""

    place: Place
    offsets: list[int]
    timestamps_us: list[int]
    keys: list[bytes | None] | None
    headers: list[Pairs | None] | None
    values: list[bytes | None]

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
    """The runs of messages without errors, in order; none has more records."""
    if not messages:
        return
    # Each of the client's methods is called for all messages by `map`, which takes a third of a loop.
    topics: list[Any] = list(map(Message.topic, messages))
    numbers: list[Any] = list(map(Message.partition, messages))
    timestamps_us = [1_000 * stamp for _, stamp in map(Message.timestamp, messages)]
    offsets: list[Any] = list(map(Message.offset, messages))
    whole = Run(
        (topics[0], numbers[0]),
        offsets,
        timestamps_us,
        _used(list(map(Message.key, messages))),
        _used(list(map(Message.headers, messages))),
        list(map(Message.value, messages)),
    )
    each = range(1, len(messages))
    changes = {0, len(messages)}
    for column in (topics, numbers):
        if column.count(column[0]) < len(column):
            changes.update(compress(each, map(ne, column[1:], column)))
    for begin, end in pairwise(sorted(changes)):
        for first in range(begin, end, records_max):
            yield whole.cut(first, min(end, first + records_max))._replace(
                place=(topics[begin], numbers[begin])
            )


def _used(column: list[Any]) -> list[Any] | None:
    return None if column[0] is None and column.count(None) == len(column) else column
