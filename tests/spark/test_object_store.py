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


def test_a_sink_refuses_a_url(spark, roots):
    from pyspark.errors import PySparkException

    frame = spark.createDataFrame([(b"x",)], "value binary")
    with pytest.raises(PySparkException, match="not a file system for logs"):
        frame.write.format("aolog").mode("append").save(f"{ROOT_URL}/new")
