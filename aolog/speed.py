"""What runs once a record: compiled where there was a compiler, in Python everywhere.

The compiled half, `_speed.c`, knows nothing of the format either: it lets values join a list,
adds up lengths, cuts bytes and fills tuples. Both halves do the same; `backend` says which is in
use, and `AOLOG_BACKEND=python` in the environment chooses the second.
"""

from __future__ import annotations

import importlib
import os
from array import array
from functools import cache, partial
from itertools import accumulate, pairwise, repeat
from typing import TYPE_CHECKING, Any, SupportsIndex

try:
    if os.environ.get("AOLOG_BACKEND") == "python":
        raise ImportError
    _speed: Any = importlib.import_module("aolog._speed")  # it may not be there
except ImportError:
    _speed = None

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Iterator

    import numpy as np

    from aolog.record import Headers

__all__ = ["Gate", "backend", "column", "measure", "rise", "rows", "slices"]

_NUMPY_PAYS = 256  # entries; below it, sorting a list is faster than numpy's calls

backend = "python" if _speed is None else "compiled"

assert array("I").itemsize == 4  # the offsets' width; holds wherever CPython 3.11 runs


class PythonGate:
    """Values that may simply join a list, one after the other; everything else goes to `_append`.

    A class to derive from: Writer says what appending means. Thread-safe, under `_lock`.
    """

    _lock: threading.RLock  # knows whose it is: see `append`
    _append: Callable[..., int]  # as `append`
    _joined: list[Any] | None = None
    _first = _size = _limit = _most = _overhead = 0

    def _open_gate(
        self, values: list[Any], first: int, size: int, limit: int, most: int, overhead: int
    ) -> None:
        """From now on values join the list: its first has the number `first`, it takes `size`
        bytes, each value costs `overhead` more than its own. As long as `limit` bytes are not
        reached and there are not `most` values."""
        self._joined, self._first, self._size = values, first, size
        self._limit, self._most, self._overhead = limit, most, overhead

    def _close_gate(self) -> int:
        """From now on nothing joins; the bytes that the list takes, 0 if none was open."""
        size, self._joined, self._size = self._size, None, 0
        return size

    def append(
        self,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Headers = (),
        timestamp: SupportsIndex | None = None,
        topic: str | None = None,
    ) -> int:
        """Takes a record; its address. In memory on return; survives a crash of the process
        after `flush`, power loss after `sync`.

        timestamp: microseconds since the epoch; the time of the batch unless given. Raises
        RecordRefused, RecordTooLarge, StorageFull and StorageFailed (the record is not taken;
        what was taken before is kept and written by the next call), SyncFailed, LogClosed,
        Forked.
        """
        if (
            type(value) is bytes
            and key is None
            and not headers
            and timestamp is None
            and topic is None
        ):
            lock = self._lock
            try:  # half the time of `with`
                lock.acquire()
                joined = self._joined
                if joined is not None:
                    size, before = self._size + len(value) + self._overhead, len(joined)
                    if size < self._limit and before < self._most:
                        self._size = size
                        joined.append(value)
                        return self._first + before
            finally:
                # Not a flag of our own: a signal that raises may come before it is set.
                try:  # noqa: SIM105 -- suppress() is a call, at which a signal may be handled
                    lock.release()
                except RuntimeError:  # not acquired
                    pass
        return self._append(value, key=key, headers=headers, timestamp=timestamp, topic=topic)


def _column(values: list[Any]) -> bytes | None:
    """n+1 u32, where each of the bytes begins if they stand in a row, zeros up to a multiple of 8,
    and the bytes. None if one is not bytes. Raises OverflowError."""
    try:
        offsets = array("I", accumulate(map(len, values), initial=0)).tobytes()
        return b"".join((offsets, bytes(-len(offsets) % 8), *values))
    except TypeError:
        return None


def _measure(values: list[Any]) -> tuple[int, int] | None:
    """Bytes of all and of the longest; None if one is not exactly bytes."""
    if set(map(type, values)) - {bytes}:
        return None
    lengths = list(map(len, values))
    return sum(lengths), max(lengths, default=0)


def _slices(numbers: memoryview, data: memoryview, first: int) -> list[bytes]:
    """What lies between u32 offsets, from one on."""
    whole = data.tobytes()
    return [whole[a:b] for a, b in pairwise(numbers.cast("I")[first:].tolist())]


def _rise(columns: list[memoryview]) -> bool:
    """Whether in each of the columns of u32, the first of which is 0, no number is less than the
    one before it. All are compared at once: alone, each would cost as much as ten."""
    if sum(map(len, columns)) <= _NUMPY_PAYS:
        return all(ordered == sorted(ordered) for ordered in map(memoryview.tolist, columns))
    frombuffer, u32 = _numpy()
    numbers = frombuffer(columns[0] if len(columns) == 1 else b"".join(columns), u32)
    falls = (numbers[1:] < numbers[:-1]).tobytes().count(1)
    ends = sum(column[-1] > 0 for column in columns[:-1])  # from there it falls to the next one's 0
    return falls == ends


@cache
def _numpy() -> tuple[Callable[..., np.ndarray], np.dtype[np.uint32]]:
    """Imported once, and a dtype's name looked up once."""
    import numpy as np

    return np.frombuffer, np.dtype(np.uint32)


def _rows(kind: type[Any], columns: tuple[Any, ...], varies: int) -> Iterator[Any]:
    """Tuples of a kind. columns: an iterator where the bit of `varies` is set, else what all rows
    share. It ends where the first column ends, before it asks the others."""
    listed = [one if varies >> i & 1 else repeat(one) for i, one in enumerate(columns)]
    # A named tuple's own call costs three times as much.
    return map(partial(tuple.__new__, kind), zip(*listed, strict=False))


if TYPE_CHECKING or _speed is None:
    Gate = PythonGate
    column, measure, slices, rise, rows = _column, _measure, _slices, _rise, _rows
else:
    Gate = _speed.Gate
    column, measure, slices = _speed.column, _speed.measure, _speed.slices
    rise, rows = _speed.rise, _speed.Rows
