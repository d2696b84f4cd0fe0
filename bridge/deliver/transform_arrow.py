"""Records to Arrow and back, for transforms that take Arrow. Imports pyarrow; import it when it is used."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from aolog.format.arrow_schema import SCHEMA
from aolog.record import Record

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


def from_records(records: Sequence[Record]) -> pa.RecordBatch:
    """With the columns of `Batch.to_arrow`."""
    headers = [[{"key": n, "value": v} for n, v in record.headers] for record in records]
    columns = {
        "address": [record.address for record in records],
        "timestamp": [record.timestamp for record in records],
        "key": [record.key for record in records],
        "value": [record.value for record in records],
        "headers": headers,
        "topic": [record.topic for record in records],
    }
    return pa.record_batch([pa.array(columns[f.name], f.type) for f in SCHEMA], schema=SCHEMA)


def to_records(batch: Any) -> Iterator[Record]:
    """The rows. A column that is missing is null; `address` has to be there. Raises what pyarrow
    raises, KeyError and TypeError."""
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
