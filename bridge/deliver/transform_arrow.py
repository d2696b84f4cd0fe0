"""Records to Arrow and back, for transforms that take Arrow. Imports pyarrow; import it when it is used."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from aolog.format.arrow_schema import SCHEMA
from aolog.record import Record


def from_records(records: Sequence[Record]) -> pa.RecordBatch:
    """With the columns of `Batch.to_arrow`."""
    headers = [[{"key": n, "value": v} for n, v in record.headers] for record in records]
    columns = [
        headers if f.name == "headers" else [getattr(record, f.name) for record in records]
        for f in SCHEMA
    ]
    return pa.record_batch(list(map(pa.array, columns, SCHEMA.types)), schema=SCHEMA)


def to_records(batch: Any) -> Iterator[Record]:
    """The rows. A missing column is null, except `address`. Raises what pyarrow raises, KeyError and TypeError."""
    if not isinstance(batch, pa.RecordBatch | pa.Table):
        raise TypeError("it returned neither a RecordBatch nor a Table")
    for address, moment, key, value, headers, topic in zip(
        *(_column(batch, field) for field in SCHEMA), strict=True
    ):
        pairs = tuple((pair["key"], pair["value"]) for pair in headers or ())
        yield Record(address, moment, key, value, pairs, topic)


def _column(batch: Any, field: pa.Field) -> list[Any]:
    if field.name not in batch.schema.names and field.name != "address":
        return [None] * batch.num_rows
    column = batch.column(field.name).cast(field.type)
    if field.name == "timestamp":
        column = column.cast(pa.int64())
    found: list[Any] = column.to_pylist()
    return found
