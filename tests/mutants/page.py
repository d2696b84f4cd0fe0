"""The page that says what proves each clause of the promise (aolog/docs/explanation/guarantees.md)."""

from __future__ import annotations

import re

from tests.mutants.c_mutants import C_MUTANTS
from tests.mutants.defects import MUTANTS
from tests.mutants.mutant import ROOT, Mutant
from tests.mutants.proofs import PROOFS
from tests.mutants.run import path_of

__all__ = ["PAGE", "clauses", "page"]

PAGE = ROOT / "aolog/docs/explanation/proof.md"
_PROMISE = ROOT / "aolog/docs/explanation/guarantees.md"
_HEAD = """\
<!-- made by python -m tests.mutants --page -->
# What proves the promise

Each clause of [the promise](guarantees.md#the-promise) has tests, and mutants that the tests catch.
A *mutant* is a defect that breaks one clause on purpose. `python -m tests.mutants` runs named tests
on each mutant and fails if one survives. Crash exploration must find some of them too
(`python -m tests.explore --mutant NAME`), and so must the fuzzer (`python -m fuzz canary`). CI runs
the first mutant of each clause, `--long` all.

[What the tests do not show](guarantees.md#what-the-tests-do-not-show) is listed with the promise.
"""


_COMPILED = """\
## The compiled half

The Python half is the reference, and the compiled half must do the same. Each mutant below is a changed line of
the C code in `aolog/format/native` and `bridge/kafka`, compiled and loaded in place of that half. The tests named here find them.
"""


def clauses() -> list[str]:
    """Names of the promise's clauses, in order; each point of the section is one."""
    text = _PROMISE.read_text(encoding="utf-8")
    part = text.split("\n## The promise\n")[1].split("\n## ")[0]
    return re.findall(r"^- (?:\*\*([a-z0-9 ]+)\.?\*\*)?", part, re.MULTILINE)


def page() -> str:
    """The page, as Markdown."""
    parts = [_HEAD]
    for clause, tests in PROOFS.items():
        parts += [f"## {clause}\n", "".join(f"- `{path_of(test)}`\n" for test in tests.split())]
        mutants = [one for one in MUTANTS.values() if one.clause == clause]
        parts += ["Mutants:\n", "".join(map(_line, mutants))]
    tests = dict.fromkeys(one.test for one in C_MUTANTS.values())
    parts += [_COMPILED, "".join(f"- `{path_of(test)}`\n" for test in tests)]
    for clause in dict.fromkeys(one.clause for one in C_MUTANTS.values()):
        names = [one.name for one in C_MUTANTS.values() if one.clause == clause]
        parts += [f"Mutants, {clause}:\n", "".join(f"- {name}\n" for name in names)]
    return "\n".join(parts)


def _line(one: Mutant) -> str:
    finders = ["exploration"] * (one.case is not None) + ["the fuzzer"] * (one.target is not None)
    also = " and ".join(finders)
    return f"- {one.name}{f' (found by {also})' if also else ''}\n"
