"""Mutants: the tests' own test. Each breaks one clause of the promise (aolog/docs/guarantees.md), in
a copy of the code; named tests must fail on it.

    python -m tests.mutants                    all
    python -m tests.mutants NAME ...           some; what the tests said is shown where one lives
    python -m tests.mutants --page             write aolog/docs/proof.md anew

mutant.py says what a mutant is, writing.py, reading.py and publishing.py list them, run.py runs them,
proofs.py lists the tests of each clause, promise.py makes the page of all three.
"""

from __future__ import annotations

from tests.mutants.publishing import PUBLISHING
from tests.mutants.reading import READING
from tests.mutants.writing import WRITING

__all__ = ["MUTANTS"]

MUTANTS = {mutant.name: mutant for mutant in (*WRITING, *READING, *PUBLISHING)}
