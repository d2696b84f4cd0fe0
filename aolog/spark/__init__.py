"""Logs as tables and streams of Spark, and the log inside its executors.

    import aolog.spark

    aolog.spark.register(spark)
    events = spark.read.format("aolog").load("/var/lib/app")

Reads and writes with PySpark's Python Data Source API (4.1 or later), Arrow throughout. Columns
and options are named as Spark's Kafka source names them. Importing this imports neither Spark nor
Arrow: both are needed when it is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aolog.errors import UsageError, install_command
from aolog.spark.executor_writer import writer_per_task
from aolog.spark.java import ensure_java, use_this_python
from aolog.spark.scanning import scan
from aolog.spark.verification import LogVerified, Verified, verify

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["LogVerified", "Verified", "ensure_java", "register", "scan", "verify",
           "writer_per_task"]  # fmt: skip  # names


def register(spark: SparkSession) -> None:
    """`format("aolog")` works in this session, for batches and streams. Repeatable. With a local
    master and no `PYSPARK_PYTHON`, Spark's workers are this Python from here on. With Spark
    Connect, aolog must be installed where the server is, and the paths are the server's. Raises
    UsageError without a PySpark that has data sources in Python."""
    try:
        from aolog.spark.datasource import source_class

        source: Any = source_class()
    except ImportError as error:
        raise UsageError(
            f"PySpark 4.1 or later, and pyarrow, are needed: {error}",
            hint=install_command("spark"),
        ) from None
    use_this_python(spark)
    spark.dataSource.register(source)
