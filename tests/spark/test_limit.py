"""A query that wants no more rows than it got ends its tasks without a traceback."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

import aolog
from tests.spark.conftest import ROOT
from tests.spark.driving import tasks

JOBS = """
import sys
import aolog.spark
from pyspark.sql import SparkSession

root = sys.argv[1]
aolog.spark.ensure_java()
spark = (SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    .config("spark.ui.showConsoleProgress", "false").config("spark.driver.memory", "512m")
    .config("spark.driver.host", "127.0.0.1").config("spark.driver.bindAddress", "127.0.0.1")
    .getOrCreate())
aolog.spark.register(spark)
source = spark.read.format("aolog").load(root)
scan = aolog.spark.scan(spark, root)
for frame in (source, scan):
    assert len(frame.limit(1).collect()) == 1
    assert len(frame.take(2)) == 2
    assert frame.count() == 100_000

def pipes(rows):
    import signal
    yield repr(signal.getsignal(signal.SIGPIPE))

print(spark.sparkContext.parallelize([0], 1).mapPartitions(pipes).collect())
"""


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_limit_and_take_print_no_traceback(tmp_path):
    """Half a minute: a JVM of its own."""
    with aolog.Writer(tmp_path / "log") as log:
        for _ in range(100):
            log.append_many([b"x" * 1000] * 1000)
    ended = subprocess.run(
        [sys.executable, "-c", JOBS, tmp_path / "log"],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip  # one process
    assert ended.returncode == 0, ended.stderr[-3000:]
    assert "BrokenPipeError" not in ended.stderr
    assert "Traceback" not in ended.stderr
    assert "SIG_IGN" in ended.stdout, "a later task of the worker has Python's own again"


def test_a_program_that_reads_by_itself_keeps_its_signals(tmp_path):
    with aolog.Writer(tmp_path / "log") as log:
        log.append(b"x")
    before = signal.getsignal(signal.SIGPIPE)
    assert tasks(tmp_path / "log")
    assert signal.getsignal(signal.SIGPIPE) is before
