"""spark: logs as Spark's tables, beside a Reader in its tasks, rows made in Python, a source that has
nothing to read, and Spark's own files.

All read the same values, on two cores, and add up their lengths; all write the same rows, which come from
Parquet. The time is of the whole query, from `load` or `save` on. Data from Python crosses a socket to the
JVM with all of its columns, whatever the query uses: so an unused column costs time, and no read can be as
fast as Spark's own Parquet, which never leaves the JVM.

Proof of work: count, sum of lengths and sum of CRCs, by Spark, compared with Python's.
"""

from __future__ import annotations

from contextlib import contextmanager, nullcontext
from functools import partial
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aolog
import aolog.spark
from aolog.spark.schema import DEFAULT_COLUMNS, ddl
from bench import sparks
from bench.cases.opening import make_log
from bench.measure import Contender, Group, Promise, Skipped, Target, Wrong
from bench.panel import Panel, Probe
from bench.sparks import (
    AGAIN,
    BATCH_BYTES,
    LOGS,
    ROWS,
    Content,
    as_source,
    cpu_seconds,
    proof_of,
    total,
    write_files,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import DataFrame, SparkSession

    from bench.cases.plan import Plan

__all__ = ["READ_TARGETS", "WRITE_TARGETS", "embedded", "groups", "load", "reader"]

SOURCE, EMBEDDED, BY_ROWS = "aolog", "a Reader in mapInArrow", "Python rows"
OWN_COLUMNS = "a Reader in mapInArrow, its columns"
LIMIT = "a source of one batch, again and again"
SCAN = "aolog.spark.scan"
PARQUET, ZSTD, TEXT, FILES = "Parquet", "Parquet, zstd", "text", "binaryFile"
NOOP = "noop"
_OWN = ["key", "value", "topic", "offset", "timestamp"]
# As rates at least 0.9: tasks that embed a Reader send the same bytes to the JVM. After that Spark treats
# rows of a source in another way; the source that has nothing to read shows that cost. Python rows are
# compared for all columns only: of values alone, Spark's start takes half of a query of a second.
READ_TARGETS = (
    Target("time of a scan, of a Reader in mapInArrow", SCAN, (EMBEDDED,), 1 / 0.9),
    Target("time of the source, of a Reader in mapInArrow", SOURCE, (EMBEDDED,), 1 / 0.9),
    Target("time of the source, of one that has nothing to read", SOURCE, (LIMIT,), 1 / 0.9),
    Target("time of the source, of Python rows", SOURCE, (BY_ROWS,), 1 / 2.5),
)
# Of the same columns.
FILE_TARGETS = (
    Target("time of the source, of Parquet", SOURCE, (PARQUET,), 1.15),
    Target("time of a scan, of Parquet", SCAN, (PARQUET,), 1.0),
)
STREAM_TARGETS = (Target("time of a stream of logs, of Parquet files", SOURCE, (PARQUET,), 1.2),)
WRITE_TARGETS = (Target("time of the sink, of Parquet", SOURCE, (PARQUET,), 1 / 0.75),)
_PLANNING_S = 2.0
_CHECKED = "xxh3 a batch"


def groups(plan: Plan) -> Iterator[Group | Panel]:
    reason = sparks.missing()
    if reason is not None:
        yield Panel("spark", "Spark", "not at all", [], [Skipped("Spark", reason)])
        return
    size = plan.size
    with plan.fixture() as directory, sparks.session(directory, size.spark_settings) as spark:
        for i, (length, records) in enumerate(size.spark_records):
            with plan.fixture() as place:
                content = Content.make(spark, place, records, length)
                yield _reading(spark, content, length, size.spark_rounds, narrow=False)
                yield _reading(spark, content, length, size.spark_rounds, narrow=True)
                yield _streaming(spark, content, length, size.spark_rounds)
                yield _writing(spark, content, length, size.spark_rounds)
                if i == 0:
                    yield _first(spark, content, size.spark_rounds)
        yield _planning(spark, directory, *size.spark_slabs)


# --- reading ------------------------------------------------------------------------------------


def _reading(
    spark: SparkSession, content: Content, length: int, rounds: int, *, narrow: bool
) -> Group:
    sources = {
        SOURCE: (partial(load, spark, content, "aolog", narrow=narrow), ""),
        SCAN: (
            partial(
                aolog.spark.scan, spark, content.logs, columns=",".join(_columns(narrow=narrow))
            ),
            "a task a core at least, of 256 MiB at most",
        ),
        EMBEDDED: (
            partial(embedded, spark, content, _columns(narrow=narrow)),
            "a task a log" + ("" if narrow else "; the source's columns"),
        ),
        BY_ROWS: (
            partial(load, spark, content, ROWS, narrow=narrow),
            "the source's columns, a tuple a record; a task a log",
        ),
    }
    if not narrow:
        sources[OWN_COLUMNS] = (
            partial(embedded, spark, content, _OWN),
            "a task a log; without partition, timestampType and log",
        )
    contenders = [
        reader(name, content, frame, _CHECKED, note) for name, (frame, note) in sources.items()
    ]
    contenders.append(_again(spark, content, narrow=narrow))
    if narrow:
        contenders += _own_kinds(spark, content)
    return Group(
        "spark",
        f"Spark reads {'values' if narrow else 'all columns'}, {content.records:,} of {length} bytes",
        "from load to the sum of the values' lengths",
        length,
        contenders,
        (EMBEDDED,),
        targets=(*READ_TARGETS[:3], *FILE_TARGETS) if narrow else READ_TARGETS,
        rounds=rounds,
    )


def _columns(*, narrow: bool) -> list[str]:
    return ["value"] if narrow else list(DEFAULT_COLUMNS)


def load(spark: SparkSession, content: Content, kind: str, *, narrow: bool = True) -> DataFrame:
    reader = spark.read.format(kind)
    return (reader.option("columns", "value") if narrow else reader).load(content.logs)


def embedded(spark: SparkSession, content: Content, columns: list[str]) -> DataFrame:
    """The code of a user without the source: one log in each task."""
    root = content.logs

    def read(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                with aolog.Reader(f"{root}/{number}", strict=True) as reader:
                    while (found := reader.read_batch(BATCH_BYTES)) is not None:
                        yield as_source(found, str(number), columns)

    return spark.range(0, LOGS, 1, LOGS).mapInArrow(read, ddl(columns))


def _own_kinds(spark: SparkSession, content: Content) -> Iterator[Contender]:
    for name, kind in ((PARQUET, "parquet"), (ZSTD, "zstd"), (TEXT, "text")):
        files = spark.read.format("text" if kind == "text" else "parquet")
        files = files.schema(f"value {'string' if kind == 'text' else 'binary'}")
        frame = partial(files.load, content.copy(kind))
        yield reader(name, content, frame, "none", "")

    stored = content.stored

    def work() -> int:
        frame = spark.read.format("binaryFile").option("recursiveFileLookup", "true")
        _, size = total(frame.load(content.logs), "content")
        if size != stored:
            raise Wrong(f"{FILES}: read {size} bytes of {stored}")
        return content.records

    yield Contender(
        FILES, Promise("-", "none"), content.records, lambda _: nullcontext(work), None,
        content.proof, "the logs' files, each a row: it knows no records", cpu_s=cpu_seconds,
    )  # fmt: skip  # one thing, two lines


def _again(spark: SparkSession, content: Content, *, narrow: bool) -> Contender:
    tasks = load(spark, content, SOURCE, narrow=narrow).rdd.getNumPartitions()
    frame = spark.read.format(AGAIN).option("records", content.records).option("tasks", tasks)
    if narrow:
        frame = frame.option("columns", "value")
    note = "no bytes read but a batch a task, in as many tasks: what Spark takes for any source"
    return reader(LIMIT, content, partial(frame.load, content.logs), "none", note, proof=False)


def reader(
    name: str,
    content: Content,
    frame: Callable[[], DataFrame],
    checksum: str,
    note: str = "",
    *,
    proof: bool = True,
) -> Contender:
    """proof: whether to compare all values, not only their number and bytes."""

    def work() -> int:
        records, size = total(frame())
        if size != content.bytes:
            raise Wrong(f"{name}: read {size} bytes of {content.bytes}")
        return records

    return Contender(
        name, Promise("-", checksum), content.records, lambda _: nullcontext(work),
        (lambda _: proof_of(frame())) if proof else None, content.proof, note, cpu_s=cpu_seconds,
    )  # fmt: skip  # one thing, two lines


# --- a stream -----------------------------------------------------------------------------------


def _streaming(spark: SparkSession, content: Content, length: int, rounds: int) -> Group:
    def logs(kind: str, stream: Any, **options: int) -> DataFrame:
        loaded: DataFrame = (
            stream.format(kind).options(columns="value", **options).load(content.logs)
        )
        return loaded

    loads: dict[str, Callable[[Any], DataFrame]] = {
        SOURCE: partial(logs, "aolog"),
        LIMIT: partial(logs, AGAIN, records=content.records, tasks=LOGS),
        PARQUET: lambda stream: stream.schema("value binary").parquet(content.copy("parquet")),
    }

    def contender(name: str, loaded: Callable[[Any], DataFrame]) -> Contender:
        @contextmanager
        def session(directory: str) -> Iterator[Callable[[], int]]:
            yield partial(_available_now, spark, loaded, directory)

        promise = Promise("-", _CHECKED if name == SOURCE else "none")
        return Contender(
            name, promise, content.records, session, None, content.proof, cpu_s=cpu_seconds
        )

    return Group(
        "spark",
        f"Spark streams {content.records:,} values of {length} bytes",
        "a query with AvailableNow, from start to end; its sink uses each value's length",
        length,
        [contender(name, loaded) for name, loaded in loads.items()],
        (PARQUET,),
        targets=STREAM_TARGETS,
        rounds=rounds,
    )


def _available_now(spark: SparkSession, loaded: Callable[[Any], DataFrame], directory: str) -> int:
    """The rows of a query that ends with what there is now."""
    used = loaded(spark.readStream).selectExpr("octet_length(value) AS bytes")
    query = (
        used.writeStream.format("noop")
        .option("checkpointLocation", f"{directory}/checkpoint")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return sum(progress.numInputRows for progress in query.recentProgress)


# --- writing ------------------------------------------------------------------------------------


def _writing(spark: SparkSession, content: Content, length: int, rounds: int) -> Group:
    def given() -> DataFrame:
        return spark.read.schema("value binary").parquet(content.copy("parquet"))

    def own(kind: str, codec: str, path: str) -> None:
        write_files(given(), kind, codec, path)

    def sink(path: str) -> None:
        given().write.format("aolog").mode("append").save(path)

    def read_back(kind: str, path: str) -> DataFrame:
        if kind == "aolog":
            return spark.read.format(kind).option("columns", "value").load(path)
        return spark.read.format(kind).load(path)

    def contender(name: str, kind: str, write: Callable[[str], None], note: str = "") -> Contender:
        promise = Promise("disk", "xxh3 a batch") if kind == "aolog" else Promise("OS", "none")

        @contextmanager
        def session(directory: str) -> Iterator[Callable[[], int]]:
            def work() -> int:
                write(f"{directory}/out")
                return content.records

            yield work

        def proof(directory: str) -> Any:
            return proof_of(read_back(kind, f"{directory}/out"))

        return Contender(
            name, promise, content.records, session, proof, content.proof, note, cpu_s=cpu_seconds
        )

    def noop() -> int:
        given().write.format("noop").mode("overwrite").save()
        return content.records

    return Group(
        "spark",
        f"Spark writes {content.records:,} values of {length} bytes",
        "from save until all is committed; the rows come from Parquet",
        length,
        [
            Contender(NOOP, Promise("-", "none"), content.records, lambda _: nullcontext(noop),
                      None, content.proof, "reads the rows and writes nothing", cpu_s=cpu_seconds),
            contender(SOURCE, "aolog", sink, "all tasks at once or none, synced"),
            contender(PARQUET, "parquet", partial(own, "parquet", "none"), "not synced"),
            contender(ZSTD, "parquet", partial(own, "parquet", "zstd"), "not synced"),
            contender(TEXT, "text", partial(own, "text", "none"), "not synced"),
        ],
        (PARQUET,),
        targets=WRITE_TARGETS,
        rounds=rounds,
    )  # fmt: skip  # a table


# --- before the first row -----------------------------------------------------------------------


def _first(spark: SparkSession, content: Content, rounds: int) -> Group:
    frames = {
        SOURCE: partial(load, spark, content, "aolog"),
        EMBEDDED: partial(embedded, spark, content, ["value"]),
        BY_ROWS: partial(load, spark, content, ROWS),
        PARQUET: partial(spark.read.parquet, content.copy("parquet")),
    }

    def contender(name: str, frame: Callable[[], DataFrame]) -> Contender:
        def work() -> int:
            return len(frame().take(1))

        return Contender(
            name, Promise("-", "none" if name == PARQUET else _CHECKED), 1,
            lambda _: nullcontext(work), None, content.proof, cpu_s=cpu_seconds,
        )  # fmt: skip  # one thing, two lines

    return Group(
        "spark",
        f"Spark's first row of {content.records:,}",
        "from load until a row is here",
        0,
        [contender(name, frame) for name, frame in frames.items()],
        (PARQUET,),
        unit="load",
        rounds=rounds,
    )


def _planning(spark: SparkSession, directory: str, logs: int, slabs: int) -> Panel:
    """slabs: of all logs together."""
    root = Path(directory, "many")
    for i in range(logs):
        make_log(str(root / f"{i:04d}"), slabs // logs)
    numbers = count()

    def sample() -> dict[str, float]:
        import time

        begin = time.perf_counter()
        # Spark keeps a load's plan, so each load has another option.
        frame = spark.read.format("aolog").option("minPartitions", 1 + next(numbers) % 7)
        tasks = frame.load(str(root)).rdd.getNumPartitions()
        took = time.perf_counter() - begin
        if not tasks:
            raise Wrong("there is nothing to read")
        return {"s": took, "tasks": tasks}

    return Panel(
        "spark",
        f"Spark plans a load of {slabs:,} slabs in {logs:,} logs",
        "from load until its tasks are known; what Spark itself takes is in it",
        [Probe("aolog", sample, {"s": _PLANNING_S})],
    )
