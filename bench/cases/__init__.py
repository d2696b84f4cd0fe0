"""The cases: who does which work, and what of it is timed. One a file.

Each is a function of a `Plan` that yields groups one by one; what a group reads exists until the
next is asked for.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from bench.cases.plan import Plan
    from bench.measure import Group

__all__ = ["CASES", "CASES_WITH_TARGETS", "groups_of_case"]

CASES = ("append", "append_many", "read", "arrow", "seek", "durability", "opening")
CASES_WITH_TARGETS = ("arrow", "seek", "durability", "opening")


def groups_of_case(case: str, plan: Plan) -> Iterator[Group]:
    module = importlib.import_module(f"bench.cases.{case}")
    return cast("Callable[[Plan], Iterator[Group]]", module.groups)(plan)
