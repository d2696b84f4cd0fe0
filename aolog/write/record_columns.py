"""Lists of record parts to the body of one frame, checked before anything is taken. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from aolog.errors import RecordRefused, RecordTooLarge
from aolog.format.columns import encode_columns
from aolog.write.validate import OFFSET_BYTES, RECORD_BYTES_MAX, check_record, too_large

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from aolog.format.frame import Buffer
    from aolog.record import Headers

__all__ = ["RecordColumns", "columns_of"]


class RecordColumns(NamedTuple):
    """A frame's body: the number of records, the columns' bits, the parts, the range of timestamps."""

    records: int
    columns: int
    parts: list[Buffer]
    greatest_us: int
    least_us: int


def columns_of(
    values: Iterable[bytes | None],
    keys: Iterable[bytes | None] | None,
    headers: Iterable[Headers] | None,
    timestamps: Iterable[int | None] | None,
    topics: Iterable[str | None] | None,
    *,
    max_record_bytes: int,
    now_us: int,
) -> RecordColumns:
    """The body of a frame. now_us: the timestamp of a record that has none. Raises RecordRefused, and
    RecordTooLarge for a record or for all."""
    listed = list(values)
    given = (
        listed,
        _column(keys, None, "keys", listed),
        _column(headers, (), "headers", listed),
        _column(timestamps, None, "timestamps", listed),
        _column(topics, None, "topics", listed),
    )
    if not listed:
        return RecordColumns(0, 0, [], now_us, now_us)
    checked = [check_record(*parts) for parts in zip(*given, strict=True)]
    sizes = [size for *_, size in checked]
    if max(sizes) - OFFSET_BYTES > max_record_bytes:
        raise too_large(max(sizes) - OFFSET_BYTES, max_record_bytes)
    if sum(sizes) + 8 * len(sizes) > RECORD_BYTES_MAX:  # a column may add offsets for all records
        raise RecordTooLarge(
            f"a batch of {sum(sizes)} bytes exceeds a frame's bound of {RECORD_BYTES_MAX}",
            hint="split it; each append_many is one frame",
        )
    taken, key_column, header_column, moments, topic_column, _ = zip(*checked, strict=True)
    stamps = [now_us if moment is None else moment for moment in moments]
    bits, parts = encode_columns(
        taken,
        timestamps=stamps if any(moment is not None for moment in moments) else None,
        keys=key_column if any(key is not None for key in key_column) else None,
        topics=topic_column if any(topic is not None for topic in topic_column) else None,
        headers=header_column if any(header_column) else None,
    )
    return RecordColumns(len(listed), bits, parts, max(stamps), min(stamps))


def _column(
    given: Iterable[Any] | None, absent: Any, name: str, values: Sequence[object]
) -> Sequence[Any]:
    """The column as a list, with an entry for each value."""
    if given is None:
        return [absent] * len(values)
    column = list(given)
    if len(column) != len(values):
        raise RecordRefused(
            f"there are {len(column)} {name} and {len(values)} values",
            hint=f"give an entry of {name} for each value",
        )
    return column
