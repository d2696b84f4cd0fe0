"""A producer that takes rows: from their columns, if `_produce.c` could be compiled, otherwise by one
call of the client's for each.

The compiled half gets the producer's handle (plugin.py), and queues with the function that the client's own
call ends in. A row that it does not take (it has a callback, or is invalid) goes through that call, which
raises the error. It can also note the messages that fail, so that none needs a callback.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

from confluent_kafka import Producer

from bridge.kafka.messages import MessageRows
from bridge.kafka.plugin import FAILURES, NOTHING, plugin

VALUE_BYTES_MIN = 512  # on average: copying a shorter value costs less than keeping it (measured)
Failure: TypeAlias = "tuple[bytes, bytes | None, bytes | None, int]"
"""Topic, value and key of a message, and the code of its error."""


class Held:
    """The values of a batch. release: gives them back. bytes: their size."""

    def __init__(self, release: Callable[[], object], size: int) -> None:
        self.release, self.bytes = release, size


class RowProducer(Producer):
    """The client's, and `put`. Not thread-safe: one thread puts. Never closed: it ends when nothing refers to it.
    reports: whether `failures` may be called.

    queue_all: queues messages of a set of topics for the partitions that the client chooses, from an index of a list
    on; returns the index of the first that is not plain, or that the client refuses. None without reports, or if it
    could not be compiled: then there are no failures either."""

    def __init__(
        self,
        settings: dict[str, Any],
        *,
        logger: logging.Logger | logging.LoggerAdapter[logging.Logger],
        reports: bool = False,
    ) -> None:
        compiled = plugin()
        self._put: Callable[..., int] | None = None
        self._keep: tuple[Callable[..., object], Callable[[object], object]] | None = None
        self.queue_all: Callable[[set[str], list[Any], int], int] | None = None
        self._failures: Callable[[], list[Failure | None] | None] = lambda: None
        if compiled is not None:
            settings = compiled.begin(settings, FAILURES if reports else NOTHING)
        super().__init__(settings, logger=logger)
        if compiled is not None and (queue := compiled.half.queue()) is not None:
            half = compiled.half
            self._put, self._keep = partial(half.put, queue), (half.keep, half.release)
            self._failures = partial(half.failures, queue)
            if reports and self._failures() is not None:
                self.queue_all = partial(half.produce_all, queue)

    def put(self, rows: MessageRows) -> None:
        """Queues all of them, in order. Raises what `produce` raises, about the row at `rows.at`."""
        put, columns = self._put, rows.columns()
        while rows.at < rows.end:
            end = rows.end
            if put is not None and columns is not None:
                rows.at = put(*columns, rows.at, end, rows.is_kept)
                end = min(rows.at + 1, end)  # one that it does not take
            for row in rows.calls(end):
                self.produce(*row)
                rows.at += 1

    def keep(self, rows: MessageRows, size_max: int) -> Held | None:
        """Keeps the rows' values where they are for `put`, which copies none then: until they are released. None: they
        are to be copied, as they are no columns, too short, or larger than size_max together."""
        values: list[Any] = rows.messages.values
        if self._keep is None or not rows.messages.firsts:
            return None
        size = sum(len(column.data) for column in values)
        if not VALUE_BYTES_MIN * rows.messages.records <= size <= size_max:
            return None
        rows.is_kept = True
        keep, release = self._keep
        return Held(partial(release, keep(values)), size)

    def failures(self) -> list[Failure | None]:
        """The messages that failed since the last call, in order, whatever queued them. An entry None: some
        more failed, for which there was no memory. The client notes one before it reports it, or counts it as done."""
        return self._failures() or []
