"""A consumer that takes messages as columns, if `_produce.c` could be compiled.

The compiled half reads messages before the client makes an object of each: making these, and asking them, takes longer
than all else.
"""

from __future__ import annotations

import logging
import time
from itertools import repeat
from typing import Any

from confluent_kafka import Consumer, KafkaError, Message

from aolog.record import Headers
from bridge.kafka.consumed import LeftOut
from bridge.kafka.plugin import ARRIVALS, plugin
from bridge.kafka.runs import BYTES_MAX, Run

# How many a step takes. Columns: Python's calls of a step take a tenth of the time of 500, and the compiled half takes
# no more than this. Messages: the garbage collector visits those that are kept, and so few are released before it runs.
_COLUMNS_STEP, _MESSAGES_STEP = 1_000, 500


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
        """What `consume` gives: messages as runs, or as messages; and errors, as messages. records_max: of a run; None:
        no runs. After a rebalance a message may come again, in a later run."""
        if self._arrivals is None or records_max is None:
            return [], self.consume(count, timeout=timeout_s)
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
