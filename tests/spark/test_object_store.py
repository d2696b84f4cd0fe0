"""Spark reads archives and copies of logs below a URL, in tasks, as it reads local logs."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import urlsplit

import pytest

import aolog
import aolog.spark
from tests.aolog.maintenance.archive.stores import BUCKET, make_bucket, moto

pytest.importorskip("obstore")

ROOT_URL = f"s3a://{BUCKET}/logs"


@pytest.fixture(scope="module")
def roots(spark, tmp_path_factory) -> Path:
    """A root of two logs; below ROOT_URL are the archive of one and a copy of the other."""
    from aolog.maintenance.archive.archiver import Archiver
    from aolog.storage.objects.client import Client, Put

    root = tmp_path_factory.mktemp("logs")
    endpoint = os.environ["AWS_ENDPOINT_URL"]
    for name in "archived", "copied":
        with aolog.Writer(root / name, slab_bytes=32 << 10) as log:
            for number in range(600):
                log.append(b"%d " % number + bytes(100), key=name.encode())
                if number % 10 == 0:
                    log.flush()
    with moto(urlsplit(endpoint).port):
        make_bucket(endpoint)
        with Archiver(root / "archived", f"{ROOT_URL}/archived") as archiver:
            archiver.begin()
            archiver.round()
        client = Client(f"s3://{BUCKET}/logs/copied")
        for slab in (root / "copied").glob("*.slab"):
            client.send(Put(slab.name, slab.read_bytes(), "", ""))
        yield root


def rows(frame) -> list[tuple]:
    return sorted(map(tuple, frame.select("log", "offset", "key", "value").collect()))


def test_a_load_of_a_url_gives_the_rows_of_the_local_logs(load, roots):
    wanted = rows(load(roots))
    assert len(wanted) == 1200
    assert rows(load(ROOT_URL, minPartitions=5)) == wanted
    one = [(log, *rest) for log, *rest in wanted if log == "archived"]
    assert rows(load(f"{ROOT_URL}/archived")) == one


def test_scan_reads_a_url_and_pushes_filters_down(spark, roots):
    there = aolog.spark.scan(spark, ROOT_URL, where="log = 'archived' and offset > 40000")
    here = aolog.spark.scan(spark, str(roots), where="log = 'archived' and offset > 40000")
    assert rows(there) == rows(here) != []


def test_a_stream_reads_a_url(spark, roots, tmp_path):
    query = (
        spark.readStream.format("aolog").load(f"{ROOT_URL}/archived")
        .writeStream.format("memory").queryName("archived").trigger(availableNow=True)
        .option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    )  # fmt: skip  # one chain
    query.awaitTermination()
    assert spark.table("archived").count() == 600


def test_a_log_and_its_archive_are_one_table(spark, load, roots):
    wanted = rows(load(roots / "archived"))
    together = [str(roots / "archived"), f"{ROOT_URL}/archived"]
    moved = roots.parent / "moved"
    first = min((roots / "archived").glob("*.slab"))
    first.rename(moved)
    try:
        assert len(wanted) == 600
        assert rows(load(together)) == rows(aolog.spark.scan(spark, *together)) == wanted
    finally:
        moved.rename(first)


def test_a_batch_is_written_below_a_url_and_appears_at_once(spark, load, roots):
    url = f"{ROOT_URL[: -len('/logs')]}/written"
    frame = spark.range(0, 300, 1, 3).selectExpr("cast(id AS string) AS value", "'k' AS key")
    frame = frame.selectExpr("cast(value AS binary) AS value", "cast(key AS binary) AS key")
    for version in (1, 1, 2):  # a version is written once
        frame.write.format("aolog").mode("append").options(txnAppId="job", txnVersion=version).save(
            url
        )
    found = load(url, columns="offset,value").collect()
    assert sorted(int(row["value"]) for row in found) == sorted([*range(300), *range(300)])
    assert len({row["offset"] for row in found}) == 600
    assert aolog.verify(url).ok
    with aolog.Reader(url, strict=True) as reader:
        assert len(list(reader)) == 600
        reader.seek(ordinal=450)
        assert reader.read() is not None


def test_a_stream_is_written_below_a_url_once(spark, roots, tmp_path):
    url = f"{ROOT_URL[: -len('/logs')]}/streamed"

    def run(checkpoint: str) -> None:
        query = (
            spark.readStream.format("aolog").load(str(roots / "archived"))
            .selectExpr("key", "value").writeStream.format("aolog").trigger(availableNow=True)
            .option("checkpointLocation", str(tmp_path / checkpoint)).start(url)
        )  # fmt: skip  # one chain
        query.awaitTermination()

    run("one")
    (
        tmp_path / "one" / "commits" / "0"
    ).unlink()  # as if it was killed before Spark noted the batch
    for crc in (tmp_path / "one" / "commits").glob(".*"):
        crc.unlink()
    run("one")
    with aolog.Reader(url, strict=True) as reader:
        assert len(list(reader)) == 600


def test_several_logs_are_not_written_below_a_url(spark, roots):
    from pyspark.errors import PySparkException

    frame = spark.createDataFrame([(b"x", "a")], "value binary, log string")
    with pytest.raises(PySparkException, match="below a URL is one log"):
        frame.write.format("aolog").mode("append").save(f"{ROOT_URL}/new")
    with pytest.raises(PySparkException, match="the archive of a local log"):
        frame.drop("log").write.format("aolog").mode("append").save(f"{ROOT_URL}/archived")


def test_offsets_of_a_stream_stay_valid_when_the_archive_is_compacted(spark, load, roots, tmp_path):
    """The tasks' processes have seen the objects that are deleted."""
    from aolog.maintenance.archive.archiver import Archiver
    from aolog.maintenance.archive.compaction import compact

    log, url = tmp_path / "log", f"s3://{BUCKET}/compacted/log"

    def grow(first: int) -> None:
        with aolog.Writer(log, slab_bytes=16 << 10) as writer:
            for number in range(first, first + 300):
                writer.append(b"%d" % number + bytes(100))
                writer.flush()
        with Archiver(log, url) as archiver:
            archiver.begin()
            archiver.round()

    def read_on() -> list[bytes]:
        query = (
            spark.readStream.format("aolog").load(url)
            .writeStream.format("parquet").trigger(availableNow=True)
            .option("checkpointLocation", str(tmp_path / "checkpoint")).start(str(tmp_path / "out"))
        )  # fmt: skip  # one chain
        query.awaitTermination()
        got = spark.read.parquet(str(tmp_path / "out")).select("value").collect()
        return sorted(bytes(row.value) for row in got)

    def wanted() -> list[bytes]:
        return sorted(record.value for record in aolog.Reader(str(log)))

    grow(0)
    assert read_on() == wanted()
    before = rows(load(url))
    assert compact(url).packs == 1
    assert compact(url, grace_seconds=-1.0).deleted > 1
    assert rows(load(url)) == before
    grow(300)
    assert read_on() == wanted()
    assert len(wanted()) == 600
