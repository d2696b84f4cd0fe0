"""A campaign's jobs as tasks of Spark are the campaign that runs here. Seconds, for Spark."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from fuzz.campaign import Plan, campaign
from fuzz.spread import by_tasks
from tests.spark.conftest import ROOT

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
