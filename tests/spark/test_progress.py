"""The loss and the lag that a stream reports for its query's progress."""

from __future__ import annotations

import json
import re
import shutil
import time
import uuid

import pytest
from prometheus_client import CollectorRegistry
from pyspark.sql.streaming.listener import (
    QueryProgressEvent,
    QueryTerminatedEvent,
    StreamingQueryProgress,
)

import aolog
import aolog.spark
from aolog.errors import UsageError
from aolog.spark import backlog
from tests.spark.driving import write, write_damaged
from tests.spark.queries import Query
from tests.test_pages import DOCS

pytestmark = pytest.mark.usefixtures("looks_at_once")


def report(query):
    return query.reader.reportLatestOffset()


def test_the_lag_is_what_the_logs_hold_after_the_batch(tmp_path):
    """As `Reader.lag` has it."""
    addresses = write(tmp_path / "a", 100)
    write(tmp_path / "b", 20)
    query = Query(tmp_path, maxRecordsPerTrigger=60)
    query.batch()
    behind = report(query)["behind"]
    read = sum(name == "a" for _, name in query.rows)
    with aolog.Reader(tmp_path / "a", start=addresses[read]) as reader:
        lag = reader.lag()
    records, size, seconds = behind["logs"]["a"]
    assert (records, behind["records"]) == (lag.records, 60)
    assert abs(size - lag.bytes) < 100, "but for the header"
    assert abs(seconds - lag.seconds) < 60
    assert behind["seconds"] >= seconds
    query.all()
    assert report(query)["behind"] == {"records": 0, "bytes": 0, "seconds": 0.0, "logs": {}}


def test_the_lag_of_format_1_has_no_records(tmp_path):
    with aolog.Writer(tmp_path / "log", format="queuefka") as log:
        log.append_many([b"value"] * 10)
    query = Query(tmp_path, maxBytesPerTrigger=1)
    query.batch()
    behind = report(query)["behind"]
    assert (behind["records"], behind["seconds"]) == (None, None)
    assert behind["bytes"] > 0


def test_marks_are_no_lag_and_records_that_come_later_have_their_age(tmp_path):
    with aolog.Writer(tmp_path / "log", sync="never") as log:
        log.append(b"one", timestamp=1_700_000_000_000_000)
        log.flush()
        query = Query(tmp_path / "log")
        query.batch()
        log.sync()
        assert report(query)["behind"] == {"records": 0, "bytes": 0, "seconds": 0.0, "logs": {}}
        log.append(b"two", timestamp=1_700_000_000_000_000)
        log.flush()
        records, size, seconds = report(query)["behind"]["logs"]["log"]
    assert (records, size > 0, seconds > 1e6) == (1, True, True)


def test_a_log_that_is_renamed_beside_the_query_is_not_unread(tmp_path):
    write(tmp_path / "before")
    query = Query(tmp_path)
    query.all()
    (tmp_path / "before").rename(tmp_path / "after")
    assert report(query)["behind"]["records"] == 0
    write(tmp_path / "after", 3)
    assert report(query)["behind"]["records"] == 3


def test_a_loss_is_counted_once_by_its_reason_and_its_log(tmp_path):
    options = {"slab_bytes": 15_000, "value": bytes(1000)}
    write(tmp_path / "pruned", 200, **options)
    write(tmp_path / "replaced", 7)
    write(tmp_path / "deleted", 9)
    write(tmp_path / "kept", 1)
    begin = Query(tmp_path).offset
    slabs = sorted((tmp_path / "pruned").glob("*.slab"))
    for slab in slabs[:3]:
        slab.unlink()
    left = aolog.verify(tmp_path / "pruned").records
    for name in ("replaced", "deleted"):
        shutil.rmtree(tmp_path / name)
    write(tmp_path / "replaced", 3)
    query = Query(tmp_path, checkpoint=begin, failOnDataLoss="false")
    rows = query.all()
    assert rows == [left + 3 + 1]
    lost = report(query)["lost"]
    assert lost["reasons"] == {"missing": [0, 1], "foreign": [0, 1], "pruned": [200 - left, 0]}
    assert lost["logs"]["pruned"] == {"pruned": [200 - left, 0]}
    assert lost["logs"]["deleted"] == {"missing": [0, 1]}, "a restart has not seen its end"


def test_the_records_of_a_log_that_was_deleted_beside_the_query_are_counted(tmp_path):
    write(tmp_path / "a", 30)
    write(tmp_path / "b", 30)
    query = Query(tmp_path, maxRecordsPerTrigger=20, failOnDataLoss="false")
    query.batch()
    shutil.rmtree(tmp_path / "a")
    query.all()
    read = sum(name == "a" for _, name in query.rows)
    assert report(query)["lost"]["reasons"] == {"missing": [30 - read, 0]}


def test_the_report_names_the_logs_that_are_furthest_behind(tmp_path, monkeypatch):
    monkeypatch.setattr(backlog, "LOGS_MAX", 2)
    for i in range(1, 5):
        write(tmp_path / f"{i}", 10 * i)
    behind = report(Query(tmp_path))["behind"]
    assert behind["records"] == 100
    assert list(behind["logs"]) == ["4", "3"]


# --- as users read it -----------------------------------------------------------------------


PAGE = DOCS / "how-to/spark-monitoring.md"
RUN = "7b8f53a0-0000-4000-8000-000000000001"


def progress(query, rows, number=0):
    """As Spark makes it; only its form is made up here."""
    source = {"description": "aolog", "startOffset": "{}", "endOffset": query.offset,
              "latestOffset": json.dumps(report(query)), "numInputRows": rows,
              "inputRowsPerSecond": 0.0, "processedRowsPerSecond": 0.0}  # fmt: skip  # a table
    return StreamingQueryProgress.fromJson(
        {"id": "7b8f53a0-0000-4000-8000-000000000000", "runId": RUN, "name": "copy",
         "timestamp": "", "batchId": number, "batchDuration": 1, "durationMs": {}, "eventTime": {},
         "stateOperators": [], "sources": [source], "numInputRows": rows,
         "inputRowsPerSecond": 0.0, "processedRowsPerSecond": 0.0,
         "sink": {"description": "", "numOutputRows": -1}}
    )  # fmt: skip  # a table


def test_lag_sums_up_what_was_lost_and_what_is_behind(tmp_path):
    write(tmp_path / "log", 200, slab_bytes=15_000, value=bytes(1000))
    begin = Query(tmp_path).offset
    min((tmp_path / "log").glob("*.slab")).unlink()
    left = aolog.verify(tmp_path / "log").records
    query = Query(tmp_path, checkpoint=begin, failOnDataLoss="false", maxRecordsPerTrigger=50)
    shown = progress(query, len(query.batch()))
    found = aolog.spark.lag(shown)
    assert found.total.records == found.logs["log"].records == left - len(query.rows)
    assert found.total.seconds == found.logs["log"].seconds > 0
    assert found.lost == found.lost_by_log["log"] == {"pruned": 200 - left}
    assert found.uncounted == found.uncounted_by_log == {}
    assert aolog.spark.lag(shown.json) == found
    shutil.rmtree(tmp_path / "log")
    write(tmp_path / "another", 1)
    query = Query(tmp_path, checkpoint=query.offset, failOnDataLoss="false")
    query.batch()
    found = aolog.spark.lag(progress(query, 1))
    assert found.uncounted == found.uncounted_by_log["log"] == {"missing": 1}
    assert found.lost == found.lost_by_log == {}
    with pytest.raises(UsageError, match="no progress of a query that reads logs"):
        aolog.spark.lag({"sources": [{"latestOffset": "null", "numInputRows": 0}]})


def test_the_listener_has_metrics_until_the_query_ends(tmp_path):
    write(tmp_path / "log", 200, slab_bytes=15_000, value=bytes(1000))
    begin = Query(tmp_path).offset
    min((tmp_path / "log").glob("*.slab")).unlink()
    left = aolog.verify(tmp_path / "log").records
    registry = CollectorRegistry()
    listener = aolog.spark.listener(registry)
    query = Query(tmp_path, checkpoint=begin, failOnDataLoss="false", maxRecordsPerTrigger=50)

    def value(name, **labels):
        return registry.get_sample_value(f"aolog_spark_{name}", {"query": "copy"} | labels)

    for number in range(2):
        rows = query.batch()
        shown = progress(query, len(rows), number)
        listener.onQueryProgress(QueryProgressEvent(shown))
    assert value("records_lost_total", reason="pruned") == 200 - left
    assert value("lag_records") == value("log_lag_records", log="log") == left - len(query.rows)
    assert value("lag_bytes") > 0
    assert value("rows_total") == len(query.rows)
    names = set(re.findall(r"`(aolog_spark_\w+)`", PAGE.read_text("utf-8")))
    assert names == {sample.name for metric in registry.collect() for sample in metric.samples} | {
        "aolog_spark_losses_uncounted_total"
    }
    other = StreamingQueryProgress.fromJson(json.loads(shown.json) | {"runId": str(uuid.uuid4())})
    listener.onQueryProgress(QueryProgressEvent(other))  # Prometheus refuses a label twice
    assert value("rows_total") == other.numInputRows
    listener.onQueryProgress(QueryProgressEvent(shown))
    listener.onQueryTerminated(QueryTerminatedEvent("id", RUN, None, None))
    assert value("lag_records") is None


def test_spark_shows_the_lag_of_a_query(tmp_path, spark):
    write(tmp_path / "log", 30)
    stream = spark.readStream.format("aolog").option("maxRecordsPerTrigger", 20).load(str(tmp_path))
    sink = stream.writeStream.format("noop").queryName("shown")
    registry = CollectorRegistry()
    listener = aolog.spark.listener(registry)
    spark.streams.addListener(listener)
    query = sink.option("checkpointLocation", str(tmp_path / "state")).start()

    def value(name):
        return registry.get_sample_value(f"aolog_spark_{name}", {"query": "shown"})

    try:
        query.processAllAvailable()
        first, second = (p for p in query.recentProgress if p.numInputRows)
        assert aolog.spark.lag(first).total.records == 10
        assert aolog.spark.lag(second).total == aolog.Lag(0, 0, 0.0)
        until_s = time.monotonic() + 60
        while value("rows_total") != 30 and time.monotonic() < until_s:
            time.sleep(0.05)
        assert value("lag_records") == 0
    finally:
        query.stop()
        spark.streams.removeListener(listener)


def test_what_tasks_skip_is_counted_on_the_driver_and_in_the_progress(
    tmp_path, spark, load, caplog
):
    write_damaged(tmp_path / "log")
    where, skip = str(tmp_path / "log"), {"onCorruption": "skip"}

    def lost():
        return [found for found in aolog.spark.losses(spark) if found.log in {where, "log"}]

    assert load(where, **skip).count() == 20
    assert lost() == [(None, where, "corrupt", 10, 0)]
    assert "a task skipped 10 records (corrupt)" in caplog.text, "in the driver's log"
    assert aolog.spark.scan(spark, where, **skip).count() == 20
    assert lost() == [(None, where, "corrupt", 20, 0)]
    stream = spark.readStream.format("aolog").options(**skip).load(str(tmp_path))
    sink = stream.writeStream.format("noop")
    query = sink.option("checkpointLocation", str(tmp_path / "state")).start()
    try:
        query.processAllAvailable()
        found = aolog.spark.lag(query.lastProgress)
    finally:
        query.stop()
    assert (str(query.id), "log", "corrupt", 10, 0) in lost()
    assert found.lost == found.lost_by_log["log"] == {"corrupt": 10}


def test_what_plans_find_lost_is_counted_like_what_tasks_skip(tmp_path, spark, load, caplog):
    root = tmp_path / "logs"
    write(root / "log", 100, slab_bytes=15_000, value=bytes(1000))
    begin = {"startingOffsets": json.dumps({"log": 0}), "failOnDataLoss": "false"}

    def streamed():
        stream = spark.readStream.format("aolog").options(**begin).load(str(root))
        sink = stream.writeStream.format("noop").trigger(availableNow=True)
        query = sink.option("checkpointLocation", str(tmp_path / "state")).start()
        query.awaitTermination()
        return query

    streamed()
    write(root / "log", 100, slab_bytes=15_000, value=bytes(1000))
    slabs = sorted((root / "log").glob("*.slab"))
    for slab in slabs[:-1]:
        slab.unlink()
    left = aolog.verify(root / "log").records
    query = streamed()
    lag = aolog.spark.lag(query.lastProgress)
    assert lag.lost == lag.lost_by_log["log"] == {"pruned": 100 - left}
    assert load(root, **begin).count() == left
    found = [lost[2:] for lost in aolog.spark.losses(spark) if lost.query == str(query.id)]
    assert found == [("pruned", 100 - left, 0)]
    where = str(root / "log")
    found = [lost[2:] for lost in aolog.spark.losses(spark) if lost.log == where]
    assert found == [("pruned", 200 - left, 0)]
    told = [r.getMessage() for r in caplog.records if "the plan skipped" in r.getMessage()]
    assert told == [
        f"query {query.id}: log 'log': the plan skipped {100 - left} records (pruned)",
        f"{where}: the plan skipped {200 - left} records (pruned)",
    ]
