"""The logs of aolog's source as rows made in Python one by one: what is to be beaten. Columns and
reading as there; a task a log. For the bench only."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

import aolog
from aolog.spark.schema import DEFAULT_COLUMNS, ddl
from bench.sparks import ROWS

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["RowsSource"]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class RowsSource(DataSource):
    """Options: path, the root; columns, "value" or nothing."""

    @classmethod
    def name(cls) -> str:
        return ROWS

    def schema(self) -> str:
        return ddl(["value"] if self._is_narrow else DEFAULT_COLUMNS)

    @property
    def _is_narrow(self) -> bool:
        return self.options.get("columns") == "value"

    def reader(self, schema: Any) -> DataSourceReader:
        del schema
        return _Rows(self.options["path"], is_narrow=self._is_narrow)


class _Rows(DataSourceReader):
    def __init__(self, root: str, *, is_narrow: bool) -> None:
        self._root, self._is_narrow = root, is_narrow

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(name) for name in sorted(os.listdir(self._root))]

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        name = partition.value
        with aolog.Reader(f"{self._root}/{name}", strict=True) as reader:
            if self._is_narrow:
                for value in reader.values():
                    yield (value,)
                return
            for record in reader:
                stamp = _EPOCH + timedelta(microseconds=record.timestamp or 0)
                yield (
                    record.key, record.value, record.topic, 0, record.address, stamp, 0, name,
                )  # fmt: skip  # in the schema's order
