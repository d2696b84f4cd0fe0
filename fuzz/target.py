"""The interface of a target, which draws cases and runs them."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

if TYPE_CHECKING:
    from fuzz.disk import Disk

__all__ = ["Case", "Target", "decode", "draw", "encode"]

# Plain JSON. "steps" is a list; any part of it makes a case too, so that it can be minimised.
Case: TypeAlias = dict[str, Any]


class Target(Protocol):
    """Made once per process, with a directory for its files."""

    def __init__(self, disk: Disk) -> None: ...

    def draw(self, rng: random.Random) -> Case:
        """A case. All randomness comes from `rng`."""

    def run(self, case: Case) -> str:
        """Runs the case. Returns the outcome, as a word to count; raises any error for a failure. A case
        repeats exactly, except for salts, UUIDs and clocks."""


def draw(target: Target, name: str, seed: int, number: int) -> Case:
    """Case `number` of a seed, always the same."""
    return target.draw(random.Random(f"{name} {seed} {number}"))


def encode(case: Case) -> str:
    """The case as text."""
    return json.dumps(case, indent=1) + "\n"


def decode(text: str) -> Case:
    """The inverse of `encode`. Raises ValueError for any other text."""
    case: Case = json.loads(text)
    if not isinstance(case, dict) or not case:
        raise ValueError("expected a JSON object that is not empty")
    return case
