"""Records to Arrow and back, for transforms that take Arrow. Imports pyarrow; import it when it is used."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from aolog.format.arrow_schema import HEADER, SCHEMA
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
    rows = batch.num_rows

    def column(name: str, kind: Any) -> list[Any]:
        if name not in batch.schema.names:
            return [None] * rows
        found: list[Any] = batch.column(name).cast(kind).to_pylist()
        return found

    names = {field.name: field.type for field in SCHEMA} | {"headers": pa.list_(HEADER)}
    times = column("timestamp", names["timestamp"])
    if "timestamp" in batch.schema.names:
        times = batch.column("timestamp").cast(names["timestamp"]).cast(pa.int64()).to_pylist()
    for address, moment, key, value, headers, topic in zip(
        column("address", names["address"]), times, column("key", names["key"]),
        column("value", names["value"]), column("headers", names["headers"]),
        column("topic", names["topic"]), strict=True,
    ):  # fmt: skip  # one call
        pairs = tuple((pair["key"], pair["value"]) for pair in headers or ())
        yield Record(address, moment, key, value, pairs, topic)
