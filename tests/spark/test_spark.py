"""Spark itself: batches, streams, SQL, verification and writers in tasks. Seconds each, for the JVM
and the processes of Python that it starts; what needs no Spark is in the files beside this one."""

import shutil
import time
from datetime import UTC, datetime

import pytest

import aolog
import aolog.spark
from tests.aolog.conftest import overwrite
from tests.spark.driving import write


def test_a_batch_has_rows_of_all_logs_and_errors_name_the_option(tmp_path, spark, load):
    first, second = write(tmp_path / "a"), write(tmp_path / "b", topic="quakes")
    frame = load(tmp_path, minPartitions=3, includeHeaders="true")
    rows = frame.orderBy("log", "offset").collect()
    assert [row.offset for row in rows] == first + second
    assert {(row.log, row.topic) for row in rows} == {("a", None), ("b", "quakes")}
    row = rows[3]
    assert (row.key, bytes(row.value), row.partition, row.timestampType) == (None, b"value", 0, 0)
    assert row.timestamp.astimezone(UTC) == datetime.fromtimestamp(1_700_000_000.003, UTC)
    assert row.headers == []
    assert frame.rdd.getNumPartitions() >= 3
    assert load([tmp_path / "a", tmp_path / "b"], schema="value binary, log string").count() == 20
    assert load(tmp_path, startingOffsets="latest").count() == 0
    with pytest.raises(Exception, match="option onCorruption: 'no' is neither fail nor skip"):
        load(tmp_path, onCorruption="no")
    write(tmp_path / "a")
    assert frame.count() == 20, "the end was pinned"


def test_views_of_sql_work_and_tables_are_refused(tmp_path, spark):
    write(tmp_path / "log")
    spark.sql(f"CREATE TEMPORARY VIEW logs USING aolog OPTIONS (path '{tmp_path}')")
    assert spark.sql("SELECT count(*) FROM logs").first()[0] == 10
    with pytest.raises(Exception, match="CREATE TEMPORARY VIEW"):
        spark.sql(f"CREATE TABLE logs_table USING aolog OPTIONS (path '{tmp_path}')")
    with pytest.raises(Exception, match="CREATE TEMPORARY VIEW"):
        spark.sql("CREATE TABLE logs_table USING aolog")
    rows = spark.table("logs").select("value")
    with pytest.raises(Exception, match="CREATE TEMPORARY VIEW"):
        rows.write.format("aolog").mode("append").saveAsTable("logs_table")
    with pytest.raises(Exception, match="CREATE TEMPORARY VIEW"):
        rows.writeTo("logs_table").using("aolog").create()
    spark.sql("DROP VIEW logs")


def test_verification_counts_as_the_log_s_own(tmp_path, spark):
    for name, count in (("a", 60), ("b", 3)):
        write(tmp_path / name, count, value=b"." * 1000, slab_bytes=20_000)
    slabs = sorted((tmp_path / "a").glob("*.slab"))
    overwrite(slabs[1], 10_000, bytes(3000))
    slabs[2].unlink()
    found = aolog.spark.verify(spark, tmp_path, min_partitions=5)
    assert not found.ok
    for name in "ab":
        ours, theirs = found.logs[name], aolog.verify(tmp_path / name)
        assert ours.gaps == theirs.gaps
        assert (ours.records, ours.frames, ours.end) == (theirs.records, theirs.frames, theirs.end)
    assert found.logs["a"].gaps
    rows = {(row.log, row.hour.astimezone(UTC)): row.records for row in found.statistics.collect()}
    hour = datetime(2023, 11, 14, 22, tzinfo=UTC)
    assert rows == {("a", hour): found.logs["a"].records, ("b", hour): 3}
    with aolog.Writer(tmp_path / "c") as log:
        log.append(b"late", timestamp=(1 << 63) - 1)
    late = aolog.spark.verify(spark, tmp_path / "c")
    assert late.ok
    assert late.statistics.where("year(hour) > 9999").count() == 1, (
        "what Python has no datetime for"
    )


def test_a_writer_in_each_task_has_a_log_of_its_own_and_keeps_what_a_failed_task_wrote(
    tmp_path, spark
):
    root = str(tmp_path)

    def save(numbers):
        with aolog.spark.writer_per_task(root, sync="never") as log:
            for number in numbers:
                log.append(str(number).encode())
                assert number != 7, "this one fails"

    with pytest.raises(Exception, match="this one fails"):
        spark.sparkContext.parallelize(range(8), 2).foreachPartition(save)
    spark.sparkContext.parallelize(range(100, 104), 2).foreachPartition(save)
    logs = sorted(tmp_path.iterdir())
    assert len(logs) == 4
    values = [record.value for log in logs for record in aolog.Reader(log)]
    assert sorted(map(int, values)) == [*range(8), *range(100, 104)]
    assert all(aolog.verify(log).ok for log in logs)
    shutil.rmtree(tmp_path)


def test_spark_lets_a_stream_wait_for_the_least_records(tmp_path, spark):
    write(tmp_path / "log", 3)
    options = {"minOffsetsPerTrigger": 6, "maxTriggerDelay": "1h"}
    rows = spark.readStream.format("aolog").options(**options).load(str(tmp_path / "log"))
    query = rows.select("offset").writeStream.format("memory").queryName("waits").start()

    def processed(count):
        until = time.monotonic() + 100
        while (found := spark.table("waits").count()) < count and time.monotonic() < until:
            query.processAllAvailable()
        return found

    try:
        assert processed(3) == 3
        write(tmp_path / "log", 5)
        for _ in range(3):
            query.processAllAvailable()
        assert spark.table("waits").count() == 3
        write(tmp_path / "log", 1)
        assert processed(9) == 9
    finally:
        query.stop()
