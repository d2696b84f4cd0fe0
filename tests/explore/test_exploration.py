"""Crash exploration keeps the promise, and would find it broken.

The small budget takes about four minutes of processor time, on all cores, `--long` millions of states. The number of
different states is printed at the end. `python -m tests.explore --help` for one case.
"""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

from tests.aolog.conftest import ROOT
from tests.explore.explore import Budget, explore_all, failures_of, summary
from tests.explore.history import Case, all_cases, case_named
from tests.explore.mutants import MUTANTS


def explored(capsys: pytest.CaptureFixture[str], cases: list[Case], budget: Budget) -> int:
    began = time.monotonic()
    results = list(explore_all(cases, budget))
    with capsys.disabled():
        print(f"\n{summary(results, time.monotonic() - began)}")
    failures = failures_of(results)
    assert not failures, f"\n{failures}"
    return sum(result.states for result in results)


@pytest.mark.timeout(1200)
def test_the_promise_holds_in_every_state_that_a_crash_leaves(capsys):
    """About four minutes of processor time. Each case has its share of processor time: a slow machine sees fewer."""
    cases = all_cases(drawn_count=150)
    assert len(cases) >= 50
    assert explored(capsys, cases, SMALL) > 10_000


@pytest.mark.slow
@pytest.mark.timeout(6 * 3600)
def test_the_promise_holds_in_millions_of_states(capsys):
    """Hours."""
    assert explored(capsys, all_cases(drawn_count=1500), Budget(2000, 1000)) > 1_000_000


SMALL = Budget(limit=400, sample=100, seconds=4.0)


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
    point, text = again.removeprefix("--point ").split(" --json ", 1)
    more = ["--point", point, "--json", text.strip("'")]
    second = subprocess.run(
        [*command, *more], cwd=ROOT, capture_output=True, text=True, check=False
    ).stdout
    assert second.splitlines()[0] == first.splitlines()[0]
