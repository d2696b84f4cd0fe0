"""Writing from Spark: what is in a log after a job, whatever went wrong. About 20 s."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, concat, lit, repeat, when

import aolog
from aolog.log.manifest import read_manifest
from aolog.storage.storage import Storage
from bridge.supervise.discovery import find_logs
from tests.aolog.conftest import mount, small_disk

__all__ = ["mount", "small_disk"]

LOG = "default"


def records(path: Path) -> list[aolog.Record]:
    with aolog.Reader(path, strict=True) as reader:
        return list(reader)


def values(path: Path) -> list[str]:
    return sorted(record.value.decode() for record in records(path))


def pending(root: Path) -> list[Path]:
    return list(root.rglob("*.pending"))


def numbers(spark: SparkSession, count: int, partitions: int = 2) -> DataFrame:
    """Values "0" to "count - 1"."""
    return spark.range(0, count, 1, partitions).select(col("id").cast("string").alias("value"))


def write(frame: DataFrame, path: Path, **options: object) -> None:
    frame.write.format("troubled").mode("append").options(**options).save(str(path))


# --- rows and logs ---------------------------------------------------------------------------


def test_rows_become_records_with_all_that_they_have(spark, tmp_path):
    moment = datetime(2024, 5, 6, 7, 8, 9, 123456, tzinfo=UTC)
    rows = [
        (b"v1", b"k1", [("h", b"x"), ("i", None)], moment, "t", "a/b"),
        (None, None, None, None, None, None),
        (b"", b"", [], moment, "u", "a/b"),
    ]
    frame = spark.createDataFrame(
        rows,
        "value binary, key binary, headers array<struct<key string, value binary>>, "
        "timestamp timestamp, topic string, log string",
    ).coalesce(1)
    write(frame, tmp_path, log="c")
    first, second = records(tmp_path / "a/b")
    assert (first.value, first.key, first.topic) == (b"v1", b"k1", "t")
    assert first.headers == (("h", b"x"), ("i", None))
    assert first.timestamp == int(moment.timestamp()) * 10**6 + 123456
    assert (second.value, second.key, second.headers, second.topic) == (b"", b"", (), "u")
    (third,) = records(tmp_path / "c")
    assert (third.value, third.key, third.headers, third.topic) == (None, None, (), None)
    assert sorted(find_logs(str(tmp_path))) == ["a/b", "c"]


def test_text_is_written_as_its_bytes_and_a_partition_s_order_is_kept(spark, tmp_path):
    frame = spark.range(0, 30_000, 1, 1).select(
        col("id").cast("string").alias("key"),
        concat(lit("ü"), col("id")).alias("value"),
        concat(lit("log"), col("id") % 3).alias("log"),
        lit(7).alias("partition"),  # as a read makes it
        lit(7).cast("bigint").alias("offset"),
    )
    write(frame, tmp_path, topic="all", slabBytes=100_000)
    for i in range(3):
        found = records(tmp_path / f"log{i}")
        assert [int(record.key) for record in found] == list(range(i, 30_000, 3))
        assert found[1].value == f"ü{i + 3}".encode()
        assert {record.topic for record in found} == {"all"}
        report = aolog.verify(tmp_path / f"log{i}")
        assert report.ok
        assert report.slabs > 1


def test_tasks_without_rows_leave_nothing(spark, tmp_path):
    write(numbers(spark, 1, partitions=4), tmp_path)
    assert values(tmp_path / LOG) == ["0"]
    assert len(list((tmp_path / LOG).iterdir())) == 1
    write(numbers(spark, 0), tmp_path / "none")
    assert list((tmp_path / "none").iterdir()) == []


# --- once ------------------------------------------------------------------------------------


def test_an_attempt_that_does_not_count_adds_nothing(spark, tmp_path):
    """As a task that was retried or speculated: its slabs are whole, and no message names them."""
    write(numbers(spark, 100), tmp_path, attempts=3)
    assert values(tmp_path / LOG) == sorted(map(str, range(100)))
    assert pending(tmp_path) == []


def test_a_task_that_fails_leaves_nothing_in_any_log(spark, tmp_path):
    """One task: Spark does not wait for others that run when one has failed."""
    frame = spark.range(0, 10, 1, 1).select(
        when(col("id") == 7, lit("../x")).when(col("id") < 4, lit("a")).otherwise("b").alias("log"),
        col("id").cast("string").alias("value"),
    )
    with pytest.raises(Exception, match=r"column log: '\.\./x' names no log"):
        write(frame, tmp_path)
    assert find_logs(str(tmp_path)) == {}
    assert pending(tmp_path) == []


# Where a commit is killed, and whether that is after its commit point. (Each place: tests/publish.)
KILLED = [("replace *.jsonl", False), ("replace *.slab", True)]


@pytest.mark.parametrize(("where", "whole"), KILLED)
def test_a_commit_that_is_killed_leaves_all_or_nothing(spark, tmp_path, where, whole):
    options = {"txnAppId": "nightly", "txnVersion": 1}
    with pytest.raises(Exception, match="exited unexpectedly"):
        write(numbers(spark, 5), tmp_path, killAt=where, **options)
    assert bool(find_logs(str(tmp_path))) == whole
    if whole:
        assert values(tmp_path / LOG) == ["0", "1", "2", "3", "4"]
    write(numbers(spark, 5), tmp_path, **options)
    assert values(tmp_path / LOG) == ["0", "1", "2", "3", "4"]


# --- refused ---------------------------------------------------------------------------------


def test_a_full_disk_in_a_task_is_told_and_nothing_is_published(spark, small_disk):
    disk = small_disk(2 << 20)
    frame = numbers(spark, 4).select(repeat(col("value"), 1 << 20).alias("value"))
    with pytest.raises(Exception, match="No space left on device"):
        write(frame, disk)
    assert find_logs(str(disk)) == {}
    assert pending(disk) == []


# --- streams -----------------------------------------------------------------------------------


@pytest.fixture
def stream(spark: SparkSession, tmp_path: Path) -> Callable[..., None]:
    """Adds lines to a directory of text, and has a query with one checkpoint write what is new."""
    (tmp_path / "in").mkdir(parents=True)

    def run(*lines: str, **options: object) -> None:
        if lines:
            count = len(list((tmp_path / "in").iterdir()))
            hidden = tmp_path / "in" / f".{count}"
            hidden.write_text("\n".join(lines))
            hidden.rename(tmp_path / "in" / f"{count}.txt")
        query = (
            spark.readStream.text(str(tmp_path / "in"))
            .writeStream.format("troubled")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .options(**options)
            .trigger(availableNow=True)
            .start(str(tmp_path / "out"))
        )
        query.awaitTermination()

    return run


def test_a_stream_goes_on_where_it_was(stream, tmp_path):
    stream("a", "b")
    stream("c")
    stream()
    assert values(tmp_path / "out" / LOG) == ["a", "b", "c"]
    (version,) = read_manifest(str(tmp_path / "out"), Storage()).versions.items()
    assert version[0].startswith("query/")
    assert version[1] == 1
    assert pending(tmp_path) == []


def test_a_stream_s_commit_that_is_killed_is_repeated_and_seen_once(stream, tmp_path):
    with pytest.raises(Exception, match="exited unexpectedly"):
        stream("b", "c", killAt="replace *.slab")
    assert find_logs(str(tmp_path / "out"))
    stream()
    assert values(tmp_path / "out" / LOG) == ["b", "c"]
    assert pending(tmp_path) == []


@pytest.fixture
def rewound(stream, tmp_path) -> Callable[[], None]:
    """A stream whose batch 1 wrote "b", and a function that takes its checkpoint back to before that."""
    stream("a")
    shutil.copytree(tmp_path / "checkpoint", tmp_path / "earlier")
    stream("b")

    def rewind() -> None:
        shutil.rmtree(tmp_path / "checkpoint")
        shutil.copytree(tmp_path / "earlier", tmp_path / "checkpoint")

    rewind()
    return rewind


def test_a_batch_whose_number_was_published_with_other_rows_is_refused(stream, tmp_path, rewound):
    """A checkpoint that was rewound or copied: batch 1 is "b" and "c" now."""
    told = (
        "batch 1 of query [-0-9a-f]{36} was published before, with 1 record, and has 2 others now"
    )
    with pytest.raises(Exception, match=f"{told}.*txnAppId.*onRepeatedBatch") as refused:
        stream("c")
    assert "aolog.errors.UsageError" in str(refused.value)
    assert values(tmp_path / "out" / LOG) == ["a", "b"]
    assert pending(tmp_path) == []
    rewound()
    stream(txnAppId="again")
    assert values(tmp_path / "out" / LOG) == ["a", "b", "b", "c"]
    stream("d", txnAppId="again")
    assert values(tmp_path / "out" / LOG) == ["a", "b", "b", "c", "d"]


def test_as_many_other_rows_are_refused_too_and_skipped_on_request(stream, tmp_path, rewound):
    (tmp_path / "in" / "1.txt").write_text("x")
    with pytest.raises(Exception, match="with 1 record, and has 1 other now"):
        stream()
    stream(onRepeatedBatch="skip")
    stream("y")
    assert values(tmp_path / "out" / LOG) == ["a", "b", "y"]


def test_the_same_rows_again_are_seen_once_whatever_their_order(spark, stream, tmp_path, rewound):
    stream()
    stream("c")
    assert values(tmp_path / "out" / LOG) == ["a", "b", "c"]
    options = {"txnAppId": "nightly", "txnVersion": 1}
    write(numbers(spark, 50, partitions=3), tmp_path / "batch", **options)
    write(numbers(spark, 50).orderBy(col("value").desc()), tmp_path / "batch", **options)
    assert len(values(tmp_path / "batch" / LOG)) == 50
    with pytest.raises(
        Exception, match=r"version 1 of 'nightly' .*with 50 records, and has 51 oth"
    ):
        write(numbers(spark, 51), tmp_path / "batch", **options)


@contextmanager
def checkpoints_in(spark, path: Path) -> Iterator[None]:
    spark.conf.set("spark.sql.streaming.checkpointLocation", str(path))
    try:
        yield
    finally:
        spark.conf.unset("spark.sql.streaming.checkpointLocation")


def test_a_batch_that_was_planned_once_is_the_same_though_its_rows_differ(stream, spark, tmp_path):
    """As of a query with random values that is killed after its batch was published. Spark's setting names
    the directory of all checkpoints."""
    (tmp_path / "in").mkdir(exist_ok=True)
    (tmp_path / "in" / "0.txt").write_text("a")

    def run(**options: object) -> None:
        lines = spark.readStream.text(str(tmp_path / "in")).selectExpr("uuid() AS value")
        writer = lines.writeStream.format("troubled").options(**options).trigger(availableNow=True)
        writer.queryName("random").start(str(tmp_path / "random")).awaitTermination()

    with checkpoints_in(spark, tmp_path / "states"):
        with pytest.raises(Exception, match="exited unexpectedly"):
            run(killAt="replace *.slab")
        published = values(tmp_path / "random" / LOG)
        run()
    assert values(tmp_path / "random" / LOG) == published


def test_a_stream_that_reads_what_it_writes_is_refused_before_it_grows(spark, tmp_path):
    """It would copy its own copies for ever. Another log of the same root may be written."""
    with aolog.Writer(tmp_path / "root" / "events") as log:
        log.append_many([b"a", b"b"])

    def run(checkpoint: str, **options: object) -> None:
        rows = spark.readStream.format("aolog").options(**options).load(str(tmp_path / "root"))
        writer = rows.select("value").writeStream.format("aolog").trigger(availableNow=True)
        writer.option("checkpointLocation", str(tmp_path / checkpoint)).start(
            str(tmp_path / "root")
        ).awaitTermination()

    run("all")
    with pytest.raises(
        Exception, match=r"reads the log '?default'?, into which it writes.*subscribe"
    ):
        run("all")
    assert values(tmp_path / "root" / LOG) == ["a", "b"]
    for count in (4, 5):
        run("events", subscribe="events")
        assert len(values(tmp_path / "root" / LOG)) == count
        with aolog.Writer(tmp_path / "root" / "events") as log:
            log.append(b"c")


def test_a_foreach_batch_into_what_the_query_reads_is_refused(spark, tmp_path):
    """With Spark's setting for checkpoints: a job of foreachBatch does not know the query's option."""
    with aolog.Writer(tmp_path / "root" / "events") as log:
        log.append(b"a")

    def save(rows, _number: int) -> None:
        rows.select("value").write.format("aolog").mode("append").save(str(tmp_path / "root"))

    def run() -> None:
        rows = spark.readStream.format("aolog").load(str(tmp_path / "root"))
        writer = rows.writeStream.foreachBatch(save).trigger(availableNow=True)
        writer.queryName("copies").start().awaitTermination()

    with checkpoints_in(spark, tmp_path / "states"):
        run()
        with pytest.raises(Exception, match=r"reads the log '?default'?, into which it writes"):
            run()
    assert values(tmp_path / "root" / LOG) == ["a"]
