"""What a target is: it draws cases, and runs them."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

if TYPE_CHECKING:
    from fuzz.disk import Disk

__all__ = ["Case", "Target", "decode", "draw", "encode"]

# Plain JSON. Its "steps" are a list of which any part is a case too: that is what is minimised.
Case: TypeAlias = dict[str, Any]


class Target(Protocol):
    """A target is made once a process, with a place for its files."""

    def __init__(self, disk: Disk) -> None: ...

    def draw(self, rng: random.Random) -> Case:
        """A case. Everything random comes from `rng`."""

    def run(self, case: Case) -> str:
        """Runs it; what happened, as a word that is counted. Raises whatever is a failure. The
        same case does the same again, but for salts, UUIDs and clocks."""


def draw(target: Target, name: str, seed: int, number: int) -> Case:
    """Case `number` of a seed, which is the same wherever and whenever it is drawn."""
    return target.draw(random.Random(f"{name} {seed} {number}"))


def encode(case: Case) -> str:
    """As it is saved."""
    return json.dumps(case, indent=1) + "\n"


def decode(text: str) -> Case:
    """What `encode` made. Raises ValueError for anything else."""
    case: Case = json.loads(text)
    if not isinstance(case, dict) or not case:
        raise ValueError("no case: a JSON object with something in it")
    return case
