"""A campaign's jobs as tasks of Spark: for long ones, over a cluster.

A round is a task a job; the next one goes on where each of them stopped, so cases are those of the
same campaign in one place, each once. A task that is killed is a round of one job again. What
workers need is aolog, installed, and Python's packages that it needs; `fuzz` is sent along.
"""

from __future__ import annotations

import math
import shutil
import tempfile
import time
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from fuzz.campaign import Plan, Told

__all__ = ["ROUND_S", "by_tasks", "sending_fuzz"]

ROUND_S = 30.0  # what is told, and repeated where an executor is lost, at once


@contextmanager
def sending_fuzz(master: str) -> Iterator[SparkSession]:
    """A session of that master, with `fuzz` for its workers. Raises UsageError without PySpark or a
    Java, and JobFailed for what fails in it."""
    from aolog.spark.session import in_our_words, session

    package = Path(__file__).parent
    with (
        session({"spark.master": master}) as spark,
        in_our_words(),
        tempfile.TemporaryDirectory() as directory,
    ):
        made = shutil.make_archive(f"{directory}/fuzz", "zip", package.parent, package.name)
        spark.sparkContext.addPyFile(made)
        yield spark


def by_tasks(plan: Plan, spark: SparkSession, *, round_s: float = ROUND_S) -> Iterator[Told]:
    """What the jobs tell, a round after the other. More jobs than cores take turns in a round, each
    for a part of it. Raises Spark's errors."""
    from fuzz.campaign import one_round

    until_s = time.monotonic() + plan.seconds if plan.seconds is not None else float("inf")
    numbers, known = list(range(plan.jobs)), set[str]()
    while (left_s := until_s - time.monotonic()) > 0:
        numbers = [n for n in numbers if plan.cases is None or n < plan.cases]
        if not numbers:
            return
        turns = math.ceil(len(numbers) / spark.sparkContext.defaultParallelism)
        sent = replace(plan, seconds=min(round_s, left_s) / turns, save=None)
        tasks = spark.sparkContext.parallelize(numbers, len(numbers))
        ended = tasks.map(partial(one_round, sent, frozenset(known))).collect()
        numbers = [number for _, number in ended]
        for told in [told for each, _ in ended for told in each]:
            known |= told.failed.keys()
            yield told
