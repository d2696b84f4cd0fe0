"""What test_cluster.py submits: `cluster_jobs.py JOB ROOT MEETING`. Runs as a program of its own, with
the package as it is shipped, on the driver as in the executors.

MEETING is a directory where tasks say how far they are, and wait for one another.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

from pyspark import TaskContext
from pyspark.sql import SparkSession

import aolog
import aolog.spark

ROWS = 200_000  # in four partitions
SLOW = 3  # the partition whose first attempt does not get on
root, meeting = sys.argv[2:]


def shipped() -> None:
    """Raises if the package is another than the wheel."""
    assert "/aolog-shipped.zip/" in aolog.__file__, aolog.__file__
    assert aolog.backend == "python", "no library is loaded out of a zip"


def say(name: str, text: str = "") -> None:
    """In one step."""
    hidden = Path(meeting, f".{name}")
    hidden.write_text(text)
    hidden.rename(Path(meeting, name))


def wait_for(path: str) -> None:
    while not Path(path).exists():
        time.sleep(0.01)


def say_executor() -> None:
    """A task's process is a child of its executor's daemon."""
    daemon = os.getppid()
    stat = Path(f"/proc/{daemon}/stat").read_text()
    say("executor", stat.rpartition(")")[2].split()[1])


def sink(spark: SparkSession, slow) -> None:
    """Rows of 100 bytes, in slabs of a frame each. slow: called in the slow partition, before its
    rows and in the midst of them."""

    def pass_on(batches):
        shipped()
        context = TaskContext.get()
        place = context.partitionId(), context.attemptNumber()
        for number, batch in enumerate(batches):
            if place[0] == SLOW:
                slow(place[1], number)
            yield batch

    frame = spark.range(0, ROWS, 1, 4).selectExpr("lpad(id, 100, ' ') AS value")
    frame.mapInArrow(pass_on, "value string").write.format("aolog").mode("append").option(
        "slabBytes", 65_536
    ).save(root)
    found = spark.read.format("aolog").load(root)
    print("read", found.count(), found.select("value").distinct().count())


def killed(spark: SparkSession) -> None:
    """The slow partition's first attempt is killed when it has written some."""

    def slow(attempt: int, batch: int) -> None:
        if attempt == 0 and batch == 3:
            say_executor()
            signal.pause()

    sink(spark, slow)


def speculated(spark: SparkSession) -> None:
    """The slow partition's first attempt goes on when all is committed, and not before."""

    def slow(attempt: int, batch: int) -> None:
        if batch == 0:
            say(f"attempt-{attempt}")
        if attempt == 0 and batch == 3:
            wait_for(f"{root}/published.jsonl")
            say("late")

    sink(spark, slow)


if __name__ == "__main__":
    shipped()
    session = SparkSession.builder.getOrCreate()
    aolog.spark.register(session)
    {"killed": killed, "speculated": speculated}[sys.argv[1]](session)
    session.stop()
