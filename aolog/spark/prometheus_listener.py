"""A `StreamingQueryListener` that serves the loss and the lag of queries to Prometheus.

Spark calls it in a thread of its own, Prometheus in another: each query's state is a value that is
replaced.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, NamedTuple

from prometheus_client import REGISTRY
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from pyspark.sql.streaming.listener import StreamingQueryListener

from aolog.errors import UsageError
from aolog.spark.monitoring import QueryLag, lag

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from prometheus_client.core import Metric
    from prometheus_client.registry import CollectorRegistry

PREFIX = "aolog_spark_"


class _State(NamedTuple):
    """A query. run: its id. name: its name, else its id. rows: since it was started. at: of the last progress,
    in seconds since the epoch."""

    run: str
    name: str
    lag: QueryLag
    rows: int
    batch: int
    at: float


class _Family(NamedTuple):
    """name: without the prefix, and without `_total`. label: beside the query's. values: by this label."""

    name: str
    meaning: str
    label: str | None
    values: Callable[[_State], dict[str, float | None]]
    is_counter: bool = False


def _one(value: float | None) -> dict[str, float | None]:
    return {"": value}


FAMILIES = (
    _Family("lag_records", "records that the query has not read", None,
            lambda q: _one(q.lag.total.records)),
    _Family("lag_bytes", "their bytes", None, lambda q: _one(q.lag.total.bytes)),
    _Family("lag_seconds", "the age of the oldest of them", None,
            lambda q: _one(q.lag.total.seconds)),
    _Family("log_lag_records", "lag_records of one log; the 100 furthest behind", "log",
            lambda q: {name: each.records for name, each in q.lag.logs.items()}),
    _Family("log_lag_bytes", "lag_bytes of one log", "log",
            lambda q: {name: each.bytes for name, each in q.lag.logs.items()}),
    _Family("log_lag_seconds", "lag_seconds of one log", "log",
            lambda q: {name: each.seconds for name, each in q.lag.logs.items()}),
    _Family("records_lost", "records that the query did not read and will not read", "reason",
            lambda q: dict(q.lag.lost), is_counter=True),
    _Family("losses_uncounted", "losses of an unknown number of records", "reason",
            lambda q: dict(q.lag.uncounted), is_counter=True),
    _Family("rows", "rows that the query read", None, lambda q: _one(q.rows), is_counter=True),
    _Family("batch", "the number of the last batch", None, lambda q: _one(q.batch)),
    _Family("progress_timestamp_seconds", "when Spark last reported progress", None,
            lambda q: _one(q.at)),
)  # fmt: skip  # a table


class Listener(StreamingQueryListener):
    """For `spark.streams.addListener`. registry: Prometheus's; None for the default one. Queries that read
    no logs are ignored; a query that ends is removed."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        self._queries: dict[str, _State] = {}  # by name: Prometheus refuses a label twice
        (registry or REGISTRY).register(self)

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802 -- Spark's name
        """Does nothing."""

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802 -- Spark's name
        """Notes that the query is alive."""
        run, now = str(event.runId), time.time()
        self._queries = {
            name: query._replace(at=now) if query.run == run else query
            for name, query in self._queries.items()
        }

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802 -- Spark's name
        """Removes the query."""
        run = str(event.runId)
        self._queries = {name: q for name, q in self._queries.items() if q.run != run}

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802 -- Spark's name
        """Takes the progress."""
        progress = event.progress
        try:
            found = lag(progress)
        except UsageError:
            return  # it reads no logs, or repeats a batch after a restart
        run, name = str(progress.runId), progress.name or str(progress.id)
        before = self._queries.get(name)
        rows = progress.numInputRows
        if before is not None and before.run == run:
            rows += before.rows
        state = _State(run, name, found, rows, progress.batchId, time.time())
        self._queries = self._queries | {name: state}

    def collect(self) -> Iterator[Metric]:
        """For Prometheus."""
        queries = self._queries.values()
        for family in FAMILIES:
            labels = ["query", family.label] if family.label else ["query"]
            kind = CounterMetricFamily if family.is_counter else GaugeMetricFamily
            metric = kind(PREFIX + family.name, family.meaning, labels=labels)
            for query in queries:
                for label, value in family.values(query).items():
                    if value is not None:
                        names = [query.name, label] if family.label else [query.name]
                        metric.add_metric(names, value)
            yield metric
