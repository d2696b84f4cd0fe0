"""JSON as hazdev-broker's files have it: with comments, and with keys that are repeated. Pure.

A comment begins with `#` or `//` outside a string and ends with its line. A key that is repeated with
an equal value counts once; of unequal values the last counts, and a notice says so.
"""

from __future__ import annotations

import json
import re
from typing import Any

_STRING_OR_COMMENT = re.compile(r'"(?:[^"\\\n]|\\.)*"|#[^\n]*|//[^\n]*')


def parse(text: str) -> tuple[Any, list[str]]:
    """The value, and notices about repeated keys. Raises ValueError, which names line and column."""
    notices: list[str] = []

    def table(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key, value in pairs:
            if key in found and found[key] != value:
                notices.append(f"{key} is given more than once; the last value counts")
            found[key] = value
        return found

    plain = _STRING_OR_COMMENT.sub(_without_comment, text)
    try:
        found = json.loads(plain, object_pairs_hook=table, parse_constant=_refuse_constant)
    except RecursionError:
        raise ValueError("is nested too deeply") from None
    return found, notices


def _without_comment(match: re.Match[str]) -> str:
    """Spaces in place of a comment, so that errors name the right column."""
    found = match[0]
    return found if found.startswith('"') else " " * len(found)


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is not a number in JSON")
