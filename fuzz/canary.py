"""Mutants (tests/mutants) that a fuzzer must find: one that does not is broken."""

from __future__ import annotations

from typing import NamedTuple

from fuzz.disk import Disk
from fuzz.shapes import quiet
from fuzz.target import draw
from fuzz.targets import load
from tests.mutants.defects import MUTANTS
from tests.mutants.mutant import Mutant, applied

__all__ = ["CANARIES", "CASES", "Found", "hunt"]

CANARIES = [one for one in MUTANTS.values() if one.target is not None]
CASES = 800  # within so many cases a target must find each of its mutants


class Found(NamedTuple):
    """case: the number of the first case that failed; None: the mutant survived."""

    canary: Mutant
    case: int | None
    error: str


def hunt(canary: Mutant, seed: int) -> Found:
    """Runs cases until one fails. Raises LookupError if the mutant cannot be applied."""
    quiet()
    name = canary.target or ""
    with applied(canary), Disk() as disk:
        target = load(name)(disk)
        for number in range(CASES):
            try:
                target.run(draw(target, name, seed, number))
            except (TypeError, AttributeError, NameError):
                raise  # the mutant itself is broken
            except Exception as error:  # noqa: BLE001 -- any other error is the failure
                return Found(canary, number, f"{type(error).__name__}: {error}")
    return Found(canary, None, "")
