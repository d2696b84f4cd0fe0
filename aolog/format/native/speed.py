"""What runs once a record: compiled where there was a compiler, in Python everywhere.

The compiled half, `_speed.c`, `_rows.c` and `_export.c`, knows nothing of the format: it lets
values join a list, adds up lengths, cuts bytes, fills tuples, groups and hands buffers to Arrow.
Both halves do the same; `backend` says which is in use, and `AOLOG_BACKEND=python` in the
environment chooses the second.
"""

from __future__ import annotations

import importlib
import os
from array import array
from collections import deque
from collections.abc import Callable, Iterator
from functools import cache
from itertools import accumulate, chain, pairwise, repeat
from operator import length_hint
from typing import TYPE_CHECKING, Any, SupportsIndex, TypeVar

try:
    if os.environ.get("AOLOG_BACKEND") == "python":
        raise ImportError
    _speed: Any = importlib.import_module("aolog.format.native._speed")  # it may not be there
except ImportError:
    _speed = None

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Iterator

    import numpy as np

    from aolog.record import Headers

_Object = TypeVar("_Object")

_NUMPY_PAYS = 256  # entries; below it, sorting a list is faster than numpy's calls

backend = "python" if _speed is None else "compiled"

assert array("I").itemsize == 4  # the offsets' width; holds wherever CPython 3.11 runs


class PythonGate:
    """Values that may simply join a list, one after the other; others go to `_append_value`,
    everything else to `_append`.

    A class to derive from: Writer says what appending means. Thread-safe, under `_lock`.
    """

    _lock: threading.RLock  # knows whose it is: see `append`
    _is_locked: Callable[[], bool]  # by the thread that asks
    _append: Callable[..., int]  # as `append`
    _append_value: Callable[[bytes], int]  # the same of nothing but bytes
    _joined: list[Any] | None = None
    _first = _size = _limit = _most = _overhead = 0

    def _open_gate(
        self, values: list[Any], first: int, size: int, limit: int, most: int, overhead: int
    ) -> None:
        """From now on values join the list: its first has the number `first`, it takes `size`
        bytes, each value costs `overhead` more than its own. As long as `limit` bytes are not
        reached and there are not `most` values. Raises ValueError for negative bytes."""
        if size < 0 or overhead < 0:
            raise ValueError("bytes are not negative")
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
            and not self._is_locked()  # a signal's handler calls, which joins nothing half done
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
            return self._append_value(value)
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


def _total(numbers: array[int], indices: list[int] | None = None) -> tuple[int, int]:
    """(sum, greatest) of a column of i64, none of them negative, or of those at the indices; of
    none (0, 0). Raises IndexError, OverflowError."""
    with memoryview(numbers) as column:
        if column.format != "q":
            raise TypeError("numbers are a column of i64")
        if indices and min(indices) < 0:
            raise IndexError("there is no such number")
        chosen = column.tolist() if indices is None else [column[i] for i in indices]
    total = sum(chosen)
    if min(chosen, default=0) < 0 or total >> 63:
        raise OverflowError("numbers are not negative, and their sum is an i64")
    return total, max(chosen, default=0)


@cache
def _numpy() -> tuple[Callable[..., np.ndarray], np.dtype[np.uint32]]:
    """Imported once, and a dtype's name looked up once."""
    import numpy as np

    return np.frombuffer, np.dtype(np.uint32)


def _groups(objects: list[_Object]) -> dict[_Object, list[int]]:
    """Where each of them stands: indices, by object, in order of appearance. Raises TypeError for
    one that has no hash."""
    found: dict[_Object, list[int]] = {}
    for i, one in enumerate(objects):
        found.setdefault(one, []).append(i)
    return found


class PythonRows:
    """An iterator over tuples of a type: rows `first` to `end` of columns, each of a kind:

    n  numbers that rise by one, given row 0's     b  (validity or None, offsets, data) of bytes
    c  one object for all rows                     t  the same of text
       or a list of such, one behind the other     p  pairs: (offsets into them, their t, their b)
    q  numbers, i64
    o  a list                                      1  a list of tuples: the first item of each
    h  (tag, bytes a row, data): of each row       2  the second
       a list of one pair, the tag and its bytes
    v  as b, but entries without a copy: read-only buffers for callers of C that take bytes or
       what is like them, with a length and nothing else; in Python, bytes

    The first is of kind n; or, where the type is `tuple`, of any but c. Where the type is None
    there is one column, not of kind c, and its entries come as they are. Offsets are n+1 u32,
    entries whose bit in validity is 0 are None: as in Arrow. A row of type `tuple`, or a list of
    kind h, that nobody kept may be filled anew: what calls something with them, as
    `itertools.starmap` does, makes no new ones. Raises ValueError where there are fewer entries
    than rows, or one lies outside of its data (the compiled half says so only when it comes
    there).
    """

    def __init__(
        self, kind: type[Any] | None, kinds: str, columns: tuple[Any, ...], first: int, end: int
    ) -> None:
        leads = kinds[:1] == "n" if kind not in {None, tuple} else kinds[:1] not in {"", "c"}
        if not leads or (kind is None and len(kinds) > 1) or not 0 <= first <= end:
            raise ValueError("the first column rises, and 0 <= first <= end")
        listed = [_COLUMNS[k](c, first, end) for k, c in zip(kinds, columns, strict=True)]
        self._left = listed[0]  # what is left of it tells the place: a row costs no bookkeeping
        self._end = end
        self._rows = self._left
        if kind is not None:  # a named tuple's own call costs three times as much
            self._rows = map(tuple.__new__, repeat(kind), zip(*listed, strict=False))

    @property
    def at(self) -> int:
        """Of the next row."""
        return self._end - length_hint(self._left)

    def feed(self, sink: object) -> None:
        """Hands rows to a sink, see _sink.h, up to one that it does not take. In Python there is no
        row that it could."""

    def stop(self) -> None:
        """There are no more rows."""
        deque(self._left, maxlen=0)

    def __iter__(self) -> Iterator[Any]:
        return self._rows

    def __next__(self) -> Any:
        return next(self._rows)


def _rising(number: int, first: int, end: int) -> Iterator[int]:
    return iter(range(number + first, number + end))


def _numbers(column: memoryview, first: int, end: int) -> Iterator[int]:
    if len(column) < 8 * end:
        raise ValueError("an entry is not there")
    return iter(column.cast("q")[first:end].tolist())


def _bytes(
    column: tuple[Any, ...] | list[tuple[Any, ...]], first: int, end: int
) -> Iterator[bytes | None]:
    if isinstance(column, list):
        return iter(list(chain.from_iterable(_pieces(column, first, end))))
    validity, offsets, data = column
    whole, cuts = data.tobytes(), offsets.cast("I")[first : end + 1].tolist()
    unknown = validity is not None and 8 * len(validity) < end
    if unknown or len(cuts) <= end - first or cuts[-1] > len(whole) or cuts != sorted(cuts):
        raise ValueError("an entry is not there, or lies outside of the data")
    entries = [whole[a:b] for a, b in pairwise(cuts)]
    if validity is None:
        return iter(entries)
    there = (validity[i >> 3] >> (i & 7) & 1 for i in range(first, end))
    return iter([entry if bit else None for entry, bit in zip(entries, there, strict=True)])


def _pieces(
    column: list[tuple[Any, ...]], first: int, end: int
) -> Iterator[Iterator[bytes | None]]:
    begin = 0
    for piece in column:
        count = len(piece[1]) // 4 - 1
        if count < 0:
            raise ValueError("an entry is not there")
        if begin < end and first < begin + count:
            yield _bytes(piece, max(0, first - begin), min(count, end - begin))
        begin += count
    if begin < end:
        raise ValueError("an entry is not there")


def _text(column: tuple[Any, ...], first: int, end: int) -> Iterator[str | None]:
    return iter([None if e is None else str(e, "utf-8") for e in _bytes(column, first, end)])


def _pairs(column: tuple[Any, ...], first: int, end: int) -> Iterator[tuple[Any, ...]]:
    offsets, texts, values = column
    cuts = offsets.cast("I")[first : end + 1].tolist()
    begin, last = cuts[0], cuts[-1]
    pairs = list(zip(_text(texts, begin, last), _bytes(values, begin, last), strict=True))
    return iter([tuple(pairs[a - begin : b - begin]) for a, b in pairwise(cuts)])


def _list(column: list[Any], first: int, end: int) -> Iterator[Any]:
    if len(column) < end:
        raise ValueError("an entry is not there")
    return iter(column[first:end])


def _tagged(column: tuple[Any, int, Any], first: int, end: int) -> Iterator[list[Any]]:
    tag, size, data = column
    if size < 1 or len(data) < size * end:
        raise ValueError("an entry is not there")
    return iter([[(tag, bytes(data[size * i : size * (i + 1)]))] for i in range(first, end)])


_COLUMNS: dict[str, Callable[[Any, int, int], Iterator[Any]]] = {
    "n": _rising,
    "c": lambda shared, *_: repeat(shared),
    "q": _numbers,
    "b": _bytes,
    "v": _bytes,
    "t": _text,
    "p": _pairs,
    "o": _list,
    "1": lambda pairs, first, end: iter([pair[0] for pair in _list(pairs, first, end)]),
    "2": lambda pairs, first, end: iter([pair[1] for pair in _list(pairs, first, end)]),
    "h": _tagged,
}

# An array as pyarrow takes it by Arrow's C data interface: a capsule that keeps alive what (length,
# buffers, children) holds, children likewise and None for a buffer that is absent. Buffers are as
# long as their type needs: nothing checks it. None without the compiled half: pyarrow's own calls.
export: Callable[[tuple[Any, ...]], object] | None = None if _speed is None else _speed.export

if TYPE_CHECKING or _speed is None:
    Gate = PythonGate
    Rows = PythonRows
    column, measure, rise, total, groups = _column, _measure, _rise, _total, _groups
else:
    Gate = _speed.Gate
    Rows = _speed.Rows
    column, measure, rise = _speed.column, _speed.measure, _speed.rise
    total, groups = _speed.total, _speed.groups
