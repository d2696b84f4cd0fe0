"""Mutants: the tests' own test. Each breaks one clause of the README's promise, in a copy of the
code; named tests must fail on it.

    python -m tests.mutants                    all
    python -m tests.mutants NAME ...           some; what the tests said is shown where one lives

mutant.py says what a mutant is, writing.py, reading.py and publishing.py list them, run.py runs them,
promise.py reads the clauses and their tests out of the README.
"""

from __future__ import annotations

from tests.mutants.publishing import PUBLISHING
from tests.mutants.reading import READING
from tests.mutants.writing import WRITING

__all__ = ["MUTANTS"]

MUTANTS = {mutant.name: mutant for mutant in (*WRITING, *READING, *PUBLISHING)}
