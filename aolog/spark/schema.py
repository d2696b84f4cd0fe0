"""The columns of Spark's Kafka source, `log`, and `gap`. Imports neither Spark nor Arrow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aolog.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable

COLUMNS = {
    "key": "binary",
    "value": "binary",
    "topic": "string",
    "partition": "int",  # 0: a log has one
    "offset": "bigint",  # the address
    "timestamp": "timestamp",
    "timestampType": "int",  # 0, as Kafka's CreateTime
    "headers": "array<struct<key:string,value:binary>>",
    "log": "string",
    # Of a row that is no record: at `offset`, records are lost. Null in rows of records.
    "gap": "struct<end:bigint,reason:string,recordsLost:bigint>",
}
DEFAULT_COLUMNS = tuple(name for name in COLUMNS if name not in {"headers", "gap"})
_WRITTEN = {  # columns of rows that are written, to logs and to Kafka
    "value": ("binary", "string"),
    "key": ("binary", "string"),
    "headers": (COLUMNS["headers"],),
    "timestamp": ("timestamp",),
    "log": ("string",),
}
_NEVER_NULL = {"partition", "offset", "timestampType", "log"}


def ddl(columns: Iterable[str]) -> str:
    """The schema as text for Spark. It names timestamp_ltz, as the meaning of `timestamp` depends on
    `spark.sql.timestampType`."""
    kinds = COLUMNS | {"timestamp": "timestamp_ltz"}
    return ", ".join(f"{name} {kinds[name]}" for name in columns)


def check_schema(schema: Any) -> tuple[str, ...]:
    """The columns of a StructType, in its order. Raises UsageError for a column or type that does not
    exist."""
    for field in schema.fields:
        kind = field.dataType.simpleString()
        if field.name not in COLUMNS:
            raise UsageError(
                f"schema: no column {field.name!r}", hint=f"the columns are {ddl(COLUMNS)}"
            )
        if kind != COLUMNS[field.name]:
            raise UsageError(
                f"schema: column {field.name} is {COLUMNS[field.name]}, not {kind}",
                hint="cast it after the load",
            )
        if not field.nullable and field.name not in _NEVER_NULL:
            raise UsageError(
                f"schema: column {field.name} may hold nulls, so it cannot be NOT NULL"
            )
    names = tuple(field.name for field in schema.fields)
    if not names or len(set(names)) < len(names):
        raise UsageError("schema: no column, or one twice", hint=f"the columns are {ddl(COLUMNS)}")
    return names


def check_rows(schema: Any, what: str, **more: str) -> set[str]:
    """The columns of rows that become records or messages. schema: a StructType. what: they become. more:
    columns besides those of both, with their types. Other columns of a read are ignored, so that rows of a
    read can be written. Raises UsageError, which names the column."""
    names = [field.name for field in schema.fields]
    kinds = _WRITTEN | {name: (kind,) for name, kind in more.items()}
    if "value" not in names:
        raise UsageError("no column 'value'", hint=f"the columns are {', '.join(names) or 'none'}")
    for field in schema.fields:
        kind = field.dataType.simpleString()
        if field.name in COLUMNS.keys() - kinds:
            continue
        if field.name not in kinds:
            raise UsageError(
                f"column {field.name!r} cannot be stored in a {what}",
                hint=f"the columns are {', '.join(kinds)}: put it into the value, or drop it",
            )
        if kind not in kinds[field.name]:
            raise UsageError(
                f"column {field.name} is {kind}, not {' or '.join(kinds[field.name])}",
                hint="cast it",
            )
    if len(set(names)) < len(names):
        raise UsageError("two columns have the same name")
    return set(names)
