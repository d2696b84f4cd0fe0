"""What a read skips, counted on the driver: the gaps that `failOnDataLoss=false` and `onCorruption=skip` allow.

Tasks add to an accumulator, which Spark merges on the driver when a task has succeeded. It is made with the
first `register`, and comes to the tasks in the options of a read. The processes that plan a read have no
accumulator: what they find lost is in the plan, and a task counts it. A task that Spark runs again after it
succeeded counts twice. With Spark Connect there is none. Imports no Spark when it is loaded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from aolog.errors import counted, warn

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from aolog.record import Gap
    from aolog.spark.planning import Piece

LOGS_MAX = 1000  # times reasons; the rest is one line, as a driver may run for months
OTHER = "other"
QUERY_ID = "sql.streaming.queryId"  # a local property of each task of a stream

# By query, log, reason, and whether it was found by the plan.
_Counts = dict[tuple[str, str, str, bool], tuple[int, int]]
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
        for key, (records, uncounted) in more.items():
            query, log, reason, planned = key
            is_full = key not in made and len(made) >= LOGS_MAX
            kept = ("", OTHER, reason, planned) if is_full else key
            before = made.get(kept, (0, 0))
            made[kept] = (before[0] + records, before[1] + uncounted)
            if _counters:
                _tell(Lost(query or None, log, reason, records, uncounted), planned=planned)
        return made


def _tell(lost: Lost, *, planned: bool) -> None:
    """In the driver's log."""
    where = lost.log if lost.query is None else f"query {lost.query}: log {lost.log!r}"
    more = f", and {counted(lost.uncounted, 'gap')} without a count" if lost.uncounted else ""
    text = counted(lost.records, "record", ",")
    who = "the plan" if planned else "a task"
    warn("%s: %s skipped %s (%s)%s", where, who, text, lost.reason, more)


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
    """In a task: counts the gap, which the task met or which is the piece's. A torn end was never
    acknowledged, so it is not a loss."""
    from pyspark import TaskContext

    if counter is None or gap.reason == "torn":
        return
    context = TaskContext.get()
    query = (context.getLocalProperty(QUERY_ID) if context is not None else None) or ""
    lost = (gap.records_lost or 0, int(gap.records_lost is None))
    name = piece.name if query else piece.path
    counter.add({(query, name, gap.reason, piece.lost is not None): lost})


def losses(spark: SparkSession) -> list[Lost]:
    """What reads of this application skipped since `register`, batches and streams. Empty with Spark
    Connect, where only the executors' logs have it."""
    made = counter(spark)
    return [] if made is None else _rows(made.value)


def losses_of(query: str, *, planned: bool) -> list[Lost]:
    """What the stream with this id skipped in the applications of this process: in tasks, or when its
    batches were planned."""
    counts = [
        {key: count for key, count in made.value.items() if (key[0], key[3]) == (query, planned)}
        for made in _counters.values()
    ]
    return [row for each in counts for row in _rows(each)]


def _rows(counts: _Counts) -> list[Lost]:
    found: dict[tuple[str, str, str], Lost] = {}
    for (query, log, reason, _), (records, uncounted) in counts.items():
        before = found.get((query, log, reason), Lost(None, "", "", 0, 0))
        found[query, log, reason] = Lost(
            query or None, log, reason, before.records + records, before.uncounted + uncounted
        )
    return list(found.values())
