"""What a mutant is."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["Edit", "Mutant"]


class Edit(NamedTuple):
    """old stands exactly once in the file, from the checkout's root, and becomes new."""

    file: str
    old: str
    new: str


class Mutant(NamedTuple):
    """A defect. clause: of the promise, which it breaks. tests: `file::test` below tests/aolog
    (without `test_` before the file and `.py` behind it), or `folder/test_file::test`; at least one must fail. edits: one, but
    where the code does the same in two places (a loop without calls beside the plain function)."""

    name: str
    clause: str
    tests: tuple[str, ...]
    edits: tuple[Edit, ...]
