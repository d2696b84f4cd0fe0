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
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from itertools import accumulate, pairwise
from operator import length_hint
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

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


def python_join(columns: tuple[tuple[Any, Any, Any], ...], offsets: Any, data: Any) -> None:
    """Copies binary columns, (anything, n+1 u32 offsets, data from the first to the last one) each, one after another
    into two writable buffers, as one column. Raises ValueError if they do not have its size."""
    cuts, size = array("I", [0]), 0
    for _, given, part in columns:
        listed = memoryview(given).cast("I")
        cuts.extend([size + cut - listed[0] for cut in listed[1:]])
        size += len(part)
    memoryview(offsets).cast("B")[:] = cuts.tobytes()
    memoryview(data).cast("B")[:] = b"".join([part for _, _, part in columns])


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


# --- columns of rows ------------------------------------------------------------------------

Column: TypeAlias = tuple[str, Any]
"""A column of `Rows`, made by one of the functions below: a letter, which both halves read, and what has
the entries. Entries of bytes are (validity or None, offsets, data): n+1 u32 offsets; those whose bit in
validity is 0 are None, as in Arrow."""


def shared(one: object) -> Column:
    """One object for all rows."""
    return "c", one


def rising(first: int) -> Column:
    """The number of row 0, and one more each row."""
    return "n", first


def numbers(column: memoryview) -> Column:
    """An i64 each; the least one there is means None."""
    return "q", column


def binary(column: tuple[Any, Any, Any]) -> Column:
    """Entries of bytes."""
    return "b", column


def text(column: tuple[Any, Any, Any]) -> Column:
    """The same of text."""
    return "t", column


def pairs(column: tuple[Any, Any, Any]) -> Column:
    """Tuples of pairs: (n+1 u32 offsets into the pairs, their text, their bytes)."""
    return "p", column


class PythonRows:
    """An iterator over tuples of a class: rows `first` to `end` of the columns. Without a class there is one
    column, and its entries are the rows. The next row is the same one again if memory ran out for it.

    Raises ValueError if there are fewer entries than rows, or an entry is outside its data (the C half
    raises it only when it reaches the entry).
    """

    def __init__(
        self, kind: type[Any] | None, columns: tuple[Column, ...], first: int, end: int
    ) -> None:
        if not columns or (kind is None and len(columns) > 1) or not 0 <= first <= end:
            raise ValueError("a row has columns, one if it has no class, and 0 <= first <= end")
        rows, *others = [_ENTRIES[letter](column, first, end) for letter, column in columns]
        if kind is not None:  # calling a named tuple takes three times as long
            rows = [tuple.__new__(kind, row) for row in zip(rows, *others, strict=True)]
        self._rows = iter(rows)
        self._end = end

    @property
    def at(self) -> int:
        """The index of the next row."""
        return self._end - length_hint(self._rows)

    def stop(self) -> None:
        """Drops the remaining rows."""
        deque(self._rows, maxlen=0)

    def __iter__(self) -> Iterator[Any]:
        return self._rows

    def __next__(self) -> Any:
        return next(self._rows)


class PythonAsyncRows:
    """An asynchronous iterator over rows. more: called with this iterator, returns an awaitable of the next row;
    `take` may be called there with the Rows that follow it."""

    def __init__(self, more: Callable[[PythonAsyncRows], Awaitable[Any]]) -> None:
        self._more = more

    def take(self, rows: PythonRows) -> None:
        """Permits to return these without a call of `more`, which an interrupt cannot part; so only in C."""

    def __aiter__(self) -> AsyncIterator[Any]:
        return self

    async def __anext__(self) -> Any:
        return await self._more(self)


def _numbers(column: memoryview, first: int, end: int) -> list[int | None]:
    if len(column) < 8 * end:
        raise ValueError("an entry is missing")
    listed: list[int] = column.cast("q")[first:end].tolist()
    return [None if number == _LEAST else number for number in listed]


def _bytes(column: tuple[Any, Any, Any], first: int, end: int) -> list[bytes | None]:
    validity, offsets, data = column
    whole, cuts = data.tobytes(), offsets.cast("I")[first : end + 1].tolist()
    unknown = validity is not None and 8 * len(validity) < end
    if unknown or len(cuts) <= end - first or cuts[-1] > len(whole) or cuts != sorted(cuts):
        raise ValueError("an entry is missing, or outside the data")
    entries = [whole[a:b] for a, b in pairwise(cuts)]
    if validity is None:
        return entries
    present = (validity[i >> 3] >> (i & 7) & 1 for i in range(first, end))
    return [entry if bit else None for entry, bit in zip(entries, present, strict=True)]


def _text(column: tuple[Any, Any, Any], first: int, end: int) -> list[str | None]:
    return [None if e is None else str(e, "utf-8") for e in _bytes(column, first, end)]


def _pairs(column: tuple[Any, Any, Any], first: int, end: int) -> list[tuple[Any, ...]]:
    offsets, texts, values = column
    cuts = offsets.cast("I")[first : end + 1].tolist()
    begin, last = cuts[0], cuts[-1]
    each = list(zip(_text(texts, begin, last), _bytes(values, begin, last), strict=True))
    return [tuple(each[a - begin : b - begin]) for a, b in pairwise(cuts)]


_LEAST = -(1 << 63)  # i64
_ENTRIES: dict[str, Callable[[Any, int, int], list[Any]]] = {
    "c": lambda one, first, end: [one] * (end - first),
    "n": lambda number, first, end: list(range(number + first, number + end)),
    "q": _numbers,
    "b": _bytes,
    "t": _text,
    "p": _pairs,
}

# Makes an array for Arrow's C data interface: a capsule that keeps (length, buffers, children) alive.
# children: the same tuples; None for an absent buffer. Nothing checks that the buffers are long enough
# for their type. None without the C half: then pyarrow's own calls are used.
export: Callable[[tuple[Any, ...]], object] | None = None if compiled is None else compiled.export

Rows = PythonRows
AsyncRows = PythonAsyncRows
column, rise, join = python_column, python_rise, python_join
total, groups = python_total, python_groups
if not TYPE_CHECKING and compiled is not None:
    Rows, AsyncRows = compiled.Rows, compiled.AsyncRows
    column, rise, join = compiled.column, compiled.rise, compiled.join
    total, groups = compiled.total, compiled.groups
