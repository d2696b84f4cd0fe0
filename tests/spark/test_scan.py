"""`scan` gives what `format("aolog")` gives, and refuses what that refuses. Seconds each, for Spark."""

import pytest

import aolog
import aolog.spark
from aolog.errors import UsageError


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
    spark.conf.set("spark.sql.timestampType", "TIMESTAMP_NTZ")
    try:
        for frame in (aolog.spark.scan(spark, tmp_path), load(tmp_path)):
            assert frame.schema["timestamp"].dataType.simpleString() == "timestamp"
            assert frame.selectExpr("unix_micros(timestamp)").first()[0] == 0
    finally:
        spark.conf.unset("spark.sql.timestampType")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"cursor": "x"}, "option cursor: needs a stream; this is a batch"),
        ({"path": "/elsewhere"}, "option path: pass it before"),
        ({"onCorruption": "no"}, "option onCorruption: 'no' is neither"),
        ({"columnz": "value"}, "columns"),
        ({"subscribePattern": ["a"]}, r"option subscribePattern: .* neither text nor a number"),
    ],
)
def test_options_that_mean_nothing_here_are_refused(tmp_path, spark, options, message):
    write(tmp_path / "log")
    with pytest.raises(UsageError, match=message):
        aolog.spark.scan(spark, tmp_path, **options)


@pytest.mark.parametrize("path", [None, b"/tmp", ["/tmp"]])
def test_what_is_no_path_is_refused(spark, path):
    with pytest.raises(UsageError, match="is neither text nor a path"):
        aolog.spark.scan(spark, path)
