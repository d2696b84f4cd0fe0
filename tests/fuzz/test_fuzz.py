"""The fuzzer finds what is put in, says how to see it again, and every failure found stays found.

About 20 s."""

from __future__ import annotations

import importlib.util
import json
import os
import pty
import random
import shlex
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from fuzz.campaign import CORPUS, Failure, Plan, Told, campaign, collect, run_saved
from fuzz.canary import CANARIES, hunt
from fuzz.damage import apply
from fuzz.disk import Disk
from fuzz.minimise import minimise, signature
from fuzz.shapes import make
from fuzz.target import Case, decode, draw, encode
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


@pytest.mark.parametrize("target", TARGETS)
def test_the_corpus_has_cases_of_every_target(target: str) -> None:
    assert any(path.parent.name == target for path in SAVED)


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


def test_failures_of_one_kind_that_several_jobs_found_are_saved_once(
    tmp_path: Path,
) -> None:
    def told(number: int, kind: str, small: Case | None) -> Told:
        failure = Failure(number, "an error", "a command", 1, kind, small)
        return Told(1, Counter(), Counter([kind]), [failure], done=True)

    case: Case = {"steps": [1]}
    plan = Plan("log", SEED, jobs=3, save=tmp_path)
    jobs = [told(0, "a", case), told(1, "a", {"steps": [2]}), told(2, "b", None)]
    found = collect(plan, jobs, lambda _: None)
    assert found.failed == {"a": 2, "b": 1}
    (saved,) = tmp_path.glob("log/*.json")
    assert decode(saved.read_text(encoding="utf-8")) == case
    assert [failure.number for failure in found.failures] == [0, 2]
    assert found.failures[0].command == f"python -m fuzz log --input {saved}"
    assert found.failures[1].command == "a command", "it fails in another way when it is made small"


def test_minimising_keeps_the_steps_that_fail_and_no_other() -> None:
    def failure(case: dict[str, list[int]]) -> str | None:
        return "both" if {3, 17} <= set(case["steps"]) else None

    small = minimise({"steps": list(range(40)), "other": 1}, failure)
    assert small == {"steps": [3, 17], "other": 1}


def test_minimising_takes_no_other_failure_for_the_same() -> None:
    def failure(case: dict[str, list[int]]) -> str | None:
        return "long" if len(case["steps"]) > 5 else "short"

    assert len(minimise({"steps": list(range(20))}, failure)["steps"]) == 6


def test_failures_that_differ_in_numbers_are_the_same() -> None:
    one = AssertionError("one by one: 3 records were to come, 4 came; missing [1]")
    two = AssertionError("one by one: 30 records were to come, 14 came; missing [77, 8]")
    assert signature(one) == signature(two)
    assert signature(one) != signature(AssertionError("verify: gaps"))
    assert signature(one) != signature(ValueError(str(one)))


# --- the command -----------------------------------------------------------------------------


def test_the_command_runs_a_target_in_processes_side_by_side(tmp_path: Path) -> None:
    done = run_fuzz("cursor", "--seed", "3", "--cases", "30", "--jobs", "2", "--json",
                    "--save", str(tmp_path))  # fmt: skip
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert (document["cases"], document["failures"]) == (30, [])
    assert list(tmp_path.iterdir()) == []


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


@pytest.mark.parametrize("content", [b"", b"{", b"{}", b"[1]", b"\xff\xfe", b"3"])
def test_what_is_no_saved_case_is_told_without_a_traceback(tmp_path: Path, content: bytes) -> None:
    saved = tmp_path / "case.json"
    saved.write_bytes(content)
    done = run_fuzz("log", "--input", str(saved))
    assert (done.returncode, done.stdout) == (2, "")
    assert "is no saved case" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("options", [
    ["--time", "nan"], ["--time", "inf"], ["--case", "1", "--input", "README.md"],
    ["--case", "1", "--json"], ["--save", "/proc/none"],
])  # fmt: skip  # one case, one line
def test_options_that_make_no_sense_are_refused_before_anything_runs(options: list[str]) -> None:
    done = run_fuzz("log", *options)
    assert (done.returncode, done.stdout) == (2, "")
    assert "Error: --" in done.stderr


def test_a_case_that_fails_ends_with_1_and_its_traceback(tmp_path: Path) -> None:
    saved = tmp_path / "case.json"
    saved.write_text(json.dumps({"shape": "closed", "look": 1, "steps": [["x", "y", 1]]}))
    assert run_fuzz("recovery", "--input", str(saved)).returncode == 0  # a name that is not there
    saved.write_text(json.dumps({"shape": "no such shape", "look": 1, "steps": []}))
    done = run_fuzz("recovery", "--input", str(saved))
    assert done.returncode == 1
    assert "KeyError" in done.stdout
    assert done.stdout.endswith("FAILED\n")


def test_help_shows_examples_and_usage_errors_are_2() -> None:
    assert "python -m fuzz recovery --seed 7 --case 4711" in run_fuzz("--help").stdout
    for wrong in (["nothing"], ["log", "--engine", "atheris"], ["canary", "--case", "1"]):
        assert run_fuzz(*wrong).returncode == 2


def test_the_coverage_guided_engine_runs_or_says_what_it_needs(tmp_path: Path) -> None:
    done = run_fuzz("frame", "--engine", "atheris", "--time", "2", "--save", str(tmp_path))
    if importlib.util.find_spec("atheris") is None:
        assert done.returncode == 2
        assert "pip install 'aolog-bridge[fuzz]'" in done.stderr
    else:
        assert done.returncode == 0, done.stdout + done.stderr


def test_ctrl_c_tells_what_was_found_until_then():
    """A terminal sees the progress of each second. Two seconds."""
    leader, terminal = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "fuzz", "frame", "--time", "500", "--json"],
        cwd=ROOT, stdout=subprocess.PIPE, stderr=terminal,
    ) as campaign:  # fmt: skip  # one process
        try:
            os.close(terminal)
            seen = b""
            while b" cases, " not in seen:
                seen += os.read(leader, 1000)
            campaign.send_signal(signal.SIGINT)
            out, _ = campaign.communicate(timeout=60)
        finally:
            campaign.kill()
            os.close(leader)
    assert campaign.returncode == 3
    assert json.loads(out)["cases"] > 0
