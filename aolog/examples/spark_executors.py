"""Spark executors that write records as they work, each task to a log of its own.

    python -m aolog.examples.spark_executors LOGS < lines

A job checks lines; each task appends the ones that it rejects, with the reason as a header, to a log on its
executor's disk. No driver collects them, no table is written, and Kafka may be down. On each machine a bridge
drains what is there: `aolog-bridge run --root LOGS --topic rejected`. A task that is repeated writes its
records again, to another log; where that must not be, write a table with `df.write.format("aolog")`.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import aolog.spark

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import DataFrame, Row


def reason_of(line: str) -> str | None:
    """Why a line is not a measurement (NAME NUMBER); None if it is one."""
    name, _, number = line.partition(" ")
    if not name or not number:
        return "not two words"
    try:
        float(number)
    except ValueError:
        return "no number"
    return None


def write_rejected(frame: DataFrame, root: str) -> None:
    """Runs the job. The records of each task survive power loss when the task ends."""

    def save(rows: Iterable[Row]) -> None:
        with aolog.spark.writer_per_task(root, prefix="rejected", topic="rejected") as log:
            for row in rows:
                if (reason := reason_of(row.value)) is not None:
                    log.append(row.value.encode(), headers=(("reason", reason.encode()),))

    frame.foreachPartition(save)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    from pyspark.sql import SparkSession

    aolog.spark.ensure_java()
    spark = SparkSession.builder.getOrCreate()
    aolog.spark.register(spark)
    lines = [(line.rstrip("\n"),) for line in sys.stdin]
    write_rejected(spark.createDataFrame(lines, "value string"), sys.argv[1])
    reasons = "headers[0].value"
    found = spark.read.format("aolog").option("includeHeaders", value=True).load(sys.argv[1])
    found.selectExpr("cast(value as string)", f"cast({reasons} as string) as reason").show(10)
