"""What tasks skip, counted on the driver: the gaps that `failOnDataLoss=false` and `onCorruption=skip` allow.

Tasks add to an accumulator, which Spark merges on the driver when a task has succeeded. It is made with the
first `register`, and comes to the tasks in the options of a read. A task that Spark runs again after it
succeeded counts twice. With Spark Connect there is none. Imports no Spark when it is loaded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from aolog.errors import counted, warn

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from aolog.record import Gap
    from aolog.spark.planning import Piece

LOGS_MAX = 1000  # times reasons; the rest is one line, as a driver may run for months
OTHER = "other"
QUERY_ID = "sql.streaming.queryId"  # a local property of each task of a stream

_Counts = dict[tuple[str, str, str], tuple[int, int]]
_counters: dict[str, Any] = {}  # by application; empty in the processes of tasks


class Lost(NamedTuple):
    """query: the id of a stream; None for batches. log: its name in the stream; the path for batches.
    records: as far as they could be counted. uncounted: gaps without a number of records."""

    query: str | None
    log: str
    reason: str
    records: int
    uncounted: int


class _Counting:
    """How the accumulator adds: an `AccumulatorParam` by its methods. A sum is a new value, which other
    threads may hold."""

    def zero(self, _value: _Counts) -> _Counts:
        return {}

    def addInPlace(self, total: _Counts, more: _Counts) -> _Counts:  # noqa: N802 -- Spark's name
        made = dict(total)
        for (query, log, reason), (records, uncounted) in more.items():
            key = (query, log, reason)
            if key not in made and len(made) >= LOGS_MAX:
                key = ("", OTHER, reason)
            before = made.get(key, (0, 0))
            made[key] = (before[0] + records, before[1] + uncounted)
            if _counters:
                _tell(Lost(query or None, log, reason, records, uncounted))
        return made


def _tell(lost: Lost) -> None:
    """In the driver's log."""
    where = lost.log if lost.query is None else f"query {lost.query}: log {lost.log!r}"
    more = f", and {counted(lost.uncounted, 'gap')} without a count" if lost.uncounted else ""
    text = counted(lost.records, "record", ",")
    warn("%s: a task skipped %s (%s)%s", where, text, lost.reason, more)


def counter(spark: SparkSession) -> Any:
    """The accumulator of this application; None with Spark Connect."""
    context = getattr(spark, "sparkContext", None)
    if context is None:
        return None
    name = context.applicationId
    if name not in _counters:
        _counters[name] = context.accumulator({}, _Counting())
    return _counters[name]


def count_gap(counter: Any, piece: Piece, gap: Gap) -> None:
    """In a task: counts the gap. A torn end was never acknowledged, so it is not a loss."""
    from pyspark import TaskContext

    if counter is None or gap.reason == "torn":
        return
    context = TaskContext.get()
    query = (context.getLocalProperty(QUERY_ID) if context is not None else None) or ""
    lost = (gap.records_lost or 0, int(gap.records_lost is None))
    counter.add({(query, piece.name if query else piece.path, gap.reason): lost})


def losses(spark: SparkSession) -> list[Lost]:
    """What tasks of this application skipped since `register`, of batches and of streams. Empty with
    Spark Connect, where only the executors' logs have it."""
    made = counter(spark)
    return [] if made is None else list(_rows(made.value))


def losses_of(query: str) -> list[Lost]:
    """What tasks of the stream with this id skipped, in the applications of this process."""
    rows = (row for made in _counters.values() for row in _rows(made.value))
    return [row for row in rows if row.query == query]


def _rows(counts: _Counts) -> Iterator[Lost]:
    for (query, log, reason), (records, uncounted) in counts.items():
        yield Lost(query or None, log, reason, records, uncounted)
