"""Runs tests on mutants: a copy of the checkout each, changed, in a process of its own.

A process that has imported pytest, and nothing of ours, forks one child a mutant: starting Python
and pytest anew would cost more than most of the tests do. The copy that is not changed runs all
the tests first; it leaves compiled tests behind, which the others are copied with.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import confluent_kafka.admin  # noqa: F401 -- so that no child has to
import hypothesis  # noqa: F401 -- the same
import numpy as np  # noqa: F401 -- the same
import pytest
import xxhash  # noqa: F401 -- the same

from tests.mutants.mutant import Mutant

__all__ = ["ROOT", "Outcome", "changed_text", "run_all", "test_path"]

ROOT = Path(__file__).parents[2]
COPIED = (
    "aolog", "bridge", "fuzz",
    "tests/aolog", "tests/golden", "tests/kafka", "tests/publish", "tests/spark",
)  # fmt: skip  # a list
COPIED_FILES = ("pyproject.toml", "README.md", "tests/conftest.py", "tests/stalling.py")
OURS = {"aolog", "bridge", "fuzz", "tests"}
TIMEOUT_S = 20  # of one test
CLEAN_TIMEOUT_S = 120  # without a mutant nothing hangs, but on a machine that is starved
PATIENCE_S = 100  # with a child that not even that ends
NOT_THE_COPY = 99  # exit status: the code that ran was not the copy's


class Outcome(NamedTuple):
    """caught: a test failed, by an assertion or an error of its own."""

    mutant: Mutant
    caught: bool
    seconds: float
    output: str


def test_path(short: str) -> str:
    """From `writer::test_x`, or `folder/test_writer::test_x`, to what pytest takes."""
    file, _, test = short.partition("::")
    if "/" in file:
        return f"tests/{file}.py::{test}"
    (path,) = ROOT.glob(f"tests/aolog/**/test_{file}.py")
    return f"{path.relative_to(ROOT)}::{test}"


def changed_text(mutant: Mutant, root: Path = ROOT) -> dict[str, str]:
    """The files as the mutant makes them. Raises LookupError if it no longer applies."""
    texts: dict[str, str] = {}
    for file, old, new in mutant.edits:
        text = texts.get(file) or (root / file).read_text(encoding="utf-8")
        if (found := text.count(old)) != 1:
            raise LookupError(f"{mutant.name}: what it replaces is {found} times in {file}")
        texts[file] = text.replace(old, new)
    return texts


def _copy(target: Path) -> None:
    ignored = shutil.ignore_patterns("*.so", "__pycache__")
    for name in COPIED:
        shutil.copytree(ROOT / name, target / name, ignore=ignored)
    for name in COPIED_FILES:
        shutil.copy2(ROOT / name, target / name)


def _test(tree: Path, tests: Sequence[str], output: Path, timeout_s: int = TIMEOUT_S) -> int:
    """Forks a child that runs tests in a tree; its process id."""
    if pid := os.fork():
        return pid
    status = NOT_THE_COPY
    try:
        with output.open("w", encoding="utf-8") as file:
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
        os.chdir(tree)
        os.environ |= {"AOLOG_BACKEND": "python", "PYTHONPATH": str(tree)}
        sys.path = [str(tree), *(at for at in sys.path if at and Path(at).resolve() != ROOT)]
        for name in [name for name in sys.modules if name.split(".")[0] in OURS]:
            del sys.modules[name]
        sys.dont_write_bytecode = False  # whatever the environment says
        options = ["-q", "-x", "--tb=short", "-p", "no:cacheprovider", "-o", f"timeout={timeout_s}"]
        options += ["-W", "ignore:Module already imported"]  # hypothesis, above
        tried = pytest.main([*options, f"--basetemp={tree}.tmp", *tests])
        ran = getattr(sys.modules.get("aolog"), "__file__", None) or ""
        status = int(tried) if ran.startswith(f"{tree}/") else NOT_THE_COPY
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def _begin(mutant: Mutant, clean: Path, work: Path) -> int:
    tree = work / mutant.name
    texts = changed_text(mutant, clean)
    shutil.copytree(clean, tree, copy_function=os.link)
    for file, text in texts.items():
        path = tree / file
        for stale in (path, *(path.parent / "__pycache__").glob(f"{path.stem}.*")):
            stale.unlink()  # a link: the clean one stays
        path.write_text(text, encoding="utf-8")
    return _test(tree, [test_path(test) for test in mutant.tests], work / f"{mutant.name}.txt")


def _end(mutant: Mutant, work: Path, status: int, began_s: float) -> Outcome:
    output = (work / f"{mutant.name}.txt").read_text(encoding="utf-8", errors="replace")
    shutil.rmtree(work / mutant.name)
    shutil.rmtree(work / f"{mutant.name}.tmp", ignore_errors=True)
    failed = re.search(r"^(?:.*, )?\d+ failed\b", output, re.MULTILINE) is not None
    caught = os.waitstatus_to_exitcode(status) == 1 and failed
    return Outcome(mutant, caught, time.monotonic() - began_s, output)


def run_all(mutants: Sequence[Mutant], jobs: int | None = None) -> Iterator[Outcome]:
    """Outcomes as they come. Raises RuntimeError if the tests fail without a mutant."""
    jobs = jobs or os.cpu_count() or 1
    with tempfile.TemporaryDirectory(prefix="aolog-mutants-") as name:
        work = Path(name).resolve()
        clean = work / "clean"
        _copy(clean)
        tests = sorted({test_path(test) for mutant in mutants for test in mutant.tests})
        _, status = os.waitpid(_test(clean, tests, work / "clean.txt", CLEAN_TIMEOUT_S), 0)
        if status:
            raise RuntimeError(f"without a mutant:\n{(work / 'clean.txt').read_text()}")
        waiting = list(reversed(mutants))
        running: dict[int, tuple[Mutant, float]] = {}
        while waiting or running:
            while waiting and len(running) < jobs:
                mutant = waiting.pop()
                running[_begin(mutant, clean, work)] = (mutant, time.monotonic())
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid in running:
                mutant, began_s = running.pop(pid)
                yield _end(mutant, work, status, began_s)
            elif not pid:
                time.sleep(0.005)
                for pid, (_, began_s) in running.items():
                    if time.monotonic() - began_s > PATIENCE_S:
                        os.kill(pid, signal.SIGKILL)
