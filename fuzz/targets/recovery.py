"""recovery: random damages of a random log; every reader is compared with the oracle, before and after a
writer recovers the log. A case is a shape of log, and damages as steps.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from fuzz.check import check_all
from fuzz.damage import apply, random_damages
from fuzz.layout import base_of
from fuzz.shapes import SHAPES, Made, make

if TYPE_CHECKING:
    from fuzz.disk import Disk
    from fuzz.target import Case

__all__ = ["RecoveryTarget"]


class RecoveryTarget:
    """See the module."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._made: dict[str, Made] = {}

    def _shape(self, shape: str) -> Made:
        if shape not in self._made:  # salts differ from process to process, places do not
            self._made[shape] = make(self._disk, shape)
        return self._made[shape]

    def draw(self, rng: random.Random) -> Case:
        """A shape and what is done to it."""
        shape = rng.choice(sorted(SHAPES))
        made = self._shape(shape)
        steps = random_damages(rng, made.known, made.files)
        return {"shape": shape, "look": rng.randrange(1 << 16), "steps": steps}

    def run(self, case: Case) -> str:
        """Damages the log and makes all checks. If no damage applies, the log is intact."""
        made = self._shape(case["shape"])
        files = apply(made.files, case["steps"])
        expected = check_all(made.known, files, self._disk, random.Random(case["look"]))
        if expected is None:
            return f"{case['shape']}: no slab left that says what it is"
        if expected.newer:
            return f"{case['shape']}: newer format"
        reasons = sorted({gap.reason for gap in expected.gaps})
        slabs = sum(base_of(name) is not None for name in files)
        lost = "all" if not expected.records else "some" if reasons else "none told"
        return f"{case['shape']}: {slabs} slabs, {'+'.join(reasons) or 'no gap'}, lost {lost}"
