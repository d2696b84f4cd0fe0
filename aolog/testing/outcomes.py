"""Every state of a disk that a power cut may leave, by number.

A state is a subset of the waiting changes of entries, and one content for each file that has a name
then. If there are few states, all are taken. If there are many: first the corners (for each subset, the
least and the most of all files), then numbers that are far apart, then random ones.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

import xxhash

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from random import Random

    from aolog.testing.inode import Contents

ROOT = 1  # the inode of /
_SUBSETS_MAX = 10  # of waiting changes every subset is tried: up to 1024


class Change(NamedTuple):
    """A change of entries that is not durable. directories: their inodes. sets: the (directory, name,
    inode) that it adds. drops: the one that it removes."""

    number: int
    directories: tuple[int, ...]
    sets: tuple[int, str, int] | None
    drops: tuple[int, str, int] | None


def apply_change(change: Change, entries_of: Callable[[int], dict[str, int]]) -> None:
    """Applies the change to the entries of its directories."""
    if change.drops:
        directory, name, ino = change.drops
        entries = entries_of(directory)
        if entries.get(name) == ino:
            del entries[name]
    if change.sets:
        directory, name, ino = change.sets
        entries_of(directory)[name] = ino


class _Tree(NamedTuple):
    """Entries that may survive together. files: each path, and the inode of a file there, sorted; 0 for
    a directory. choices: inodes with more than one possible content. states: the number of
    combinations."""

    entries: dict[int, dict[str, int]]
    files: list[tuple[bytes, int]]
    choices: list[int]
    states: int


class Outcomes:
    """directories: the durable entries of each, by inode. waiting: changes that are not durable, in
    order. contents: of each file, by inode."""

    def __init__(
        self,
        directories: Mapping[int, dict[str, int]],
        waiting: list[Change],
        contents: Mapping[int, Contents],
    ) -> None:
        self._directories = directories
        self._waiting = waiting
        self.contents = contents
        self._digests: dict[tuple[int, int], bytes] = {}
        self._trees = self._all_trees()
        self._ends = list(accumulate(tree.states for tree in self._trees))
        self.count = self._ends[-1]

    def _all_trees(self) -> list[_Tree]:
        waiting = self._waiting
        n = len(waiting)
        if n <= _SUBSETS_MAX:
            subsets = [
                [c for i, c in enumerate(waiting) if mask >> i & 1] for mask in range(1 << n)
            ]
        else:  # prefixes, and all but one
            subsets = [waiting[:i] for i in range(n + 1)]
            subsets += [waiting[:i] + waiting[i + 1 :] for i in range(n)]
        return [self._tree(subset) for subset in subsets]

    def _tree(self, kept: list[Change]) -> _Tree:
        durable = {ino: entries.copy() for ino, entries in self._directories.items()}
        for change in kept:
            apply_change(change, lambda ino: durable.setdefault(ino, {}))
        entries: dict[int, dict[str, int]] = {}
        files: list[tuple[str, int]] = []
        walk = [("", ROOT)]
        while walk:
            path, ino = walk.pop()
            entries[ino] = durable[ino]
            for name in sorted(durable[ino]):
                child = durable[ino][name]
                if child in durable:
                    files.append((f"{path}/{name}/", 0))
                    walk.append((f"{path}/{name}", child))
                else:
                    files.append((f"{path}/{name}", child))
        files.sort()
        listed = dict.fromkeys(ino for _, ino in files if ino)
        choices = [ino for ino in listed if self.contents[ino].count > 1]
        count = math.prod(self.contents[ino].count for ino in choices)
        return _Tree(entries, [(f"{path}\0".encode(), ino) for path, ino in files], choices, count)

    def numbers(self, limit: int, sample: int, rng: Random | None) -> Iterator[int]:
        """The states to take: see the module."""
        count = self.count
        if count <= limit:
            yield from range(count)
            return
        for end, tree in zip(self._ends, self._trees, strict=True):
            yield from (end - tree.states, end - 1)
        stride = count * 618033988749895 // 10**15 | 1
        while math.gcd(stride, count) != 1:
            stride += 2
        for i in range(1, limit - 2 * len(self._trees) + 1):
            yield i * stride % count
        if rng is not None:
            for _ in range(sample):
                yield rng.randrange(count)

    def at(self, number: int) -> tuple[bytes, dict[int, dict[str, int]], dict[int, int]]:
        """(content hash, entries, content of each inode) of the number-th state."""
        i = bisect_right(self._ends, number)
        tree = self._trees[i]
        left = number - (self._ends[i] - tree.states)
        choice = {}
        for ino in tree.choices:
            left, choice[ino] = divmod(left, self.contents[ino].count)
        hashed = [p + self._digest(ino, choice.get(ino, 0)) if ino else p for p, ino in tree.files]
        return xxhash.xxh3_128_digest(b"".join(hashed)), tree.entries, choice

    def _digest(self, ino: int, which: int) -> bytes:
        found = self._digests.get((ino, which))
        if found is None:
            content = self.contents[ino].content(which)
            found = self._digests[ino, which] = xxhash.xxh3_128_digest(content)
        return found
