"""Whether a batch of a stream waits for more records: `minOffsetsPerTrigger` and `maxTriggerDelay`."""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING

from aolog.spark.listing import check_counts
from aolog.spark.positions import located, position_in, records_between

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from aolog.spark.options import Options
    from aolog.spark.planning import Span
    from aolog.spark.positions import LogPosition


class BatchDelay:
    """Of one query. As in Spark's Kafka source, the first batch never waits."""

    def __init__(self, options: Options) -> None:
        self._least = options.min_records_per_trigger
        self._delay_s = options.max_trigger_delay_s
        self._last_s: float | None = None  # when the last batch began

    def holds(self, backlog: Iterable[Span], begins: Mapping[str, LogPosition]) -> bool:
        """Whether the batch waits; otherwise it begins now. begins: where each log was read up to. Raises
        UsageError for a log that does not count its records."""
        backlog = list(backlog)
        if not backlog or self._least is None:
            return False
        now = monotonic()
        is_due = self._last_s is None or now - self._last_s >= self._delay_s
        if not is_due and _records(backlog, begins) < self._least:
            return True
        self._last_s = now
        return False


def _records(backlog: Iterable[Span], begins: Mapping[str, LogPosition]) -> float:
    """What waits; infinite if it is unknown, so that nothing waits for ever."""
    total = 0
    for log, since, until, *_ in backlog:
        check_counts(log, "minOffsetsPerTrigger", "leave it out")
        begin = begins.get(log.name) or located(log, since)
        count = records_between(begin, position_in(log, until))
        if count is None:
            return float("inf")
        total += count
    return total
