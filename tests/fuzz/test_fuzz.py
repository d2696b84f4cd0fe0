"""The fuzzer finds what is put in, says how to see it again, and every failure found stays found.

About 20 s."""

from __future__ import annotations

import os
import random
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from fuzz.campaign import CORPUS, Plan, campaign, run_saved
from fuzz.canary import CANARIES, hunt
from fuzz.damage import apply
from fuzz.disk import Disk
from fuzz.minimise import minimise
from fuzz.shapes import make
from fuzz.target import decode, draw, encode
from fuzz.targets import TARGETS, load
from tests.mutants.mutant import Mutant
from tests.mutants.parameters import of_ci

ROOT = Path(__file__).resolve().parents[2]
SAVED = sorted(CORPUS.glob("*/*.json"))
CASES = {"frame": 300, "log": 60, "recovery": 60, "cursor": 120}
SEED = 1


def run_fuzz(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "error", "-m", "fuzz", *arguments],
        cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True,
        check=False, timeout=100,
    )  # fmt: skip


# --- what it finds ---------------------------------------------------------------------------


@pytest.mark.parametrize("target", TARGETS)
def test_a_target_runs_its_small_budget_and_finds_nothing(target: str, tmp_path: Path) -> None:
    result = campaign(Plan(target, SEED, cases=CASES[target], save=tmp_path), lambda _: None)
    assert result.failures == []
    assert result.cases == CASES[target]
    assert len(result.outcomes) > 5


@pytest.mark.parametrize("canary", of_ci(CANARIES))
def test_the_fuzzer_finds_a_mutant(canary: Mutant) -> None:
    found = hunt(canary, SEED)
    assert found.case is not None


@pytest.mark.parametrize("path", SAVED, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_a_saved_case_passes(path: Path) -> None:
    assert run_saved(path.parent.name, decode(path.read_text(encoding="utf-8")))


def test_saved_damages_still_damage_something() -> None:
    """Where the shapes change, places do: then the corpus has to be made anew."""
    with Disk() as disk:
        for path in SAVED:
            case = decode(path.read_text(encoding="utf-8"))
            if path.parent.name == "recovery":
                files = make(disk, case["shape"]).files
                assert apply(files, case["steps"]) != files, path


# --- what it says ----------------------------------------------------------------------------


@pytest.mark.parametrize("target", TARGETS)
def test_a_case_depends_on_seed_and_number_alone(target: str) -> None:
    drawn = []
    for _ in range(2):
        with Disk() as disk:
            fuzz = load(target)(disk)
            drawn.append([encode(draw(fuzz, target, 7, number)) for number in (3, 1, 2)])
    assert drawn[0] == drawn[1]
    assert len(set(drawn[0])) == 3


def test_a_failure_is_made_small_saved_and_named_in_one_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log loses every third value: what is left of the case is one append."""
    from fuzz.targets.log import _History

    original = _History.append

    def append(self: _History, writer: object, rng: random.Random) -> None:
        original(self, writer, rng)
        if len(self.taken) % 3 == 0:
            self.taken[-1] = self.taken[-1]._replace(value=b"another")

    monkeypatch.setattr(_History, "append", append)
    result = campaign(Plan("log", SEED, cases=10, save=tmp_path / "as it is"), lambda _: None)
    assert sum(result.failed.values()) > 0
    failure = result.failures[0]
    *command, named = shlex.split(failure.command)
    assert command == ["python", "-m", "fuzz", "log", "--input"]
    saved = Path(named)
    assert saved.parent == tmp_path / "as it is" / "log"
    assert failure.steps == len(decode(saved.read_text(encoding="utf-8"))["steps"]) <= 3


def test_minimising_keeps_the_steps_that_fail_and_no_other() -> None:
    def failure(case: dict[str, list[int]]) -> str | None:
        return "both" if {3, 17} <= set(case["steps"]) else None

    small = minimise({"steps": list(range(40)), "other": 1}, failure)
    assert small == {"steps": [3, 17], "other": 1}


# --- the command -----------------------------------------------------------------------------


def test_the_command_runs_one_case_of_a_seed_or_a_file(tmp_path: Path) -> None:
    done = run_fuzz("recovery", "--seed", "3", "--case", "5")
    assert done.returncode == 0, done.stdout
    text, _, outcome = done.stdout.rpartition("passed: ")
    saved = tmp_path / "case.json"
    saved.write_text(text, encoding="utf-8")
    again = run_fuzz("recovery", "--input", str(saved))
    assert again.returncode == 0
    assert again.stdout == done.stdout
    assert outcome


def test_a_campaign_says_what_outcomes_are_and_how_often_each_occurred(tmp_path: Path) -> None:
    done = run_fuzz("cursor", "--seed", "3", "--cases", "20", "--save", str(tmp_path))
    assert done.returncode == 0, done.stdout
    first, about, *outcomes = done.stdout.splitlines()
    assert "20 cases" in first
    assert f"{len(outcomes)} distinct outcomes: what the log did with a case" in about
    assert sum(int(line.split()[0]) for line in outcomes) == 20
