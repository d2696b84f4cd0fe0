"""A campaign's jobs as tasks of Spark: for long ones, over a cluster.

A round is a task a job; the next one goes on where each of them stopped, so cases are those of the
same campaign in one place, each once. A task that is killed is a round of one job again. What
workers need is aolog, installed, and Python's packages that it needs; `fuzz` is sent along.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from fuzz.campaign import Plan, Told

__all__ = ["ROUND_S", "by_tasks", "session"]

ROUND_S = 30.0  # what is told, and repeated where an executor is lost, at once


@contextmanager
def session(master: str) -> Iterator[SparkSession]:
    """Of that master, with `fuzz` for its workers. Raises UsageError without PySpark, a Java, or
    that Spark."""
    from aolog.errors import UsageError
    from aolog.spark import ensure_java

    ensure_java()
    try:
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise UsageError(f"--spark: {error}", hint="pip install 'aolog[spark]'") from None
    builder = SparkSession.builder.master(master).appName("aolog fuzz")
    try:
        spark = builder.config("spark.ui.showConsoleProgress", "false").getOrCreate()
    except (Py4JError, PySparkException) as error:
        hint = "give a master such as local[2] or spark://host:7077; Spark's own words are above"
        raise UsageError(f"--spark {master}: {_words(error)}", hint=hint) from None
    spark.sparkContext.setLogLevel("ERROR")
    try:
        with tempfile.TemporaryDirectory() as directory:
            package = Path(__file__).parent
            made = shutil.make_archive(f"{directory}/fuzz", "zip", package.parent, package.name)
            spark.sparkContext.addPyFile(made)
            yield spark
    except (Py4JError, PySparkException) as error:
        hint = "its workers need aolog, installed; the same command begins again"
        raise UsageError(f"--spark {master}: {_words(error)}", hint=hint) from None
    finally:
        spark.stop()


def _words(error: Exception) -> str:
    """What a user of Spark looks for in its pages: the last exception's own line."""
    lines = [line.strip() for line in str(error).splitlines()]
    told = [line for line in lines if "Exception: " in line or "Error: " in line]
    return (told or [line for line in lines if line] or [type(error).__name__])[-1].lstrip(": ")[
        :300
    ]


def by_tasks(plan: Plan, spark: SparkSession, *, round_s: float = ROUND_S) -> Iterator[Told]:
    """What the jobs tell, a round after the other. Raises Spark's errors."""
    from fuzz.campaign import Told, one_round

    context = spark.sparkContext
    until_s = time.monotonic() + plan.seconds if plan.seconds is not None else float("inf")
    sent = replace(plan, save=None)
    numbers, known = list(range(plan.jobs)), frozenset[str]()
    while True:
        part_s = min(round_s, until_s - time.monotonic())
        left = [n for n in numbers if plan.cases is None or n < plan.cases]
        if part_s <= 0 or not left:
            yield Told.nothing(done=True)
            return
        each, seen = replace(sent, seconds=part_s), known

        def work(number: int, plan: Plan = each, known: frozenset[str] = seen) -> tuple[Told, int]:
            return one_round(plan, number, known)

        ended = context.parallelize(left, len(left)).map(work).collect()
        numbers = [number for _, number in ended]
        for told, _ in ended:
            known |= told.failed.keys()
            yield told
