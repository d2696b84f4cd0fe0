"""The README's promise: its clauses, and what its table says proves each."""

from __future__ import annotations

import re
from typing import NamedTuple

from tests.mutants.run import ROOT, test_path

__all__ = ["Proof", "clauses", "place_of", "proofs"]

_EXPLORED = "by exploration: "


class Proof(NamedTuple):
    """A row. tests: `file::test`. mutants: of this package. explored: of tests.explore."""

    clause: str
    tests: list[str]
    mutants: set[str]
    explored: set[str]


def _part(begin: str, end: str) -> str:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    return text.split(f"\n{begin}\n")[1].split(f"\n{end}")[0]


def clauses() -> list[str]:
    """Names of the promise's clauses, in order."""
    names = re.findall(r"^- \*\*([a-z0-9 ]+)\.?\*\*", _part("### The promise", "###"), re.MULTILINE)
    return [str(name) for name in names]


def proofs() -> list[Proof]:
    """The table's rows."""
    rows = []
    for line in _part("### What proves it", "## ").splitlines():
        cells = [cell.strip() for cell in line.split("|")[1:-1]]
        if len(cells) != 3 or "`" not in cells[1]:
            continue
        clause, tests, caught = cells
        ours, _, explored = caught.partition(_EXPLORED)
        rows.append(Proof(clause, re.findall("`([^`]+)`", tests), _names(ours), _names(explored)))
    return rows


def _names(cell: str) -> set[str]:
    return {name.strip().replace(" ", "_") for name in cell.split(";") if name.strip()}


def place_of(short: str) -> tuple[str, str]:
    """File and function of `file::test` or `folder/test_file::test`."""
    path, _, test = test_path(short).partition("::")
    return path, test.partition("[")[0]
