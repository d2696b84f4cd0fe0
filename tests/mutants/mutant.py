"""What a mutant is: a defect, put into the code at run time at named *seams*.

A seam is a method or a function of a room: `aolog.storage:File.datasync`. The room finds the module,
so code may move between the files of a room. A seam that does not exist, or exists twice, is an
error. A patched function is patched under every name that it was imported as.
"""

from __future__ import annotations

import contextlib
import importlib
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

__all__ = ["ROOT", "Mutant", "applied", "found"]

ROOT = Path(__file__).parents[2]
_OURS = ("aolog", "bridge", "fuzz", "tests")


class Mutant(NamedTuple):
    """clause: of the promise, which it breaks. seams: separated by spaces; their originals are
    replaced by what `make` returns for them, one or a tuple.

    What must find it: `test`, which must fail, `file::test` of tests/**/test_file.py; the exploration of
    `case`; the fuzzer of `target`.
    """

    name: str
    clause: str
    seams: str
    make: Callable[..., Any]
    test: str | None = None
    case: str | None = None
    target: str | None = None


def found(seam: str) -> tuple[Any, str]:
    """The object that holds the seam, and the attribute's name. Raises LookupError."""
    room, _, path = seam.partition(":")
    *owners, name = path.split(".")
    first = [*owners, name][0]
    defined = re.compile(rf"^(?:class|def) {first}\b", re.MULTILINE)
    files = sorted((ROOT / room.replace(".", "/")).rglob("*.py"))
    holding = [file for file in files if defined.search(file.read_text(encoding="utf-8"))]
    if len(holding) != 1:
        raise LookupError(f"{seam}: {first} is defined in {len(holding)} modules of {room}")
    module = ".".join(holding[0].relative_to(ROOT).with_suffix("").parts)
    owner: Any = importlib.import_module(module)
    for each in owners:
        owner = getattr(owner, each, None)
    if not hasattr(owner, name):
        raise LookupError(f"{seam}: {module} has no {path}")
    return owner, name


@contextlib.contextmanager
def applied(one: Mutant) -> Iterator[None]:
    """The code has the defect inside the block. Raises LookupError."""
    places = [found(seam) for seam in one.seams.split()]
    originals = [getattr(owner, name) for owner, name in places]
    made = one.make(*originals)
    swaps = [*zip(places, originals, made if len(places) > 1 else [made], strict=True)]
    for (owner, name), original, new in swaps:
        _put(owner, name, original, new)
    try:
        yield
    finally:
        for (owner, name), original, new in swaps:
            _put(owner, name, new, original)


def _put(owner: Any, name: str, old: Any, new: Any) -> None:
    if isinstance(owner, type):
        setattr(owner, name, new)
        return
    for module_name, module in list(sys.modules.items()):
        if module_name.split(".")[0] in _OURS:
            for key, value in list(vars(module).items()):
                if value is old:
                    setattr(module, key, new)
