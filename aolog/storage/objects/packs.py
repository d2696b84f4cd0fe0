"""Objects with several slabs: those that follow one another share the ranges that are read.

A slab is read through a `ReadAhead` of its own (system.py), which asks here for the stored bytes. Here one
`ReadAhead` an object requests them, and goes on from one slab to the next. The threads are others than those
of the slabs, which wait for these.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from threading import Lock
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from aolog.storage.objects.read_ahead import ReadAhead

if TYPE_CHECKING:
    from collections.abc import Callable

    from aolog.format.frame import Buffer
    from aolog.format.packed import Packed
    from aolog.storage.objects.requests import Tag

_THREADS = 8


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(_THREADS, thread_name_prefix="aolog-packs")


class Packs:
    """Of one archive. fetch: bytes [begin, end) of the object with this name and tag. Thread-safe."""

    def __init__(self, fetch: Callable[[str, Tag, int, int], Buffer]) -> None:
        self._fetch = fetch
        self._lock = Lock()
        self._open: WeakValueDictionary[tuple[str, Tag], ReadAhead] = WeakValueDictionary()
        self._last: ReadAhead | None = None  # a reader may be between two slabs

    def open(self, name: str, tag: Tag, size: int) -> ReadAhead:
        """The object's bytes. size: of its part that is in use."""
        with self._lock:
            found = self._open.get((name, tag))
            if found is None:
                found = ReadAhead(size, partial(self._fetch, name, tag), _pool())
                self._open[name, tag] = found
            self._last = found
            return found

    def close(self) -> None:
        """No reader is between two slabs."""
        with self._lock:
            self._last = None


def unpacked(packed: Packed, pack: ReadAhead, path: str, begin: int, end: int) -> Buffer:
    """Bytes [begin, end) of a slab in an object. path: for errors."""
    at, stop = packed.span(begin, end)
    return packed.unpacked(pack.read(stop - at, at), begin, end, path)
