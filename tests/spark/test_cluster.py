"""A master, two workers and their executors, each a JVM: the package is shipped, and one executor is
killed in the middle of a task. Minutes beside other work, half of one alone."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import aolog

ROOT = Path(__file__).parents[2]

JOB = """
import os, signal, sys
sys.path.insert(0, sys.argv[1])  # the driver's; executors have what is shipped
root, shipped = sys.argv[2:]
import aolog.spark
aolog.spark.ensure_java()
from pyspark.sql import SparkSession

spark = (
    SparkSession.builder.master("local-cluster[2,1,512]")
    .config("spark.ui.enabled", "false")
    .config("spark.driver.host", "127.0.0.1")
    .config("spark.driver.bindAddress", "127.0.0.1")
    .config("spark.executor.memory", "512m")
    .getOrCreate()
)
spark.sparkContext.addPyFile(shipped)


def save(numbers):
    import aolog
    import aolog.spark
    from pyspark import TaskContext

    assert shipped.rsplit("/", 1)[1] in aolog.__file__, aolog.__file__
    with aolog.spark.writer_per_task(root) as log:
        for number in numbers:
            log.append(str(number).encode())
            if number == 50 and TaskContext.get().attemptNumber() == 0:
                log.sync()
                daemon = os.getppid()
                with open(f"/proc/{daemon}/stat") as stat:
                    executor = int(stat.read().rpartition(")")[2].split()[1])
                os.kill(executor, signal.SIGKILL)
                signal.pause()


spark.sparkContext.parallelize(range(400), 4).foreachPartition(save)
spark.stop()
"""


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_an_executor_that_is_killed_in_a_task_leaves_a_log_that_collides_with_none(tmp_path):
    shipped = tmp_path / "aolog-shipped.zip"  # a wheel, named as Spark takes it
    with zipfile.ZipFile(shipped, "w") as archive:
        for source in (ROOT / "aolog").rglob("*.py"):
            archive.write(source, source.relative_to(ROOT))
    root = tmp_path / "logs"
    ended = subprocess.run(
        [sys.executable, "-c", JOB, str(ROOT), str(root), str(shipped)],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip  # one thing
    assert ended.returncode == 0, ended.stderr[-3000:]
    logs = sorted(root.iterdir())
    found = [[int(record.value) for record in aolog.Reader(log)] for log in logs]
    assert len(logs) == 5, "four tasks, one of them twice"
    assert list(range(51)) in found, "what the killed attempt had synced"
    assert sorted(n for each in found if each != list(range(51)) for n in each) == list(range(400))
