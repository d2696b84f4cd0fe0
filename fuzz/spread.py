"""Runs a campaign's jobs as Spark tasks, for long campaigns on a cluster.

In a round each job is one task. The next round resumes where each job stopped, so the cases are those
of the same campaign in one place, each once. If a task is killed, Spark repeats one round of one job.
Workers need aolog and its dependencies; `fuzz` is sent to them.
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

ROUND_S = 30.0  # time between reports; at most so much is repeated if an executor is lost


@contextmanager
def sending_fuzz(master: str) -> Iterator[SparkSession]:
    """A session with this master, whose workers have `fuzz`. Raises UsageError without PySpark or
    Java, and JobFailed for failures in it."""
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
    """The jobs' reports, round after round. If there are more jobs than cores, they share the round's
    time. Raises Spark's errors."""
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
