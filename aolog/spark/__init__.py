"""Logs as tables and streams of Spark, and the log inside its executors.

    import aolog.spark

    aolog.spark.register(spark)
    events = spark.read.format("aolog").load("/var/lib/app")

Reads and writes with PySpark's Python Data Source API (4.2 or later), Arrow throughout. Columns and
options have the names that Spark's Kafka source gives them. This room does not import the bridge;
only `kafka_sink` imports a Kafka client. Importing the package imports neither Spark nor Arrow.

Reading order, for reads: options_parsing and options, schema, listing (which logs exist), planning (which
task reads what), reading (what a task does), datasource (batches), stream, positions, batch_limits,
batch_delay and watching (streams), backlog (a stream's progress), scanning (without Spark's data
source), pushdown and query_filters (what a filter excludes). For writes: sink_options, sink,
batch_content, routing; executor_writer (a Writer inside a task). `skipped` counts what tasks skip;
`monitoring` and `prometheus_listener` read the progress. `verification` checks logs in tasks.
`pipeline`, `transfer`, `kafka_sink` and `origins` are the command that moves logs with Spark.
`session`, `java` and `shipping` prepare Spark and its workers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aolog.errors import UsageError, install_command, load_optional
from aolog.spark.executor_writer import writer_per_task
from aolog.spark.java import ensure_java, make_active, use_this_python
from aolog.spark.monitoring import QueryLag, lag
from aolog.spark.scanning import scan
from aolog.spark.skipped import Lost, counter, losses
from aolog.spark.verification import LogVerified, Verified, verify

if TYPE_CHECKING:
    from prometheus_client.registry import CollectorRegistry
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.listener import StreamingQueryListener

__all__ = ["LogVerified", "Lost", "QueryLag", "Verified", "ensure_java", "lag", "listener", "losses",
           "register", "scan", "verify", "writer_per_task"]  # fmt: skip  # names


def register(spark: SparkSession) -> None:
    """`format("aolog")` works in this session, for batches and streams, and in this thread: a thread of
    a pool that writes calls it too. May be repeated. With a local master and no `PYSPARK_PYTHON`,
    Spark's workers use this Python from here on. With Spark Connect, aolog must be installed on the
    server, and the paths are the server's. Raises UsageError without a PySpark that has data sources
    in Python."""
    try:
        from aolog.spark.datasource import PUSHES, source_class

        source: Any = source_class(counter(spark))
    except ImportError as error:
        raise UsageError(
            f"PySpark 4.2 or later, and pyarrow, are needed: {error}", hint=install_command("spark")
        ) from None
    use_this_python(spark)
    spark.dataSource.register(source)
    if PUSHES:
        spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    make_active(spark)


def listener(registry: CollectorRegistry | None = None) -> StreamingQueryListener:
    """For `spark.streams.addListener`: the loss and the lag of all queries that read logs, as metrics of
    prometheus_client, whose names begin with `aolog_spark_`. registry: where it is registered; None:
    prometheus_client's own. Raises UsageError without prometheus_client or PySpark."""
    made: StreamingQueryListener = load_optional("aolog.spark.prometheus_listener").Listener(
        registry
    )
    return made
