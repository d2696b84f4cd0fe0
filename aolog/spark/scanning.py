"""`scan`: a batch of logs without Spark's data sources, for reads so large that the cost per row counts.

Spark copies each row of a Python source once more; rows from `mapInArrow` go to the query directly.
A source does not know the number of cores. Here there are at least as many tasks as cores, and
otherwise larger ones, as each task costs Spark about 50 ms. The records are the same.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, cast

from aolog.errors import UsageError
from aolog.spark.java import use_this_python
from aolog.spark.options_parsing import refused
from aolog.spark.shipping import Shipped
from aolog.spark.skipped import counter

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow as pa
    from pyspark.sql import Column, DataFrame, SparkSession

    from aolog.spark.options import Options
    from aolog.spark.planning import Piece
    from aolog.spark.pushdown import Condition

_PARTITION_BYTES = 256 << 20  # twice a source's
_NOT_HERE = {"path": "pass it before the options", "paths": "pass them before the options"}


def scan(
    spark: SparkSession,
    *paths: str | os.PathLike[str],
    where: str | Column | None = None,
    **options: object,
) -> DataFrame:
    """The rows of `spark.read.format("aolog").options(**options).load(paths)`, in less time if there
    are many millions. where: a filter, as of `DataFrame.where`; its terms on `log`, `offset`,
    `timestamp` and `topic` choose what is read (pushdown.py), and the plan shows them. columns: those
    of the result; only these and the filter's are built. maxPartitionBytes defaults to 256 MiB,
    minPartitions to the session's default parallelism. The call lists the logs and fixes their ends.
    Paths must be the same directories on every executor. Raises UsageError, also for a session of
    Spark Connect, and StorageError on the driver; Spark's errors for failures in tasks."""
    refuse_connect(spark, "use spark.read.format('aolog'), which lists them there")
    use_this_python(spark)
    from pyspark.sql.types import StructType

    from aolog.spark.datasource import arrow_schema
    from aolog.spark.listing import list_logs
    from aolog.spark.options import read_options
    from aolog.spark.planning import partitions, spans
    from aolog.spark.pushdown import narrowed
    from aolog.spark.schema import COLUMNS, ddl

    given = {name.lower(): _text(name, v) for name, v in options.items() if v is not None}
    for name, problem in _NOT_HERE.items():
        if name.lower() in given:
            raise refused(name, problem)
    cores = spark.sparkContext.defaultParallelism
    suiting = {"maxpartitionbytes": str(_PARTITION_BYTES), "minpartitions": str(cores)}
    listed = {"paths": json.dumps([_path(path) for path in paths])}
    asked = read_options({**suiting, **given, **listed}, stream=False)
    asked = asked._replace(losses=counter(spark))
    wanted, columns = spans(asked, list_logs(asked)), asked.columns
    conditions: list[Condition] = []
    if where is not None:
        from aolog.spark.query_filters import columns_of, conditions_of

        tried = spark.range(0).mapInArrow(Shipped(_nothing), ddl(COLUMNS)).where(where)
        columns = tuple(dict.fromkeys((*columns, *columns_of(tried))))
        conditions = conditions_of(tried)
        wanted = narrowed(wanted, conditions)
    cut = partitions(wanted, *asked.of_tasks())
    schema = arrow_schema(cast("StructType", StructType.fromDDL(ddl(columns))))
    read = Shipped(_read, cut, schema, asked, conditions)
    read.__name__ = f"scan PushedFilters: [{', '.join(map(str, conditions))}]"
    made = spark.range(0, len(cut), 1, max(1, len(cut))).mapInArrow(read, ddl(columns))
    return made if where is None else made.where(where).select(*asked.columns)


def _read(
    cut: list[tuple[Piece, ...]],
    schema: pa.Schema,
    options: Options,
    conditions: list[Condition],
    batches: Iterable[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    """In a task. Its input rows are indexes into `cut`."""
    from aolog.spark.reading import read_pieces

    for batch in batches:
        for task in batch.column(0).to_pylist():
            yield from read_pieces(cut[task], schema, options, conditions)


def _nothing(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """For a frame that has only a plan."""
    del batches
    yield from ()


def refuse_connect(spark: SparkSession, instead: str) -> None:
    """Raises UsageError for a session of Spark Connect."""
    if type(spark).__module__.startswith("pyspark.sql.connect"):
        raise UsageError(
            "with Spark Connect the paths are on the server, and this lists the logs here",
            hint=instead,
        )


def _path(given: object) -> str:
    path = os.fspath(given) if isinstance(given, os.PathLike) else given
    if not isinstance(path, str):  # a list, which `load` accepts
        raise refused(
            "path",
            f"{given!r} is neither text nor a path",
            "pass paths as arguments: scan(spark, *paths)",
        )
    return path


def _text(name: str, value: object) -> str:
    """The text that Spark would pass on."""
    if not isinstance(value, str | bool | int | float):
        raise refused(name, f"{value!r} is neither text nor a number", "offsets by log are JSON")
    return str(value).lower() if isinstance(value, bool) else str(value)
