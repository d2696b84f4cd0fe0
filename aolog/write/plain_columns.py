"""Whole columns checked at once, where their entries are plain: bytes, int, str and tuples, or None. Pure.

`check_record` is the reference. What it would refuse, convert or copy is not plain, and goes there, so
errors are the same. A plain column is as good as checked: it is immutable but for the lists themselves.
"""

from __future__ import annotations

from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any

from aolog.errors import RecordRefused
from aolog.format.native import speed
from aolog.write.validate import INT64, OFFSET_BYTES, check_text, check_topic

if TYPE_CHECKING:
    from collections.abc import Callable

# Bytes of all entries, as `check_record` counts them; a bound for those of one record; None if not plain.
Measured = tuple[int, int] | None

_check_name = partial(check_text, what="a header's name")


def measure_plain(
    values: list[Any],
    keys: list[Any] | None,
    headers: list[Any] | None,
    timestamps: list[Any] | None,
    topics: list[Any] | None,
) -> Measured:
    """Bytes of all records, and a bound for the longest, without its value's offset; None if a column is
    not plain. Each column is None, or has an entry for each value; there is at least one."""
    measured = _measure_bytes(values)
    if measured is None:
        return None
    size, longest = measured[0] + OFFSET_BYTES * len(values), measured[1]
    others = (
        (keys, _measure_keys),
        (headers, _measure_headers),
        (timestamps, _measure_timestamps),
        (topics, _measure_topics),
    )
    for column, measure in others:
        if column is not None:
            measured = measure(column)
            if measured is None:
                return None
            size, longest = size + measured[0], longest + measured[1]
    return size, longest


def _measure_bytes(entries: list[Any]) -> Measured:
    return speed.measure(entries) or speed.measure(_present(entries))


def _present(entries: list[Any]) -> list[Any]:
    return [entry for entry in entries if entry is not None]


def _measure_keys(keys: list[Any]) -> Measured:
    present = _present(keys)
    measured = speed.measure(present)
    if measured is None or not present:
        return measured
    return measured[0] + OFFSET_BYTES * len(present), measured[1] + OFFSET_BYTES


def _measure_headers(headers: list[Any]) -> Measured:
    if set(map(type, headers)) != {tuple}:
        return None
    pairs = list(chain.from_iterable(headers))
    if not pairs:
        return 0, 0
    if set(map(type, pairs)) != {tuple} or set(map(len, pairs)) != {2}:
        return None
    names = _measure_texts([name for name, _ in pairs], _check_name)
    values = _measure_bytes([value for _, value in pairs])
    if names is None or values is None:
        return None
    offsets = 2 * OFFSET_BYTES
    most = max(map(len, headers))
    return (
        names[0] + values[0] + offsets * len(pairs),
        most * (names[1] + values[1] + offsets),
    )


def _measure_timestamps(timestamps: list[Any]) -> Measured:
    present = timestamps
    if set(map(type, timestamps)) != {int}:
        present = _present(timestamps)
        if set(map(type, present)) - {int}:
            return None
    if present and (min(present) not in INT64 or max(present) not in INT64):
        return None
    return 8 * len(present), 8


def _measure_topics(topics: list[Any]) -> Measured:
    return _measure_texts(_present(topics), check_topic)


def _measure_texts(texts: list[Any], check: Callable[[Any], tuple[object, int]]) -> Measured:
    """check: of one text; returns it and its length in UTF-8, or raises RecordRefused."""
    if set(map(type, texts)) - {str}:
        return None
    try:
        lengths = {text: check(text)[1] for text in set(texts)}  # usually few
    except RecordRefused:
        return None
    return sum(map(lengths.__getitem__, texts)), max(lengths.values(), default=0)
