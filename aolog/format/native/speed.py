"""The functions that run once for each record: in C if there was a compiler, otherwise in Python.

The C half, `_speed.c`, `_rows.c` and `_export.c`, does not know the format: it adds lengths, cuts bytes,
fills tuples, groups, and passes buffers to Arrow. Both halves do the same. What a writer calls is in
inlet.py; the twin of `leads_to`, which looks up a file, is in aolog/storage/system.py. `backend` names the one in use; `AOLOG_BACKEND=python` in the environment
chooses Python."""

from __future__ import annotations

import importlib
import os
from array import array
from collections import deque
from collections.abc import Callable, Iterator
from itertools import accumulate, chain, pairwise, repeat
from operator import length_hint
from typing import TYPE_CHECKING, Any, TypeVar

try:
    if os.environ.get("AOLOG_BACKEND") == "python":
        raise ImportError
    compiled: Any = importlib.import_module("aolog.format.native._speed")
except ImportError:
    compiled = None


_Object = TypeVar("_Object")

backend = "python" if compiled is None else "compiled"

assert array("I").itemsize == 4  # the offsets' width; holds wherever CPython 3.11 runs


def python_column(values: list[Any]) -> bytes | None:
    """A binary column: n+1 u32 offsets, zeros up to a multiple of 8, and the values. None if a value is
    not bytes. Raises OverflowError."""
    try:
        offsets = array("I", accumulate(map(len, values), initial=0)).tobytes()
        return b"".join((offsets, bytes(-len(offsets) % 8), *values))
    except TypeError:
        return None


def python_rise(columns: list[memoryview]) -> bool:
    """Whether no number is less than the one before it, in each of these columns of u32. Each column
    begins with 0."""
    return all(ordered == sorted(ordered) for ordered in map(memoryview.tolist, columns))


def python_total(numbers: array[int], indices: list[int] | None = None) -> tuple[int, int]:
    """(sum, greatest) of non-negative i64 numbers, or of those at the indices; (0, 0) of none. Raises
    IndexError, OverflowError."""
    with memoryview(numbers) as column:
        if column.format != "q":
            raise TypeError("numbers must be a column of i64")
        if indices and min(indices) < 0:
            raise IndexError("index out of range")
        chosen = column.tolist() if indices is None else [column[i] for i in indices]
    total = sum(chosen)
    if min(chosen, default=0) < 0 or total >> 63:
        raise OverflowError("a number is negative, or the sum exceeds an i64")
    return total, max(chosen, default=0)


def python_groups(objects: list[_Object]) -> dict[_Object, list[int]]:
    """The indices of each object, in order of appearance. Raises TypeError for an object without a
    hash."""
    found: dict[_Object, list[int]] = {}
    for i, one in enumerate(objects):
        found.setdefault(one, []).append(i)
    return found


class PythonRows:
    """An iterator over tuples of a type: rows `first` to `end` of columns, each of a kind:

    n  the number of row 0, and one more each row
    c  one object for all rows
    q  numbers, i64
    o  a list
    1  a list of tuples: the first item of each          2  the second item of each
    b  (validity or None, offsets, data) of bytes, or a list of such pieces
    t  the same of text
    p  pairs: (offsets into the pairs, their t, their b)
    h  (tag, bytes of a row, data): for each row a list of one pair, the tag and the row's bytes
    v  as b, but without copies: read-only buffers for callers in C; in Python, bytes

    The first column has kind n or q; if the row type is `tuple`, any kind but c. If the row type is None,
    there is one column, not of kind c, and its entries are the rows. Offsets are n+1 u32; entries whose
    bit in validity is 0 are None, as in Arrow. A row of type `tuple` or a list of kind h may be used
    again for a later row if nobody keeps it: `itertools.starmap` over the rows creates no new ones.
    Raises ValueError if there are fewer entries than rows, or an entry is outside its data (the C half
    raises it only when it reaches the entry).
    """

    def __init__(
        self, kind: type[Any] | None, kinds: str, columns: tuple[Any, ...], first: int, end: int
    ) -> None:
        leads = kinds[:1] in {"n", "q"} if kind not in {None, tuple} else kinds[:1] not in {"", "c"}
        if not leads or (kind is None and len(kinds) > 1) or not 0 <= first <= end:
            raise ValueError("the first column must have kind n or q, and 0 <= first <= end")
        listed = [_COLUMNS[k](c, first, end) for k, c in zip(kinds, columns, strict=True)]
        self._left = listed[0]  # its length hint shows the position, without work for each row
        self._end = end
        self._rows = self._left
        if kind is not None:  # calling a named tuple takes three times as long
            self._rows = map(tuple.__new__, repeat(kind), zip(*listed, strict=False))

    @property
    def at(self) -> int:
        """The index of the next row."""
        return self._end - length_hint(self._left)

    def feed(self, sink: object) -> None:
        """Passes rows to a sink (_sink.h), up to one that it refuses. In Python it passes none."""

    def stop(self) -> None:
        """Drops the remaining rows."""
        deque(self._left, maxlen=0)

    def __iter__(self) -> Iterator[Any]:
        return self._rows

    def __next__(self) -> Any:
        return next(self._rows)


def _numbers(column: memoryview, first: int, end: int) -> Iterator[int]:
    if len(column) < 8 * end:
        raise ValueError("an entry is missing")
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
        raise ValueError("an entry is missing, or outside the data")
    entries = [whole[a:b] for a, b in pairwise(cuts)]
    if validity is None:
        return iter(entries)
    present = (validity[i >> 3] >> (i & 7) & 1 for i in range(first, end))
    return iter([entry if bit else None for entry, bit in zip(entries, present, strict=True)])


def _pieces(
    column: list[tuple[Any, ...]], first: int, end: int
) -> Iterator[Iterator[bytes | None]]:
    begin = 0
    for piece in column:
        count = len(piece[1]) // 4 - 1
        if count < 0:
            raise ValueError("an entry is missing")
        if begin < end and first < begin + count:
            yield _bytes(piece, max(0, first - begin), min(count, end - begin))
        begin += count
    if begin < end:
        raise ValueError("an entry is missing")


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
        raise ValueError("an entry is missing")
    return iter(column[first:end])


def _tagged(column: tuple[Any, int, Any], first: int, end: int) -> Iterator[list[Any]]:
    tag, size, data = column
    if size < 1 or len(data) < size * end:
        raise ValueError("an entry is missing")
    return iter([[(tag, bytes(data[size * i : size * (i + 1)]))] for i in range(first, end)])


_COLUMNS: dict[str, Callable[[Any, int, int], Iterator[Any]]] = {
    "n": lambda number, first, end: iter(range(number + first, number + end)),
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

# Makes an array for Arrow's C data interface: a capsule that keeps (length, buffers, children) alive.
# children: the same tuples; None for an absent buffer. Nothing checks that the buffers are long enough
# for their type. None without the C half: then pyarrow's own calls are used.
export: Callable[[tuple[Any, ...]], object] | None = None if compiled is None else compiled.export

Rows = PythonRows
column, rise, total, groups = python_column, python_rise, python_total, python_groups
if not TYPE_CHECKING and compiled is not None:
    Rows, column, rise = compiled.Rows, compiled.column, compiled.rise
    total, groups = compiled.total, compiled.groups
