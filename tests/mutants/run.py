"""Runs tests on mutants: each in a forked child, which applies the mutant and calls pytest.

A fork saves the time to start Python and import pytest. For a mutant of the Python code the Python half is
tested; a mutant of the C code is loaded in place of the compiled half. Without a mutant all the tests must
pass first, with either half; where all tests of the project run anyway, those of CI's few mutants do not.
"""

from __future__ import annotations

import importlib
import os
import re
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import NamedTuple, TypeVar

import hypothesis
import pytest

from tests.mutants.c_mutants import UNCHANGED, CMutant, load
from tests.mutants.mutant import ROOT, Mutant, applied

__all__ = ["AnyMutant", "Outcome", "first_of_each_clause", "path_of", "run_all"]

for _name in (
    "confluent_kafka.admin", "hypothesis.stateful", "numpy", "prometheus_client", "pydantic",
):  # fmt: skip  # a list
    importlib.import_module(_name)  # so that no child has to

TIMEOUT_S = 20  # of one test
# Without a mutant nothing hangs, nor with one of the C code, but the machine may be loaded.
CLEAN_TIMEOUT_S = 120
PATIENCE_S = 150  # with a child that ignores even that
NOT_APPLIED = 99  # exit status
PROFILE = "mutants"  # of Hypothesis
# A mutant that raises one of these is broken itself: no test caught it.
BROKEN = re.compile(r"^E +(?:TypeError|AttributeError|NameError|UnboundLocalError)\b", re.MULTILINE)


AnyMutant = Mutant | CMutant
_Mutant = TypeVar("_Mutant", Mutant, CMutant, AnyMutant)


class Outcome(NamedTuple):
    """caught: a test failed, by an assertion or by an error of the code's own."""

    mutant: AnyMutant
    caught: bool
    seconds: float
    output: str


@cache
def _files() -> dict[str, str]:
    """The modules of tests by their names, of which no two are the same."""
    found = ROOT.glob("tests/**/test_*.py")
    return {path.stem.removeprefix("test_"): str(path.relative_to(ROOT)) for path in found}


def path_of(short: str) -> str:
    """From `writer::test_x` to what pytest takes."""
    file, _, test = short.partition("::")
    return f"{_files()[file]}::{test}"


def first_of_each_clause(mutants: Iterable[_Mutant]) -> list[_Mutant]:
    """What CI runs."""
    return list({one.clause: one for one in reversed(list(mutants))}.values())


@contextmanager
def _present(one: AnyMutant | None, work: Path) -> Iterator[None]:
    """The code has the defect inside the block; None: the Python half as it is."""
    # The same examples in each run, and no smaller one after a failure.
    phases = [hypothesis.Phase.explicit, hypothesis.Phase.generate]
    hypothesis.settings.register_profile(
        PROFILE, derandomize=True, database=None, phases=phases, deadline=None
    )
    if isinstance(one, CMutant):
        load(one, work)
        yield
        return
    os.environ["AOLOG_BACKEND"] = "python"
    if one is None:
        yield
        return
    with applied(one):
        yield


def _output(one: AnyMutant | None, work: Path) -> Path:
    return work / f"{one.name if one else 'clean'}.txt"


def _begin(one: AnyMutant | None, tests: Iterable[str], work: Path) -> int:
    """Forks a child that runs tests; its process id."""
    if pid := os.fork():
        return pid
    status, output = NOT_APPLIED, _output(one, work)
    try:
        with output.open("w", encoding="utf-8") as file:
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
        timeout_s = TIMEOUT_S if isinstance(one, Mutant) else CLEAN_TIMEOUT_S
        options = ["-q", "-x", "--tb=short", "-p", "no:cacheprovider", f"--timeout={timeout_s}"]
        options += [f"--hypothesis-profile={PROFILE}"]
        options += ["-W", "ignore:Module already imported", f"--basetemp={output.with_suffix('')}"]
        with _present(one, work):
            status = int(pytest.main([*options, *map(path_of, tests)]))
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def _end(one: AnyMutant, work: Path, status: int, began_s: float) -> Outcome:
    output = _output(one, work).read_text(encoding="utf-8", errors="replace")
    failed = re.search(r"^(?:.*, )?\d+ failed\b", output, re.MULTILINE) is not None
    caught = os.waitstatus_to_exitcode(status) == 1 and failed and not BROKEN.search(output)
    return Outcome(one, caught, time.monotonic() - began_s, output)


def run_all(
    mutants: Sequence[AnyMutant], jobs: int | None = None, first_without: bool = True
) -> Iterator[Outcome]:
    """Outcomes as they come, of mutants that have tests. Raises RuntimeError if the tests fail
    without a mutant, where they run so first."""
    os.environ.pop("AOLOG_BACKEND", None)
    os.chdir(ROOT)
    jobs = jobs or os.cpu_count() or 1
    waiting = [one for one in reversed(mutants) if one.test]
    running: dict[int, tuple[AnyMutant, float]] = {}
    with tempfile.TemporaryDirectory(prefix="aolog-mutants-") as name:
        work = Path(name).resolve()
        for kind, clean in ((Mutant, None), (CMutant, UNCHANGED)):
            tests = {one.test for one in waiting if one.test and isinstance(one, kind)}
            if first_without and tests and os.waitpid(_begin(clean, tests, work), 0)[1]:
                raise RuntimeError(f"without a mutant:\n{_output(clean, work).read_text()}")
        while waiting or running:
            while waiting and len(running) < jobs:
                one = waiting.pop()
                running[_begin(one, [one.test or ""], work)] = (one, time.monotonic())
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid in running:
                one, began_s = running.pop(pid)
                yield _end(one, work, status, began_s)
            elif not pid:
                time.sleep(0.005)
                for pid, (_, began_s) in running.items():
                    if time.monotonic() - began_s > PATIENCE_S:
                        os.kill(pid, signal.SIGKILL)
