"""A standalone master and two workers: the project's wheel is shipped, one worker and its executor are
killed in the middle of a task, another task is speculated. A minute, or minutes beside other work."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import aolog
from aolog.publish.publication import publish
from tests.publish.job import task
from tests.spark.conftest import ROOT
from tests.spark.standalone import START_SECONDS_MAX, Cluster

pytestmark = pytest.mark.slow

JOBS = Path(__file__).with_name("cluster_jobs.py")
ROWS = 200_000  # as cluster_jobs.py's
OTHER = "ef" * 16


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The project's, of a copy: building leaves files in the tree. Named as Spark takes it."""
    at = tmp_path_factory.mktemp("wheel")
    for name in (".ci", "aolog", "bridge"):
        shutil.copytree(
            ROOT / name, at / name, ignore=shutil.ignore_patterns("*.so", "__pycache__")
        )
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy2(ROOT / name, at / name)
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", at / "dist", at]
    built = subprocess.run(command, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr[-3000:]
    (found,) = (at / "dist").glob("aolog_bridge-*.whl")
    return found.rename(found.with_name("aolog-shipped.zip"))


@pytest.fixture(scope="module")
def workers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


@pytest.fixture
def submit(
    workers: Cluster, wheel: Path, tmp_path: Path
) -> Iterator[Callable[..., subprocess.Popen]]:
    """Starts a job of cluster_jobs.py: logs in `tmp_path / "logs"`, meeting in `tmp_path / "meeting"`."""
    workers.mend()
    (tmp_path / "meeting").mkdir()
    begun = []

    def submit(job: str, **conf: str) -> subprocess.Popen:
        places = str(tmp_path / "logs"), str(tmp_path / "meeting")
        begun.append(workers.submit(JOBS, job, *places, shipped=wheel, **conf))
        return begun[0]

    yield submit
    for driver in begun:
        driver.kill()
        driver.wait()


def await_file(path: Path, driver: subprocess.Popen, workers: Cluster) -> str:
    until_s = time.monotonic() + START_SECONDS_MAX
    while not path.exists():
        assert driver.poll() is None, workers.said.read_text()[-3000:]
        assert time.monotonic() < until_s, workers.said.read_text()[-3000:]
        time.sleep(0.05)
    return path.read_text()


def end(driver: subprocess.Popen, workers: Cluster) -> str:
    """The last line that it printed."""
    driver.wait(timeout=300)
    said = workers.said.read_text()
    assert driver.returncode == 0, said[-3000:]
    return next((line for line in reversed(said.splitlines()) if line.startswith("read ")), "")


def numbers(path: Path) -> list[int]:
    with aolog.Reader(path, strict=True) as reader:
        return [int(record.value or b"") for record in reader]


def pending(root: Path) -> list[Path]:
    return [path for path in root.rglob("*.pending") if path.stat().st_size]


def test_a_worker_that_is_killed_in_a_write_leaves_one_copy(workers, submit, tmp_path):
    driver = submit("killed")
    executor = int(await_file(tmp_path / "meeting" / "executor", driver, workers))
    root = tmp_path / "logs"
    assert pending(root) != []
    assert list(root.rglob("*.slab")) == []
    workers.kill_worker_of(executor)
    assert end(driver, workers) == f"read {ROWS} {ROWS}", "as executors read it"
    assert sorted(numbers(root / "default")) == list(range(ROWS))
    assert list(root.rglob("*.pending")) == []
    assert aolog.verify(root / "default").ok


def test_a_task_that_is_speculated_and_goes_on_behind_the_commit_leaves_one_copy(
    workers, submit, tmp_path
):
    """Spark gives the slow attempt time enough to see that all is committed, and then it writes."""
    driver = submit(
        "speculated",
        speculation="true",
        speculation_interval="100ms",
        speculation_quantile="0.25",
        speculation_multiplier="1.1",
        speculation_minTaskRuntime="100ms",
        python_task_killTimeout="100s",
    )
    assert end(driver, workers) == f"read {ROWS} {ROWS}"
    said = {path.name for path in (tmp_path / "meeting").iterdir()}
    assert said == {"attempt-0", "attempt-1", "late"}
    root = tmp_path / "logs"
    assert sorted(numbers(root / "default")) == list(range(ROWS))
    report = aolog.verify(root / "default")
    assert report.ok
    for left in root.rglob("*.pending"):  # nobody publishes it, and a later job takes it away
        os.utime(left, (0, 0))
    publish(root, OTHER, task(root, "default", str(ROWS), job=OTHER))
    assert list(root.rglob("*.pending")) == []
    assert sorted(numbers(root / "default")) == list(range(ROWS + 1))
