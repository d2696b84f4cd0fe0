"""Calls a data source as Spark's workers do, without Spark: pickled between its processes, batches
held against the schema that Spark expects."""

from __future__ import annotations

import json
import os

import pyarrow as pa
import pytest
from pyspark.cloudpickle import dumps, loads
from pyspark.sql.datasource import CaseInsensitiveDict, DataSource
from pyspark.sql.types import StructType

import aolog
from aolog.errors import UsageError
from aolog.spark.datasource import AologDataSource, PushingReader, arrow_schema
from aolog.spark.listing import list_logs
from aolog.spark.options import read_options
from aolog.spark.planning import spans
from aolog.spark.schema import COLUMNS, DEFAULT_COLUMNS, ddl
from tests.aolog.conftest import overwrite

_TYPES = {
    "binary": "binary", "string": "string", "int": "integer", "bigint": "long",
    "timestamp": "timestamp",
    COLUMNS["gap"]: {"type": "struct", "fields": [
        {"name": name, "type": kind, "nullable": True, "metadata": {}}
        for name, kind in (("end", "long"), ("reason", "string"), ("recordsLost", "long"))
    ]},
    "array<struct<key:string,value:binary>>": {
        "type": "array", "containsNull": True,
        "elementType": {"type": "struct", "fields": [
            {"name": "key", "type": "string", "nullable": True, "metadata": {}},
            {"name": "value", "type": "binary", "nullable": True, "metadata": {}},
        ]},
    },
}  # fmt: skip  # a table


def write(path, count=10, *, value=b"value", **options) -> list[int]:
    """Addresses of records, in as many frames, a millisecond apart."""
    with aolog.Writer(path, batch_bytes=0, **options) as log:
        return [log.append(value, timestamp=1_700_000_000_000_000 + i * 1000) for i in range(count)]


def write_damaged(path) -> list[int]:
    """Addresses of 30 records; damage covers ten of them, from the sixth on."""
    addresses = write(path, 30, value=b"." * 100)
    slab = next(path.glob("*.slab"))
    overwrite(slab, addresses[5], bytes(addresses[15] - addresses[5]))
    return addresses


def cut_short(path) -> aolog.Gap:
    """Writes 20 records, of which 10 are left; what a cursor shows to be lost."""
    addresses = write(path, 20)
    with aolog.Reader(path, cursor="all") as reader:
        assert len(list(reader)) == 20
        reader.commit()
        end = reader.tell()
    (slab,) = path.glob("*.slab")
    os.truncate(slab, addresses[10] + 7)  # inside a frame
    return aolog.Gap(addresses[10], end, "corrupt", 10)


def struct(*names, **others) -> StructType:
    fields = [(name, _TYPES[COLUMNS[name]]) for name in names] + list(others.items())
    return StructType.fromJson(
        {"fields": [{"name": n, "type": t, "nullable": True, "metadata": {}} for n, t in fields]}
    )


def source(path, **options) -> AologDataSource:
    """As `load(path)` makes it."""
    given = {name: str(value) for name, value in options.items()}
    if isinstance(path, list):
        given["paths"] = json.dumps([str(each) for each in path])
    else:
        given["path"] = str(path)
    return AologDataSource(CaseInsensitiveDict(given))


def batch_reader(path, schema: StructType | None = None, **options):
    made = source(path, **options)
    if schema is None:
        schema = struct(*(part.split()[0] for part in made.schema().split(", ")))
    made = loads(dumps(made))
    return made.reader(schema), schema


def tasks(path, schema: StructType | None = None, **options) -> list[list[pa.RecordBatch]]:
    """The batches of each task."""
    reader, schema = batch_reader(path, schema, **options)
    return run(reader, reader.partitions(), schema)


def refusal(path, schema: StructType | None = None, **options) -> str:
    """What the load says that raises UsageError."""
    with pytest.raises(UsageError) as raised:
        source(path, **options).reader(struct("value") if schema is None else schema)
    return str(raised.value)


def run(reader, partitions, schema: StructType) -> list[list[pa.RecordBatch]]:
    found = []
    for partition in partitions:
        batches = list(loads(dumps(reader)).read(loads(dumps(partition))))
        for batch in batches:
            assert arrow_schema(schema).equals(batch.schema)
            batch.validate(full=True)
        found.append(batches)
    return found


def table(path, schema: StructType | None = None, **options) -> pa.Table:
    reader, schema = batch_reader(path, schema, **options)
    batches = [b for task in run(reader, reader.partitions(), schema) for b in task]
    return pa.Table.from_batches(batches, arrow_schema(schema))


def offsets(path, **options) -> list[int]:
    return table(path, **options)["offset"].to_pylist()


def pushing(path, columns=DEFAULT_COLUMNS, **options) -> PushingReader:
    read = read_options({"path": str(path), "columns": ",".join(columns), **options}, stream=False)
    schema = arrow_schema(struct(*columns))
    return PushingReader(read, spans(read, list_logs(read)), schema)


class Pushed(DataSource):
    """The source as it is with a Spark that plans each query for itself."""

    @classmethod
    def name(cls) -> str:
        return "pushed"

    def schema(self) -> str:
        return ddl(DEFAULT_COLUMNS)

    def reader(self, schema):
        del schema
        return pushing(self.options["path"])
