"""A campaign's jobs as tasks of Spark are the campaign that runs here. Seconds, for Spark."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from fuzz.campaign import Plan, campaign
from fuzz.spread import by_tasks
from tests.spark.conftest import ROOT
from tests.spark.standalone import parent

pytestmark = pytest.mark.timeout(300)  # the first of them starts the JVM, maybe beside much else


def quiet(_):
    """Progress that nobody watches."""


def test_the_cases_are_those_of_one_place_each_once_in_however_many_rounds(spark):
    here = campaign(Plan("log", 7, cases=13), quiet)
    plan = Plan("log", 7, cases=13, jobs=3)
    rounds = list(by_tasks(plan, spark, round_s=0.0))
    there = campaign(plan, quiet, iter(rounds))
    assert [told.cases for told in rounds if told.cases] == [1] * 13, "a case a job and round"
    assert (there.cases, there.outcomes, there.failed) == (13, here.outcomes, here.failed)


def test_it_ends_after_its_time_also_with_more_jobs_than_cores(spark):
    """Some 4 s; each job for as long as a round would be 20."""
    plan = Plan("frame", 1, seconds=2.0, jobs=20)
    found = campaign(plan, quiet, by_tasks(plan, spark, round_s=2.0))
    assert found.cases >= 20
    assert not found.failed
    assert found.seconds < 15


@pytest.mark.slow
def test_the_command_runs_in_workers_of_its_own(tmp_path):
    """Half a minute, for another JVM."""
    ended = subprocess.run(
        [sys.executable, "-m", "fuzz", "frame", "--cases", "50", "--spark", "local[2]", "--json",
         "--save", str(tmp_path)],
        env=os.environ | {"PYTHONPATH": ""}, cwd=ROOT, capture_output=True, text=True, check=False,
        timeout=200,
    )  # fmt: skip  # one process
    assert ended.returncode == 0, ended.stderr
    said = json.loads(ended.stdout.splitlines()[-1])
    assert (said["cases"], said["jobs"], said["failed"]) == (50, 2, {})


@pytest.mark.slow
def test_a_spark_that_is_none_is_named_in_one_line():
    """Ten seconds, for a JVM that refuses."""
    ended = subprocess.run(
        [sys.executable, "-m", "fuzz", "frame", "--cases", "5", "--spark", "local[x]"],
        cwd=ROOT, capture_output=True, text=True, check=False, timeout=100,
    )  # fmt: skip  # one process
    assert ended.returncode == 2
    assert "Error: --spark local[x]: " in ended.stderr
    assert "Could not parse Master URL" in ended.stderr.splitlines()[-1]
    assert "Traceback" not in ended.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("signalled", "signal_sent", "status", "said"),
    [
        ("java", signal.SIGKILL, 2, "Error: --spark local[2]: "),
        ("python", signal.SIGINT, 1, "Aborted!"),
    ],
)
def test_what_ends_it_in_a_round_is_told_without_a_traceback(
    tmp_path, signalled, signal_sent, status, said
):
    """Half a minute each, for a JVM of their own."""
    with (tmp_path / "said").open("wb") as errors:
        campaign = subprocess.Popen(
            [sys.executable, "-m", "fuzz", "frame", "--time", "500", "--spark", "local[2]"],
            cwd=ROOT, stdout=subprocess.DEVNULL, stderr=errors,
        )  # fmt: skip  # one process
    try:
        until_s = time.monotonic() + 100
        while not (java := _java_with_workers(campaign.pid)):
            assert campaign.poll() is None
            assert time.monotonic() < until_s
            time.sleep(0.1)
        os.kill(java if signalled == "java" else campaign.pid, signal_sent)
        assert campaign.wait(60) == status
    finally:
        campaign.kill()
        campaign.wait()
    text = (tmp_path / "said").read_text(errors="replace")
    assert said in text.splitlines()[-1]
    assert "Traceback" not in text


def _java_with_workers(driver):
    """0 before it has begun a round: then it has a Python of its own."""
    for pid in [int(name) for name in os.listdir("/proc") if name.isdigit()]:
        with suppress(FileNotFoundError, ProcessLookupError):
            command = Path(f"/proc/{pid}/cmdline").read_bytes()
            if b"pyspark.daemon" in command and parent(parent(pid)) == driver:
                return parent(pid)
    return 0
