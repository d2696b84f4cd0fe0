"""Each clause of the promise has tests and mutants, and the tests catch the mutants.

The tests of the compiled half catch mutants of the C code. CI runs the first mutant of each clause, `--long`
all of them: two minutes on two cores.
"""

from __future__ import annotations

import ast
import shutil
import subprocess
import sys
from collections import Counter
from functools import cache

import pytest

from aolog.format.native.speed import compiled
from tests.mutants.c_mutants import C_MUTANTS, changed_source
from tests.mutants.defects import MUTANTS
from tests.mutants.mutant import ROOT, applied, found
from tests.mutants.page import PAGE, clauses, page
from tests.mutants.proofs import PROOFS
from tests.mutants.run import first_of_each_clause, path_of

COMPILES = shutil.which("gcc") is not None and hasattr(compiled, "Frames")
needs_compiler = pytest.mark.skipif(not COMPILES, reason="no gcc, or no xxhash.h")


@cache
def functions(path: str) -> set[str]:
    """Those of a module, and its state machines."""
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    machines = {ast.unparse(node.targets[0]) for node in tree.body if isinstance(node, ast.Assign)}
    return machines | {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def exists(short: str) -> bool:
    path, _, test = path_of(short).partition("::")
    return test.partition("[")[0] in functions(path)


def test_every_clause_of_the_promise_has_tests_that_exist():
    assert list(PROOFS) == clauses()
    assert len(clauses()) > 25
    for clause, tests in PROOFS.items():
        assert tests.split(), clause
        assert [test for test in tests.split() if not exists(test)] == []


def test_every_clause_of_the_promise_has_two_mutants_and_ci_runs_at_most_30():
    count = Counter(one.clause for one in MUTANTS.values())
    assert count.keys() == set(clauses())
    assert min(count.values()) >= 2
    assert len(first_of_each_clause(MUTANTS.values())) <= 30


@pytest.mark.parametrize("one", MUTANTS.values(), ids=MUTANTS)
def test_a_mutant_has_seams_that_exist_and_something_that_must_find_it(one):
    def now():
        return [getattr(*found(seam)) for seam in one.seams.split()]

    originals = now()
    with applied(one):
        assert now() != originals
    assert now() == originals
    assert one.test or one.case or one.target
    assert one.test is None or exists(one.test)


@pytest.mark.parametrize("one", C_MUTANTS.values(), ids=C_MUTANTS)
def test_a_mutant_of_the_c_code_changes_one_place_and_names_a_test(one):
    path, text = changed_source(one)
    assert text != path.read_text(encoding="utf-8")
    assert exists(one.test)


def test_the_page_of_proofs_is_what_the_command_writes():
    assert PAGE.read_text(encoding="utf-8") == page(), "python -m tests.mutants --page"


HARMLESS_AND_BROKEN = """
from tests.mutants.c_mutants import CMutant
from tests.mutants.mutant import Mutant
from tests.mutants.run import run_all

TEST, SEAM = "frame::test_within_32_gib_a_frame_validates_at_its_own_offset_only", "aolog.format:decode_header"
made = [
    Mutant("harmless", "", SEAM, lambda original: lambda *args: original(*args), TEST),
    Mutant("broken", "", SEAM, lambda original: lambda: None, TEST),
    Mutant("inapplicable", "", "aolog.format:no_such_function", lambda original: original, TEST),
]
C_TEST, TEXT = "inlet::test_addresses_end_below_two_to_the_63", "XXH3_64bits(body, padded)"
made_c = [
    CMutant("harmless C", "", TEXT, f"({TEXT})", C_TEST),
    CMutant("no C", "", TEXT, "(", C_TEST),
    CMutant("C that occurs twice", "", "return NULL;", "return 0;", C_TEST),
]
print({one.mutant.name: one.caught for one in run_all(made + made_c * COMPILES)})
"""


def test_a_harmless_a_broken_and_an_inapplicable_mutant_do_not_count_as_caught():
    command = [sys.executable, "-c", f"COMPILES = {COMPILES}\n{HARMLESS_AND_BROKEN}"]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    caught = ast.literal_eval(ended.stdout)
    names = ["harmless", "broken", "inapplicable"]
    names += ["harmless C", "no C", "C that occurs twice"] * COMPILES
    assert caught == dict.fromkeys(names, False)


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "mutants", [MUTANTS, pytest.param(C_MUTANTS, marks=needs_compiler)], ids=["python", "c"]
)
def test_every_mutant_is_caught_by_its_tests(mutants, said, pytestconfig):
    """In a process that forks: this one has threads."""
    few = [] if pytestconfig.getoption("--long") else ["--few"]
    command = [sys.executable, "-m", "tests.mutants", "--jobs", "1", *few, *mutants]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    lines = ended.stdout.splitlines()
    said(lines[-1] if lines else "")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    caught = {line.removeprefix("caught: ").partition(" (")[0] for line in lines}
    expected = first_of_each_clause(mutants.values()) if few else mutants.values()
    assert caught >= {one.name for one in expected if one.test}
