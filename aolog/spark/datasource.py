"""`format("aolog")` for Spark's Python Data Source API. Spark calls these methods in its own processes:
schema and partitions on the driver's host, `read` in tasks.

A load's end is fixed with its schema, so records appended later belong to another load. Spark keeps
the partitions of a load from its first use on.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceReader, Filter, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema

from aolog.errors import AologError, UsageError
from aolog.spark.listing import list_logs
from aolog.spark.options import read_options
from aolog.spark.planning import Span, partitions, spans
from aolog.spark.pushdown import condition_of_filter, narrowed
from aolog.spark.reading import partition_of, pieces_in, read_pieces
from aolog.spark.schema import check_schema, ddl
from aolog.spark.shipping import Shipped, parcel

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql.datasource import DataSourceStreamReader
    from pyspark.sql.types import StructType

    from aolog.spark.options import Options
    from aolog.spark.pushdown import Condition

# Spark 4.1 to 4.3 keep one plan for each load, not for each query: a query with a filter leaves its tasks to
# the load's next query, which then misses rows. The release that plans each query for itself also
# brought this method.
PUSHES = hasattr(DataSourceReader, "pushLimit")


class AologDataSource(DataSource):
    """Logs as tables and streams, both ways. Options and columns: aolog/docs/how-to/spark.md."""

    def __init__(self, options: Any, pinned: list[Span] | None = None, losses: Any = None) -> None:
        super().__init__(options)
        self._pinned = pinned
        self._losses = losses

    @classmethod
    def name(cls) -> str:
        """The name for `format(...)`."""
        return "aolog"

    def schema(self) -> str:
        """The schema of a read, as the options choose it. Raises UsageError."""
        # Spark does not show here whether it is a stream.
        options = read_options(self.options, stream=None)
        logs = list_logs(options)
        with contextlib.suppress(AologError):  # `reader` raises it; a stream needs no spans
            self._pinned = spans(options, logs)
        return ddl(options.columns)

    def reader(self, schema: StructType) -> DataSourceReader:
        """The reader of a batch. Raises UsageError for invalid options or an invalid schema."""
        options = read_options(self.options, stream=False)._replace(losses=self._losses)
        _check(schema, options)
        wanted = spans(options, list_logs(options)) if self._pinned is None else self._pinned
        self._pinned = None  # Spark sends this source to each task with the reader
        return (PushingReader if PUSHES else BatchReader)(options, wanted, arrow_schema(schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 -- Spark's name
        """The reader of a stream. Raises UsageError for invalid options or an invalid schema."""
        from aolog.spark.stream import StreamReader

        options = read_options(self.options, stream=True)._replace(losses=self._losses)
        _check(schema, options)
        self._pinned = None  # `schema` fixed it as for a batch
        return StreamReader(options, arrow_schema(schema))

    def writer(self, schema: StructType, overwrite: bool) -> Any:  # noqa: FBT001 -- Spark's call
        """The writer of a batch. Raises as `batch_writer`."""
        from aolog.spark.sink import batch_writer

        return batch_writer(self.options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> Any:  # noqa: N802, FBT001 -- Spark's
        """The writer of a stream. Raises as `stream_writer`."""
        from aolog.spark.sink import stream_writer

        return stream_writer(self.options, schema, overwrite)

    def __reduce__(self) -> Any:
        return parcel(AologDataSource, self.options, self._pinned, self._losses)


def _check(schema: StructType, options: Options) -> None:
    names = check_schema(schema)
    if options.columns_named and names != options.columns:
        raise UsageError("option columns: differs from the schema", hint="give one of the two")


def arrow_schema(schema: StructType) -> pa.Schema:
    """The schema that Spark compares batches with, including order and nullability."""
    made: pa.Schema = to_arrow_schema(schema, timezone="UTC")
    return made


class BatchReader(DataSourceReader):
    """Reads the fixed spans. Picklable; `read` runs in tasks, and uses only its partition."""

    def __init__(
        self,
        options: Options,
        wanted: list[Span],
        schema: pa.Schema,
        conditions: Sequence[Condition] = (),
    ) -> None:
        self._options = options
        self._wanted = wanted
        self._schema = schema
        self._conditions = list(conditions)

    def partitions(self) -> list[InputPartition]:
        """One for each task. An empty one if there are no records: Spark needs at least one."""
        options = self._options
        wanted = narrowed(self._wanted, self._conditions)
        cut = partitions(wanted, *options.of_tasks())
        return [partition_of(pieces) for pieces in cut] or [InputPartition(None)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Batches of the partition's records. Raises GapFound, StorageError."""
        return read_pieces(pieces_in(partition), self._schema, self._options, self._conditions)

    def __reduce__(self) -> Any:
        return parcel(type(self), self._options, [], self._schema, self._conditions)


class PushingReader(BatchReader):
    """The same, with Spark's filters. Spark refuses a reader with `pushFilters` if
    `spark.sql.python.filterPushdown.enabled` is false."""

    def pushFilters(self, filters: list[Filter]) -> Iterator[Filter]:  # noqa: N802 -- Spark's name
        """Takes the filters that a log can look up. Yields the others, which Spark evaluates."""
        for each in filters:
            condition = condition_of_filter(each)
            if condition is None or condition.column not in self._schema.names:
                yield each
            else:
                self._conditions.append(condition)


def _source(losses: Any, options: Any) -> AologDataSource:
    return AologDataSource(options, losses=losses)


def source_class(losses: Any = None) -> type[DataSource]:
    """The class to register. Spark pickles it by value; its instances are `AologDataSource`s. losses: as of
    Options."""
    make = Shipped(_source, losses)

    class Source(DataSource):
        """Logs as tables and streams, both ways."""

        @classmethod
        def name(cls) -> str:
            """The name for `format(...)`."""
            return "aolog"

        def __new__(cls, options: Any) -> Any:
            """Makes the real source, in a worker that has the package."""
            return make(options)

    return Source
