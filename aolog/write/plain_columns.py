"""Whole columns checked at once, where their entries are plain: bytes, int, str and tuples, or None. Pure.

`check_record` is the reference. What it would refuse or convert is not plain, and goes there, so errors
are the same. The entries are immutable; the lists are the caller's own copies.
"""

from __future__ import annotations

from array import array
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from aolog.errors import RecordRefused
from aolog.format.columns import HeaderLists
from aolog.format.native import speed
from aolog.write.validate import (
    HEADER_BYTES,
    OFFSET_BYTES,
    TIMESTAMP_BYTES,
    check_text,
    check_topic,
)

if TYPE_CHECKING:
    from collections.abc import Callable

_check_name = partial(check_text, what="a header's name")


class PlainColumns(NamedTuple):
    """size: bytes of all records, as `check_record` counts them. longest: a bound for those of a record,
    without its value's offset. The columns as `encode_records` takes them."""

    size: int
    longest: int
    values: list[bytes | None]
    keys: list[bytes | None] | None
    headers: HeaderLists | None
    timestamps: list[int | None] | array[int] | None
    topics: list[str | None] | None


class _NotPlain(Exception):
    pass


def plain_columns(
    values: list[Any],
    keys: list[Any] | None,
    headers: list[Any] | None,
    timestamps: list[Any] | None,
    topics: list[Any] | None,
) -> PlainColumns | None:
    """None if a column is not plain. Each column is None, or has an entry for each value; there is at
    least one."""
    pairs, moments = None, None
    try:
        size, longest = _measure_bytes(values)
        size += OFFSET_BYTES * len(values)
        if keys is not None:
            of_all, most = _measure_bytes(keys, OFFSET_BYTES)
            size, longest = size + of_all, longest + most
        if headers is not None:
            split, of_all, most = _measure_headers(headers)
            pairs = split if split.names else None
            size, longest = size + of_all, longest + most
        if timestamps is not None:
            moments, of_all = _measure_timestamps(timestamps)
            size, longest = size + of_all, longest + TIMESTAMP_BYTES
        if topics is not None:
            if set(map(type, topics)) - {str, type(None)}:
                return None
            of_all, most = _measure_texts(topics, check_topic)
            size, longest = size + of_all, longest + most
    except _NotPlain:
        return None
    return PlainColumns(size, longest, values, keys, pairs, moments, topics)


def _present(entries: list[Any]) -> list[Any]:
    return [entry for entry in entries if entry is not None]


def _measure_bytes(entries: list[Any], overhead: int = 0) -> tuple[int, int]:
    """(bytes of all, of the longest), each with its overhead."""
    present = entries
    measured = speed.measure(entries)
    if measured is None:
        present = _present(entries)
        measured = speed.measure(present)
    if measured is None:
        raise _NotPlain
    return measured[0] + overhead * len(present), measured[1] + overhead


def _measure_headers(headers: list[Any]) -> tuple[HeaderLists, int, int]:
    split = speed.split(headers)
    if split is None:
        raise _NotPlain
    offsets, names, values, of_values, longest_value, most = split
    of_names, longest_name = _measure_texts(names, _check_name)
    size = of_names + of_values + HEADER_BYTES * len(names)
    longest = most * (longest_name + longest_value + HEADER_BYTES)
    return HeaderLists(offsets, names, values), size, longest


def _measure_timestamps(timestamps: list[Any]) -> tuple[list[Any] | array[int], int]:
    try:
        return array("q", timestamps), TIMESTAMP_BYTES * len(timestamps)
    except (TypeError, OverflowError):
        pass
    try:
        present = array("q", _present(timestamps))
    except (TypeError, OverflowError):
        raise _NotPlain from None
    numbers = iter(present)
    return [
        None if stamp is None else next(numbers) for stamp in timestamps
    ], TIMESTAMP_BYTES * len(present)


def _measure_texts(texts: list[Any], check: Callable[[Any], tuple[object, int]]) -> tuple[int, int]:
    """texts: of exact types. check: of one text or None; returns it and its length in UTF-8, or
    raises RecordRefused."""
    try:
        lengths = {text: check(text)[1] for text in set(texts)}  # usually few
    except RecordRefused:
        raise _NotPlain from None
    if len(lengths) == 1:
        (length,) = lengths.values()
        return length * len(texts), length
    return sum(map(lengths.__getitem__, texts)), max(lengths.values(), default=0)
