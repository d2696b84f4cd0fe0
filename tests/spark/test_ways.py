"""What the page `Spark` says of threads, views, stateful queries and triggers, each tried here. Spark
Connect is in test_connect.py."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import pytest
from pyspark import InheritableThread
from pyspark.sql.streaming import StatefulProcessor

import aolog
import aolog.spark
from tests.spark.driving import write

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_ROCKS_DB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


def _stream(spark: SparkSession, root: Path) -> DataFrame:
    return spark.readStream.format("aolog").load(str(root / "in"))


def _run(frame: DataFrame, root: Path, **trigger: Any) -> None:
    """The stream into a root of logs, until it ends."""
    sink = frame.writeStream.format("aolog").option("checkpointLocation", str(root / "state"))
    query = sink.trigger(**(trigger or {"availableNow": True})).start(str(root / "out"))
    try:
        query.awaitTermination()
    finally:
        query.stop()


# --- threads --------------------------------------------------------------------------------


def _in_pool(spark: SparkSession, work: Callable[[], None]) -> None:
    with ThreadPoolExecutor(1, initializer=aolog.spark.register, initargs=(spark,)) as pool:
        pool.submit(work).result()


def _in_inheritable_thread(spark: SparkSession, work: Callable[[], None]) -> None:
    def target() -> None:
        aolog.spark.register(spark)
        work()

    thread = InheritableThread(target=target)
    thread.start()
    thread.join()


@pytest.mark.parametrize("run", [_in_pool, _in_inheritable_thread])
def test_a_thread_that_registers_the_session_writes_batches_and_streams(
    tmp_path: Path, spark: SparkSession, run: Callable[[SparkSession, Callable[[], None]], None]
) -> None:
    """Spark looks for a sink in Python only in the active session, which a new thread does not have."""
    write(tmp_path / "in" / "log")

    def copy() -> None:
        rows = spark.read.format("aolog").load(str(tmp_path / "in"))
        batch = rows.selectExpr("value", "'batch' AS log")
        batch.write.format("aolog").mode("append").save(str(tmp_path / "out"))
        _run(_stream(spark, tmp_path).selectExpr("value", "'stream' AS log"), tmp_path)

    run(spark, copy)
    for name in ("batch", "stream"):
        assert len(list(aolog.Reader(tmp_path / "out" / name))) == 10


def test_each_batch_of_a_stream_may_be_written_by_a_function(
    tmp_path: Path, spark: SparkSession
) -> None:
    addresses = write(tmp_path / "in" / "log")

    def save(batch: DataFrame, number: int) -> None:
        rows = batch.select("value", "log")
        rows.write.format("aolog").mode("append").option("txnAppId", "test").option(
            "txnVersion", number
        ).save(str(tmp_path / "out"))

    sink = _stream(spark, tmp_path).writeStream.foreachBatch(save)
    sink = sink.option("checkpointLocation", str(tmp_path / "state"))
    query = sink.trigger(processingTime="1 second").start()
    try:
        query.processAllAvailable()
    finally:
        query.stop()
    assert len(list(aolog.Reader(tmp_path / "out" / "log"))) == len(addresses)


# --- views ----------------------------------------------------------------------------------


def test_a_view_holds_what_the_log_had_when_it_was_made(
    tmp_path: Path, spark: SparkSession
) -> None:
    def count() -> int:
        return int(spark.table("growing").count())

    view = f"TEMPORARY VIEW growing USING aolog OPTIONS (path '{tmp_path}')"
    write(tmp_path / "log")
    spark.sql(f"CREATE {view}")
    write(tmp_path / "log")
    assert count() == 10
    spark.sql("REFRESH TABLE growing")
    assert count() == 10
    spark.sql(f"CREATE OR REPLACE {view}")
    assert count() == 20
    spark.sql("DROP VIEW growing")


# --- stateful queries, triggers -------------------------------------------------------------


@contextmanager
def _setting(spark: SparkSession, name: str, value: str) -> Iterator[None]:
    spark.conf.set(name, value)
    try:
        yield
    finally:
        spark.conf.unset(name)


@pytest.mark.slow
def test_transform_with_state_keeps_its_state_from_run_to_run(
    tmp_path: Path, spark: SparkSession
) -> None:
    class Counts(StatefulProcessor):
        """Rows of each log since the query's first batch."""

        def init(self, handle: Any) -> None:
            self._rows = handle.getValueState("rows", "rows bigint")

        def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Any:  # noqa: N802, N803 -- Spark's
            before = self._rows.get()[0] if self._rows.exists() else 0
            now = before + sum(map(len, rows))
            self._rows.update((now,))
            yield pd.DataFrame({"log": [key[0]], "value": [str(now)]})

        def close(self) -> None:
            pass

    with _setting(spark, "spark.sql.streaming.stateStore.providerClass", _ROCKS_DB):
        for _ in range(2):
            write(tmp_path / "in" / "log")
            counts = _stream(spark, tmp_path).groupBy("log")
            schema = "log string, value string"
            _run(counts.transformWithStateInPandas(Counts(), schema, "Append", "None"), tmp_path)
    assert [r.value for r in aolog.Reader(tmp_path / "out" / "log")] == [b"10", b"20"]


@pytest.mark.parametrize(
    ("trigger", "refusal"),
    [
        ({"realTime": "5 seconds"}, "STREAMING_REAL_TIME_MODE"),
        ({"continuous": "1 second"}, "does not support continuous processing"),
    ],
    ids=str,
)
def test_other_triggers_than_micro_batches_are_refused_by_spark(
    tmp_path: Path, spark: SparkSession, trigger: dict[str, str], refusal: str
) -> None:
    write(tmp_path / "in" / "log")
    with pytest.raises(Exception, match=refusal):
        _run(_stream(spark, tmp_path), tmp_path, **trigger)
