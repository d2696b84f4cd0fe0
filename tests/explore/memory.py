"""What reading a state gives, remembered by what was read.

States differ in bytes that a look at them never asks for: the other copy of a cursor, what is kept
aside, what recovery cut. A look is a deterministic program that asks the system and changes nothing,
so as long as all that it asked about is the same, it asks for the same next and ends with the same.
What it asked about is noted by path, in order, with all that stands there: names and bytes, which is
what makes states equal elsewhere too (`Survivor.content_hash`).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from itertools import pairwise
from typing import Any, TypeVar

import xxhash

from aolog.storage.storage import Storage
from aolog.testing import Call, SimulatedSystem

__all__ = ["Memory"]

_T = TypeVar("_T")
# What stands at a path: a file's hash, a directory's names, None.
_There = bytes | tuple[str, ...] | None


class _Asked:
    """A path that a look asks about, and where it goes on by what stands there."""

    __slots__ = ("next", "path")

    def __init__(self, path: str) -> None:
        self.path = path
        self.next: dict[_There, _Asked | _Result] = {}


class _Result:
    __slots__ = ("value",)

    def __init__(self, value: object) -> None:
        self.value = value


class Memory:
    """Results of looks, by the name of the look. Not thread-safe."""

    def __init__(self) -> None:
        self._first: dict[Hashable, _Asked | _Result] = {}
        self.hits = 0

    def look(self, name: Hashable, system: SimulatedSystem, do: Callable[[Storage], _T]) -> _T:
        """What `do` returns on the system, which it must not change. name: of all that it depends
        on beside the system. What it raises is not remembered."""
        name = name, system.boot_id()  # the one thing that may be asked for without a path
        there: dict[str, _There] = {}
        at: Any = self._first.get(name)
        while isinstance(at, _Asked):
            path = at.path
            if path not in there:
                there[path] = _stands(system, path)
            at = at.next.get(there[path])
        if at is not None:
            self.hits += 1
            return at.value  # type: ignore[no-any-return]  # as the name says
        return self._done(name, system, do, there)

    def _done(
        self,
        name: Hashable,
        system: SimulatedSystem,
        do: Callable[[Storage], _T],
        there: dict[str, _There],
    ) -> _T:
        asked: dict[str, None] = {}

        def before(call: Call) -> None:
            asked.setdefault(call.path)

        assert system.before is None
        version, system.before = system.version, before
        try:
            value = do(Storage(system))
        finally:
            system.before = None
        assert system.version == version, f"{name} changes the system"
        for path in asked.keys() - there.keys():
            there[path] = _stands(system, path)
        self._keep(name, [(path, there[path]) for path in asked], value)
        return value

    def _keep(self, name: Hashable, asked: list[tuple[str, _There]], value: object) -> None:
        if not asked:
            self._first[name] = _Result(value)
            return
        at = self._first.setdefault(name, _Asked(asked[0][0]))
        for (path, stands), (then, _) in pairwise(asked):
            assert isinstance(at, _Asked)
            assert at.path == path, f"{name} is not deterministic"
            at = at.next.setdefault(stands, _Asked(then))
        assert isinstance(at, _Asked)
        at.next[asked[-1][1]] = _Result(value)


def _stands(system: SimulatedSystem, path: str) -> _There:
    content = system.at(path)
    return xxhash.xxh3_128_digest(content) if isinstance(content, bytes) else content
