"""Two Spark sources with the columns of aolog's, for comparison. One makes rows in Python one by one: the
simple way. The other reads one batch and returns it again and again: the cost of Spark itself for a source
in Python, which no source can undercut.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow

import aolog
from aolog.spark.schema import DEFAULT_COLUMNS, ddl
from bench.sparks import AGAIN, BATCH_BYTES, ROWS, as_source

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

__all__ = ["AgainSource", "RowsSource"]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class _Source(DataSource):
    """Options: path, the root; columns, "value" or nothing."""

    def schema(self) -> str:
        return ddl(self._columns)

    @property
    def _is_narrow(self) -> bool:
        return self.options.get("columns") == "value"

    @property
    def _columns(self) -> list[str]:
        return ["value"] if self._is_narrow else list(DEFAULT_COLUMNS)


class RowsSource(_Source):
    """Rows as tuples, one task for each log."""

    @classmethod
    def name(cls) -> str:
        return ROWS

    def reader(self, schema: Any) -> DataSourceReader:
        del schema
        return _Rows(self.options["path"], is_narrow=self._is_narrow)


class AgainSource(_Source):
    """The first batch of each log, repeated up to the log's number of records. Further options: records
    and tasks, of all logs together."""

    @classmethod
    def name(cls) -> str:
        return AGAIN

    def reader(self, schema: Any) -> DataSourceReader:
        del schema
        return _Again(*self._given)

    def streamReader(self, schema: Any) -> DataSourceStreamReader:  # noqa: N802 -- Spark's name
        del schema
        return _AgainStream(_Again(*self._given))

    @property
    def _given(self) -> tuple[str, list[str], int, int]:
        numbers = int(self.options["records"]), int(self.options["tasks"])
        return self.options["path"], self._columns, *numbers


class _Again(DataSourceReader):
    def __init__(self, root: str, columns: list[str], records: int, tasks: int) -> None:
        self._root, self._columns, self._records, self._tasks = root, columns, records, tasks

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(i) for i in range(self._tasks)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        i, names = partition.value, sorted(os.listdir(self._root))
        name = names[i % len(names)]
        with aolog.Reader(f"{self._root}/{name}", strict=True) as reader:
            batch = reader.read_batch(BATCH_BYTES)
            assert batch is not None
            made = as_source(batch, name, self._columns)
        left = self._records * (i + 1) // self._tasks - self._records * i // self._tasks
        while left:
            yield made.slice(0, left)
            left -= min(left, len(made))


class _AgainStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """One batch, of all that the reader has."""

    def __init__(self, reader: _Again) -> None:
        self._reader = reader

    def initialOffset(self) -> dict[str, int]:  # noqa: N802 -- Spark's name
        return {"batches": 0}

    def latestOffset(self, start: dict[str, int], limit: Any) -> dict[str, int]:  # noqa: N802 -- Spark's name
        del start, limit
        return {"batches": 1}

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 -- Spark's name
        pass

    def partitions(self, start: Any, end: Any) -> list[InputPartition]:
        del start, end
        return self._reader.partitions()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self._reader.read(partition)


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
