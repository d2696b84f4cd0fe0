"""The cases, one in each file: the contenders, their work, and what of it is timed.

Each has a function `groups` of a `Plan` that yields groups (of contenders, timed) or panels (of probes,
with other figures) one by one. The files that one reads exist until the next is requested. A new case is
a file here, and its name below.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from bench.cases.plan import Plan
    from bench.measure import Group
    from bench.panel import Panel

__all__ = ["CASES", "CASES_ON_REQUEST", "CASES_WITH_TARGETS", "groups_of_case"]

CASES = (
    "append", "append_many", "append_arrow", "append_large", "forms", "read", "read_large", "arrow", "seek",
    "follow", "durability", "opening", "memory", "scale", "compression", "throughput",
    "latency", "delivery", "backlog", "bridge_memory", "poison", "client", "pull", "spark", "store", "instructions",
)  # fmt: skip  # a table
CASES_WITH_TARGETS = (
    "append", "append_many", "append_arrow", "append_large", "forms", "read", "read_large", "arrow", "seek",
    "follow", "durability", "opening", "memory", "scale", "throughput", "latency",
    "delivery", "backlog", "bridge_memory", "poison", "client", "pull", "spark", "store",
)  # fmt: skip  # a table
CASES_ON_REQUEST = ("instructions",)


def groups_of_case(case: str, plan: Plan) -> Iterator[Group | Panel]:
    module = importlib.import_module(f"bench.cases.{case}")
    return cast("Callable[[Plan], Iterator[Group | Panel]]", module.groups)(plan)
