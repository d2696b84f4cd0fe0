"""The promise of aolog/docs/guarantees.md: its clauses, and the page that says what proves each."""

from __future__ import annotations

import re

from tests.mutants import MUTANTS
from tests.mutants.proofs import PROOFS
from tests.mutants.run import ROOT, test_path

__all__ = ["PAGE", "clauses", "page", "place_of"]

PAGE = ROOT / "aolog/docs/proof.md"
_PROMISE = ROOT / "aolog/docs/guarantees.md"
_HEAD = """\
<!-- made by python -m tests.mutants --page -->
# What proves the promise

Each clause of [the promise](guarantees.md#the-promise) has tests, and mutants that the tests catch.
A *mutant* is a copy of the code in which one clause is broken on purpose. `python -m tests.mutants`
runs named tests on each mutant and fails if one survives. Mutants by exploration are found by
`python -m tests.explore --mutant NAME`. The fuzzer must find nine more (`fuzz/canary.py`).

[What the tests do not show](guarantees.md#what-the-tests-do-not-show) is listed with the promise.
"""


def clauses() -> list[str]:
    """Names of the promise's clauses, in order."""
    text = _PROMISE.read_text(encoding="utf-8")
    part = text.split("\n## The promise\n")[1].split("\n## ")[0]
    return [str(name) for name in re.findall(r"^- \*\*([a-z0-9 ]+)\.?\*\*", part, re.MULTILINE)]


def page() -> str:
    """The page, as Markdown."""
    parts = [_HEAD]
    for clause, tests, explored in PROOFS:
        mutants = [name for name, one in MUTANTS.items() if one.clause == clause]
        parts += [f"## {clause}\n", "".join(f"- `{test_path(test)}`\n" for test in tests)]
        parts += [f"Mutants: {_named(mutants)}.\n"]
        if explored:
            parts += [f"Mutants by exploration: {_named(explored)}.\n"]
    return "\n".join(parts)


def _named(names: list[str] | tuple[str, ...]) -> str:
    return "; ".join(name.replace("_", " ") for name in names)


def place_of(short: str) -> tuple[str, str]:
    """File and function of `file::test` or `folder/test_file::test`."""
    path, _, test = test_path(short).partition("::")
    return path, test.partition("[")[0]
