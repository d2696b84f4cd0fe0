"""Mutants as parameters of a test."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from tests.mutants.defects import MUTANTS
from tests.mutants.mutant import Mutant
from tests.mutants.run import first_of_each_clause


def of_ci(mutants: Iterable[Mutant]) -> list[Any]:
    """What CI leaves out is marked slow."""
    chosen = first_of_each_clause(MUTANTS.values())
    return [
        pytest.param(one, id=one.name, marks=[] if one in chosen else [pytest.mark.slow])
        for one in mutants
    ]
