"""A simulated file: what processes see, and what the device may hold.

    cache      the newest bytes, which every process reads
    durable    bytes that are certainly on the device
    versions   for each piece written since the last sync: its contents, in order
    sizes      the sizes of the file since the last sync

The device writes pieces in any order and at any time, each completely or not at all. So after a power
cut a piece is one of its versions, and the size is one of the sizes; missing bytes are zeros. A sync
makes the newest state durable. A truncation is an entry in the journal: once that is durable, the cut
bytes cannot return; before, bytes written after the truncation are not visible.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from math import prod
from typing import NoReturn

# A version of a piece: (bytes, number of the truncation that made it or 0).
_Version = tuple[bytes, int]


class FileNode:
    """mtime_ns: of the last change. opened: number of descriptors. linked: number of names."""

    __slots__ = (
        "_durable", "_piece", "_sizes", "_stuck", "_stuck_size", "_truncations", "_versions",
        "cache", "ino", "linked", "mtime_ns", "opened",
    )  # fmt: skip  # a table

    def __init__(self, ino: int, piece_bytes: int, content: bytes = b"", mtime_ns: int = 0) -> None:
        self.ino = ino
        self.mtime_ns = mtime_ns
        self.opened = 0
        self.linked = 0
        self.cache: bytes | bytearray = content
        self._durable = content
        self._piece = piece_bytes
        self._versions: dict[int, tuple[_Version, ...]] = {}
        self._sizes: tuple[tuple[int, int], ...] = ((len(content), 0),)
        self._truncations = 0
        self._stuck: frozenset[int] = frozenset()
        self._stuck_size = False

    def copy(self) -> FileNode:
        """A copy for an independent disk. The bytes are shared until a write."""
        if isinstance(self.cache, bytearray):
            self.cache = bytes(self.cache)
        new = FileNode.__new__(FileNode)
        new.ino, new.mtime_ns, new.opened, new.linked = self.ino, self.mtime_ns, 0, self.linked
        new.cache, new._durable, new._piece = self.cache, self._durable, self._piece  # noqa: SLF001
        new._versions = self._versions.copy()  # noqa: SLF001 -- another of this class, as above
        new._sizes, new._truncations = self._sizes, self._truncations  # noqa: SLF001
        new._stuck, new._stuck_size = self._stuck, self._stuck_size  # noqa: SLF001
        return new

    @property
    def is_clean(self) -> bool:
        """Whether the device holds exactly what processes see."""
        return not self._versions and len(self._sizes) == 1

    def _writable(self) -> bytearray:
        cache = self.cache
        if isinstance(cache, bytes):
            self.cache = cache = bytearray(cache)
        return cache

    def write(self, data: bytes, offset: int) -> None:
        """Writes into the cache. Fills a hole with zeros."""
        if not data:
            return
        cache, piece = self._writable(), self._piece
        before, end = len(cache), offset + len(data)
        if offset > before:
            cache.extend(bytes(offset - before))
        cache[offset:end] = data
        first, last = offset // piece, (end - 1) // piece
        for at in range(first, last + 1):
            self._note(at, 0)
        if self._stuck:  # a page that is written again is dirty again
            self._stuck -= frozenset(range(first, last + 1))
            if end >= before:  # ext4 and XFS write the size with it
                self._stuck_size = False
        if end > before:
            grown = (min(end, (at + 1) * piece) for at in range(first, last + 1))
            self._sizes += tuple((size, self._truncations) for size in grown if size > before)
            self._stuck_size = False

    def _note(self, at: int, truncation: int) -> None:
        piece = self._piece
        chunk = bytes(self.cache[at * piece : (at + 1) * piece]).ljust(piece, b"\0")
        self._versions[at] = (*self._versions.get(at, ()), (chunk, truncation))

    def truncate(self, size: int) -> None:
        """Truncates, or fills with zeros, in the cache."""
        cache, piece = self._writable(), self._piece
        before = len(cache)
        if size == before:
            return
        if size > before:
            cache.extend(bytes(size - before))
        else:
            self._truncations += 1
            del cache[size:]
            pieces = [*self._versions, len(self._durable) // piece, before // piece]
            for at in range(size // piece, max(pieces) + 1):
                self._note(at, self._truncations)
            self._stuck -= frozenset(range(size // piece, max(pieces) + 1))
        self._sizes += ((size, self._truncations),)
        self._stuck_size = False

    def sync(self) -> None:
        """Makes the cache durable, except for pieces that an earlier sync lied about."""
        if not self._stuck and not self._stuck_size:
            if not self.is_clean:
                self.cache = self._durable = bytes(self.cache)
                self._versions = {}
                self._sizes = ((len(self.cache), 0),)
                self._truncations = 0
            return
        piece = self._piece
        durable = bytearray(self.cache)
        for at in self._stuck:
            old = self._durable[at * piece : (at + 1) * piece].ljust(piece, b"\0")
            durable[at * piece : (at + 1) * piece] = old[: max(0, len(durable) - at * piece)]
        self._durable = bytes(durable)
        self._versions = {at: v for at, v in self._versions.items() if at in self._stuck}
        if not self._stuck_size:
            self._sizes = ((len(self.cache), self._truncations),)

    def lie(self) -> None:
        """A failed sync marks pieces clean that it did not write: later syncs skip them until they are
        written again."""
        self._stuck = frozenset(self._versions)
        self._stuck_size = len(self._sizes) > 1

    def contents(self) -> Contents:
        """What the device may hold after a power cut."""
        return Contents(self._durable, self._versions, self._sizes, self._piece)


class Contents:
    """Every content that a file may have after a power cut, by number: 0 is the least, `count` - 1 is
    everything that was written. Two numbers may have equal bytes."""

    def __init__(
        self,
        durable: bytes,
        versions: dict[int, tuple[_Version, ...]],
        sizes: tuple[tuple[int, int], ...],
        piece: int,
    ) -> None:
        self._durable = durable
        self._piece = piece
        self._options: list[tuple[int, list[tuple[int, list[bytes]]]]] = []
        self.count = 0
        self._begins: list[int] = []
        for size, truncation in dict.fromkeys(sizes):
            choices = []
            for at in sorted(versions):
                if at * piece < size:
                    chunks = self._chunks(at, versions[at], truncation, size)
                    choices.append((at, chunks))
            self._options.append((size, choices))
            self._begins.append(self.count)
            self.count += prod(len(chunks) for _, chunks in choices)
        self._made: dict[int, bytes] = {}

    def _chunks(
        self, at: int, versions: tuple[_Version, ...], truncation: int, size: int
    ) -> list[bytes]:
        piece = self._piece
        shown = min(piece, size - at * piece)
        chunks = [self._durable[at * piece : at * piece + shown].ljust(shown, b"\0")]
        for chunk, cut_by in versions:
            if cut_by > truncation:
                break
            if cut_by:
                chunks = []
            chunks.append(chunk[:shown])
        return list(dict.fromkeys(chunks))

    def content(self, number: int) -> bytes:
        """The number-th content."""
        made = self._made.get(number)
        if made is not None:
            return made
        i = bisect_right(self._begins, number) - 1
        size, choices = self._options[i]
        left = number - self._begins[i]
        found = bytearray(self._durable[:size].ljust(size, b"\0"))
        for at, chunks in choices:
            left, which = divmod(left, len(chunks))
            chunk = chunks[which]
            found[at * self._piece : at * self._piece + len(chunk)] = chunk
        made = self._made[number] = bytes(found)
        return made


def fail(number: int, path: str | None = None) -> NoReturn:
    """Raises the OSError."""
    if path is None:
        raise OSError(number, os.strerror(number))
    raise OSError(number, os.strerror(number), path)
