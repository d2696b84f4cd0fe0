"""Crash exploration keeps the promise, and would find it broken.

It takes half a minute of processor time, and with `--long` hours, for millions of states.
Two states are distinct if any name or byte on the disk differs. UUIDs, salts, clocks and the values
of records are the same in every history, so states differ only in what was done, and in which
entries, sizes and pieces of it reached the device.
"""

from __future__ import annotations

import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterable

import pytest

from tests.aolog.conftest import ROOT
from tests.explore.explore import (
    LONG,
    SMALL,
    Budget,
    Explored,
    distinct,
    explore,
    explore_all,
    failures_of,
    summary,
)  # fmt: skip  # names
from tests.explore.history import all_cases, case_named
from tests.mutants.defects import MUTANTS
from tests.mutants.parameters import of_ci

# What a test run has time for: cases from seeds, and of each case fewer states than the small budget.
DRAWN = 24
FEWER = SMALL[1]._replace(states=500, limit=300, sample=100)
SHARDS, LEAST_STATES = 4, 1_500  # they run side by side; each finds so many
EXPLORED = [one for one in MUTANTS.values() if one.case is not None]


def require_kept(said: Callable[[str], None], found: Iterable[Explored], least: int) -> None:
    """No promise was broken in what was explored, and that was at least so many distinct states."""
    began = time.monotonic()
    results = list(found)
    said(summary(results, time.monotonic() - began))
    failures = failures_of(results)
    assert not failures, f"\n{failures}"
    assert distinct(results) >= least


@pytest.mark.parametrize("shard", range(SHARDS))
@pytest.mark.timeout(900)
def test_the_promise_holds_in_every_state_that_a_crash_leaves(said, shard):
    """The same states each time. `python -m tests.explore` goes on to more than 200,000."""
    cases = all_cases(DRAWN)[shard::SHARDS]
    require_kept(said, (explore(case, FEWER) for case in cases), LEAST_STATES)


@pytest.mark.slow
@pytest.mark.timeout(12 * 3600)
def test_the_promise_holds_in_millions_of_states(said):
    """Hours."""
    drawn, budget = LONG
    require_kept(said, explore_all(all_cases(drawn), budget), 2_000_000)


def run(*options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tests.explore", *options],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip  # as it is typed


@pytest.mark.parametrize("mutant", of_ci(EXPLORED))
def test_exploration_finds_a_mutant(mutant):
    ended = run("--mutant", mutant.name)
    assert ended.returncode == 1, ended.stdout + ended.stderr
    broken = ("raised: TypeError", "raised: AttributeError", "raised: NameError")
    assert not ended.stdout.startswith(broken), "the mutant itself is broken"


def test_the_cases_of_the_mutants_hold_without_them():
    cases = {mutant.case for mutant in EXPLORED}
    assert failures_of(explore(case_named(name), Budget()) for name in cases) == ""


def test_a_failure_prints_what_repeats_it():
    """The printed command, run by hand with the same defect, fails at the same point."""
    first = run("--mutant", "a commit is not synced").stdout
    again = first.split("again: python -m tests.explore ")[1].splitlines()[0]
    second = run("--mutant", "a commit is not synced", *shlex.split(again)).stdout
    assert second.splitlines()[0] == first.splitlines()[0]
