"""Tests use public names. A use of a private one is counted here, and there are few."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

TESTS = Path(__file__).parent
USES_MAX = 18  # present uses: lower it with each that goes
NOT_OURS = {
    "self",
    "cls",
    "os",
    "sys",
    "KafkaError",
}  # librdkafka's own errors begin with an underscore
NAMED_TUPLE = {"_asdict", "_fields", "_make", "_replace"}


def private_uses(tree: ast.AST) -> list[str]:
    """Private attributes of other objects, and private names that are imported from our modules."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and is_private(node.attr):
            own = isinstance(node.value, ast.Name) and node.value.id in NOT_OURS
            own = own or ast.unparse(node.value) == "super()"
            found += [] if own else [ast.unparse(node)]
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith(
            ("aolog", "bridge")
        ):
            found += [alias.name for alias in node.names if is_private(alias.name)]
    return found


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and name not in NAMED_TUPLE


def test_the_check_sees_private_names_and_nothing_else():
    seen = "writer._lock\nfrom aolog.log.walk import _headers\nwriter._chain.slab"
    ignored = "self._lock\nsuper()._open()\nos._exit(0)\nrecord._replace(key=b'')\nwriter.__class__\nwriter.end"
    assert len(private_uses(ast.parse(seen))) == 3
    assert private_uses(ast.parse(ignored)) == []


def test_tests_use_few_private_names():
    uses = Counter[str]()
    for path in TESTS.rglob("*.py"):
        found = private_uses(ast.parse(path.read_text(encoding="utf-8")))
        uses[str(path.relative_to(TESTS))] += len(found)
    listed = "\n".join(f"{count:4} {path}" for path, count in uses.most_common() if count)
    assert uses.total() <= USES_MAX, listed
