"""Crash exploration keeps the promise, and would find it broken.

The small budget takes minutes, on all cores; `--long` millions of states and hours. States are
counted as different by a hash of every name and byte on the disk, over all histories. UUIDs, salts, clocks and the values of records are the same in every history, so what makes
two states differ is what was done, and which entries, sizes and pieces of it reached the device.
`python -m tests.explore --help` for one case.
"""

from __future__ import annotations

import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable

import pytest

from tests.aolog.conftest import ROOT
from tests.explore.explore import (
    LONG,
    SMALL,
    Budget,
    distinct,
    explore_all,
    failures_of,
    summary,
)  # fmt: skip  # names
from tests.explore.history import Case, all_cases, case_named
from tests.explore.mutants import MUTANTS

_DRAWN = 48  # cases from seeds: what a test run has time for


def explored(said: Callable[[str], None], cases: list[Case], budget: Budget) -> int:
    began = time.monotonic()
    results = list(explore_all(cases, budget))
    said(summary(results, time.monotonic() - began))
    failures = failures_of(results)
    assert not failures, f"\n{failures}"
    return distinct(results)


@pytest.mark.xdist_group("every core")
@pytest.mark.timeout(1800)
def test_the_promise_holds_in_every_state_that_a_crash_leaves(said):
    """Some three minutes, on all cores. The same states each time; the command alone
    (`python -m tests.explore`) goes on to more than 200,000."""
    _, budget = SMALL
    assert explored(said, all_cases(_DRAWN), budget) >= 28_000


@pytest.mark.slow
@pytest.mark.timeout(12 * 3600)
def test_the_promise_holds_in_millions_of_states(said):
    """Hours."""
    drawn, budget = LONG
    assert explored(said, all_cases(drawn), budget) > 2_000_000


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_is_caught(name):
    ended = subprocess.run(
        [sys.executable, "-m", "tests.explore", "--mutant", name],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip  # as it is typed
    assert ended.returncode == 1, ended.stdout + ended.stderr
    clause = ended.stdout.split(":")[0]
    assert clause in MUTANTS[name].clauses, ended.stdout


def test_the_cases_of_the_mutants_hold_without_them():
    cases = [case_named(name) for name in sorted({mutant.case for mutant in MUTANTS.values()})]
    assert failures_of(explore_all(cases, Budget())) == ""


def test_a_failure_prints_what_repeats_it():
    """The printed command, run by hand with the same defect, fails at the same point."""
    command = [sys.executable, "-m", "tests.explore", "--mutant", "cursor_without_sync"]
    first = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout
    again = first.split("again: python -m tests.explore ")[1].splitlines()[0]
    second = subprocess.run(
        [*command, *shlex.split(again)], cwd=ROOT, capture_output=True, text=True, check=False
    ).stdout
    assert second.splitlines()[0] == first.splitlines()[0]


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_no_process_outlives_an_exploration_that_is_ended(how):
    """Its output ends when the last process that may write to it has ended. Two seconds each."""
    if signal.getsignal(how) == signal.SIG_IGN:
        pytest.skip(f"{how.name} is ignored here, and so it is by what is begun here")
    exploring = subprocess.Popen(
        [sys.executable, "-m", "tests.explore", "--long", "--jobs", "2"],
        cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip  # as it is typed
    assert exploring.stdout is not None
    assert exploring.stdout.readline().startswith("1/")  # both are at work
    exploring.send_signal(how)
    said, _ = exploring.communicate(timeout=60)
    assert exploring.returncode == (130 if how == signal.SIGINT else -how)
    assert ("crash exploration: " in said) == (how == signal.SIGINT)


def test_an_exploration_ends_after_its_seconds_and_sums_up():
    """Ten seconds."""
    ended = subprocess.run(
        [sys.executable, "-m", "tests.explore", "--long", "--seconds", "8"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip  # as it is typed
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert ended.stdout.splitlines()[-1].startswith("crash exploration: ")
