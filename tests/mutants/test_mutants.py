"""The promise's clauses have tests and mutants, and the tests catch the mutants.

All mutants run in both budgets: about a minute of processor time, on all cores.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from functools import cache

import pytest

from tests.explore.mutants import MUTANTS as EXPLORED
from tests.mutants import MUTANTS
from tests.mutants.promise import PAGE, clauses, page, place_of
from tests.mutants.proofs import PROOFS
from tests.mutants.run import ROOT, changed_text


@cache
def functions(path: str) -> set[str]:
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def test_every_clause_of_the_promise_has_its_proof_once():
    assert [proof.clause for proof in PROOFS] == clauses()
    assert len(clauses()) > 15
    assert {mutant.clause for mutant in MUTANTS.values()} == set(clauses())


def test_the_page_of_proofs_is_what_the_command_makes():
    assert PAGE.read_text(encoding="utf-8") == page(), "python -m tests.mutants --page"


@pytest.mark.parametrize("proof", PROOFS, ids=lambda proof: proof.clause)
def test_a_clause_has_tests_that_exist_and_mutants(proof):
    assert proof.tests
    for path, test in map(place_of, proof.tests):
        assert test in functions(path), f"{path} has no {test}"
    assert any(one.clause == proof.clause for one in MUTANTS.values())


def test_the_proofs_have_the_mutants_of_exploration_once():
    assert sorted(name for proof in PROOFS for name in proof.explored) == sorted(EXPLORED)


def test_a_mutant_names_tests_that_exist_and_still_applies():
    for mutant in MUTANTS.values():
        for path, test in map(place_of, mutant.tests):
            assert test in functions(path), f"{mutant.name}: {path} has no {test}"
        for file, text in changed_text(mutant).items():
            compile(text, file, "exec")


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (["--help"], 0, ""),
        ([], 2, "No module named 'hypothesis'; what the tests need comes with pip install"),
        (["nonsense"], 2, "no such mutant: nonsense"),
    ],
)
def test_without_the_libraries_of_the_tests_it_says_so(tmp_path, arguments, status, said):
    missing = "raise ModuleNotFoundError(\"No module named 'hypothesis'\", name='hypothesis')\n"
    (tmp_path / "hypothesis.py").write_text(missing)
    done = subprocess.run(
        [sys.executable, "-m", "tests.mutants", *arguments],
        cwd=ROOT, env={"PYTHONPATH": str(tmp_path)}, capture_output=True, text=True, check=False,
    )  # fmt: skip  # one call
    assert done.returncode == status
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_names_of_mutants_are_unique():
    from tests.mutants.publishing import PUBLISHING
    from tests.mutants.reading import READING
    from tests.mutants.writing import WRITING

    assert len(MUTANTS) == len(READING) + len(WRITING) + len(PUBLISHING) >= 25


MADE = """
from tests.mutants.mutant import Edit, Mutant
from tests.mutants.run import run_all

def mutant(name, new):
    tests = ("frame::test_a_truncated_frame_is_not_intact",)
    return Mutant(name, "", tests, (Edit("aolog/format/frame.py", "MAGIC = 0xF2A0\\n", new),))

made = [mutant("nothing", "MAGIC = 0xF2A0  # as it was\\n"), mutant("import", "MAGIC = unknown\\n")]
assert [one.caught for one in run_all(made)] == [False, False]
try:
    list(run_all([mutant("none", "")._replace(edits=(Edit("aolog/format/frame.py", "no such text", ""),))]))
except LookupError:
    print("as it should be")
"""


def test_what_breaks_nothing_is_not_caught_nor_what_cannot_be_imported():
    command = [sys.executable, "-c", MADE]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ended.stdout == "as it should be\n", ended.stderr


@pytest.mark.xdist_group("every core")
@pytest.mark.timeout(900)
def test_every_mutant_is_caught_by_its_tests(said, pytestconfig):
    """One of each clause; with `--long` all. In a process that forks: this one has threads and what
    pytest patched."""
    few = [] if pytestconfig.getoption("--long") else ["--few"]
    command = [sys.executable, "-m", "tests.mutants", *few]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    lines = ended.stdout.splitlines()
    said(lines[-1] if lines else "")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    caught = {line.split()[1] for line in lines if line.startswith("caught ")}
    assert {MUTANTS[name].clause for name in caught} == {one.clause for one in MUTANTS.values()}
    assert few or caught == set(MUTANTS)
