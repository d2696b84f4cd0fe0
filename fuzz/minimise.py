"""Minimises a failing case: leaves out steps as long as it fails in the same way. Reads a clock."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from fuzz.target import Case

__all__ = ["minimise", "signature"]

_SECONDS_MAX = 20.0


def signature(error: BaseException) -> str:
    """Equal for two failures that are probably the same: the kind and the words, without numbers."""
    words = re.sub(r"\(.*|\{.*|\[.*|[0-9]+", "", str(error))
    return f"{type(error).__name__}: {words[:60].strip()}"


def minimise(case: Case, failure: Callable[[Case], str | None]) -> Case:
    """Delta debugging over the case's steps: halves, quarters, single ones. failure: runs a case;
    returns how it failed, None if it did not. Returns the smallest that fails as `case` does, or the
    smallest so far after 20 seconds."""
    wanted = failure(case)
    until = time.monotonic() + _SECONDS_MAX
    steps = list(case["steps"])
    size = max(1, len(steps) // 2)
    while wanted is not None:
        begin, smaller = 0, False
        while begin < len(steps) and time.monotonic() < until:
            fewer = steps[:begin] + steps[begin + size :]
            if failure({**case, "steps": fewer}) == wanted:
                steps, smaller = fewer, True
            else:
                begin += size
        if time.monotonic() >= until or (size == 1 and not smaller):
            break
        size = max(1, size // 2)
    return {**case, "steps": steps}
