"""`scan` gives what `format("aolog")` gives, and refuses what that refuses. Seconds each, for Spark."""

from __future__ import annotations

import pytest

import aolog
import aolog.spark
from aolog.errors import NotALog, UsageError

pytestmark = pytest.mark.timeout(300)  # the first of them starts the JVM, maybe beside much else


def write(path, count=10, **options):
    with aolog.Writer(path, batch_bytes=0, **options) as log:
        for i in range(count):
            log.append(b"%d" % i, key=b"k", headers=[("h", None)], timestamp=i)


@pytest.mark.parametrize(
    ("options", "count"),
    [
        ({}, 20),
        ({"includeHeaders": True, "minPartitions": 3, "startingTimestamp": None}, 20),
        ({"columns": "log,value,offset", "subscribe": "a", "startingTimestamp": 0}, 10),
        ({"startingOffsets": "latest"}, 0),
    ],
)
def test_rows_columns_and_types_are_those_of_the_source(tmp_path, spark, load, options, count):
    write(tmp_path / "a")
    write(tmp_path / "b", topic="quakes")
    scanned = aolog.spark.scan(spark, tmp_path, **options)
    given = {k: str(v).lower() if v is True else v for k, v in options.items() if v is not None}
    loaded = load(tmp_path, **given)
    assert scanned.schema == loaded.schema
    rows = scanned.orderBy("log", "offset").collect()
    assert rows == loaded.orderBy("log", "offset").collect()
    assert len(rows) == count
    write(tmp_path / "a")
    assert scanned.count() == count, "the end was pinned"


def test_a_session_s_own_kind_of_timestamps_changes_nothing(tmp_path, spark, load):
    write(tmp_path / "log", 1)
    usual = spark.conf.get("spark.sql.timestampType")
    for kind in ("TIMESTAMP_NTZ", "TIMESTAMP_LTZ"):
        spark.conf.set("spark.sql.timestampType", kind)
        try:
            for frame in (aolog.spark.scan(spark, tmp_path), load(tmp_path)):
                assert frame.schema["timestamp"].dataType.simpleString() == "timestamp"
                assert frame.selectExpr("unix_micros(timestamp)").first()[0] == 0
        finally:
            spark.conf.set("spark.sql.timestampType", usual)


def test_several_paths_are_read_together_and_by_as_many_tasks_as_asked_for(tmp_path, spark):
    write(tmp_path / "a")
    write(tmp_path / "b")
    scanned = aolog.spark.scan(spark, tmp_path / "a", str(tmp_path / "b"), minPartitions=4)
    assert scanned.count() == 20
    assert scanned.rdd.getNumPartitions() >= 4


def test_what_is_damaged_fails_unless_it_is_to_be_skipped(tmp_path, spark):
    write(tmp_path / "log")
    (slab,) = (tmp_path / "log").glob("*.slab")
    content = bytearray(slab.read_bytes())
    content[8192 + 300] ^= 1  # behind the header, in one of the frames
    slab.write_bytes(content)
    with pytest.raises(Exception, match="set onCorruption to skip"):
        aolog.spark.scan(spark, tmp_path).count()
    assert aolog.spark.scan(spark, tmp_path, onCorruption="skip").count() == 9


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"cursor": "x"}, "option cursor: is a stream's"),
        ({"path": "/elsewhere"}, "option path: pass it before"),
        ({"onCorruption": "no"}, "option onCorruption: 'no' is neither"),
        ({"columnz": "value"}, "columns"),
    ],
)
def test_options_that_mean_nothing_here_are_refused(tmp_path, spark, options, message):
    write(tmp_path / "log")
    with pytest.raises(UsageError, match=message):
        aolog.spark.scan(spark, tmp_path, **options)


def test_a_path_without_logs_and_none_at_all_are_refused(tmp_path, spark):
    with pytest.raises(NotALog):
        aolog.spark.scan(spark, tmp_path / "nothing")
    with pytest.raises(UsageError, match="path"):
        aolog.spark.scan(spark)


@pytest.mark.parametrize("path", [None, 5, b"/tmp", ["/tmp"], ("/tmp",)])
def test_what_is_no_path_is_refused(spark, path):
    with pytest.raises(UsageError, match="is neither text nor a path"):
        aolog.spark.scan(spark, path)


def test_a_log_whose_name_is_no_text_is_refused_on_the_driver(tmp_path, spark):
    write(tmp_path / "a\udcff")
    with pytest.raises(UsageError, match=r"a\\xff' is not UTF-8"):
        aolog.spark.scan(spark, tmp_path)


@pytest.mark.parametrize("value", [b"a", {"a": 1}, ["a"]])
def test_an_option_that_is_neither_text_nor_a_number_is_refused(tmp_path, spark, value):
    write(tmp_path / "a")
    with pytest.raises(UsageError, match=r"option subscribePattern: .* neither text nor a number"):
        aolog.spark.scan(spark, tmp_path, subscribePattern=value)
