"""store: a scan of archives in an object store, beside a scan of the same logs here, and Parquet here and there.

The store is on loopback, behind a relay that adds nothing, or 30 ms to each request. Two cores do everything: the
store's work is in the times. Spark reads Parquet from the same store through Hadoop's S3 client, which keeps what it
read for some seconds: each reading waits for that to end, and a reading that was not from the store is refused.
"""

from __future__ import annotations

import os
import time
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import aolog.spark
from bench import sparks, stores
from bench.cases.spark import reader
from bench.measure import Contender, Group, Skipped, Target, Wrong
from bench.panel import Panel
from bench.sparks import Content

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import DataFrame, SparkSession

    from bench.cases.plan import Plan

__all__ = ["FAR", "HERE", "NEAR", "PARQUET", "PARQUET_FAR", "PARQUET_NEAR", "groups"]

HERE, NEAR, FAR = "scan, local", "scan, store at 0 ms", "scan, store at 30 ms"
PARQUET, PARQUET_NEAR, PARQUET_FAR = (
    "Parquet, local",
    "Parquet, store at 0 ms",
    "Parquet, store at 30 ms",
)
_FAR_S = 0.030
# Hadoop's client keeps a block for a second after its last use, and looks for old ones every five seconds.
_KEPT_S = 6.5
TARGETS = (
    Target("time from a store at 0 ms, of local", NEAR, (HERE,), 1.2),
    Target("time from a store at 30 ms, of local", FAR, (HERE,), 2.0),
    Target("time from a store at 0 ms, of Parquet there", NEAR, (PARQUET_NEAR,), 1.0),
    Target("time from a store at 30 ms, of Parquet there", FAR, (PARQUET_FAR,), 1.0),
)


def groups(plan: Plan) -> Iterator[Group | Panel]:
    reason = sparks.missing() or stores.missing()
    if reason is not None:
        yield Panel("store", "Spark and a store", "not at all", [], [Skipped("a store", reason)])
        return
    size = plan.size
    length, records = size.spark_records[0]
    with stores.relayed() as relay:
        os.environ.update(stores.environment(relay))
        with (
            plan.fixture() as directory,
            plan.fixture() as place,
            sparks.session(directory, size.spark_settings | stores.spark_settings(relay)) as spark,
        ):
            content = Content.make(spark, place, records, length)
            yield _reading(spark, content, relay, length, size.spark_rounds)


def _archive(content: Content) -> str:
    """The URL of a folder with the logs' archives."""
    from aolog.maintenance.archive.archiver import Archiver

    url = f"s3://{stores.BUCKET}/logs"
    for log in sorted(Path(content.logs).iterdir()):
        with Archiver(log, f"{url}/{log.name}") as archiver:
            archiver.begin()
            archiver.round()
    return url


def _parquet(content: Content) -> str:
    """The URL of a folder with Spark's files."""
    from aolog.storage.objects.client import Client
    from aolog.storage.objects.requests import Put

    client = Client(f"s3://{stores.BUCKET}/parquet")
    for file in Path(content.copy("parquet")).glob("*.parquet"):
        client.ask(Put(file.name, file.read_bytes(), "", ""))
    return f"s3a://{stores.BUCKET}/parquet"


def _reading(
    spark: SparkSession, content: Content, relay: stores.Relay, length: int, rounds: int
) -> Group:
    url = _archive(content)
    scan = partial(aolog.spark.scan, spark, columns="value")
    parquet = spark.read.format("parquet").schema("value binary").load
    here, there = content.copy("parquet"), _parquet(content)

    def contender(
        name: str, frame: Callable[[], DataFrame], delay_s: float, note: str = ""
    ) -> Contender:
        checksum = "none" if name.startswith("Parquet") else "xxh3 a batch"
        made = reader(name, content, frame, checksum, note)
        is_there = name in {NEAR, FAR, PARQUET_NEAR, PARQUET_FAR}

        @contextmanager
        def session(place: str) -> Iterator[Callable[[], int]]:
            if name in {PARQUET_NEAR, PARQUET_FAR}:
                time.sleep(_KEPT_S)
            before, relay.delay_s = relay.answered_bytes, delay_s
            with made.session(place) as work:
                yield work
            relay.delay_s = 0.0
            given = relay.answered_bytes - before
            if is_there and given < content.bytes:
                raise Wrong(f"{name}: the store gave {given} bytes of {content.bytes}")

        return Contender(
            name, made.promise, made.records, session, made.proof, made.expected, note,
            cpu_s=made.cpu_s,
        )  # fmt: skip  # one value

    return Group(
        "store",
        f"Spark scans archives in a store, {content.records:,} values of {length} bytes",
        "from the call to the sum of the values' lengths",
        length,
        [
            contender(HERE, lambda: scan(content.logs), 0.0),
            contender(NEAR, lambda: scan(url), 0.0, "gofakes3 on the same two cores"),
            contender(FAR, lambda: scan(url), _FAR_S, "the same, 30 ms more for each request"),
            contender(PARQUET, lambda: parquet(here), 0.0),
            contender(PARQUET_NEAR, lambda: parquet(there), 0.0, "through hadoop-aws"),
            contender(PARQUET_FAR, lambda: parquet(there), _FAR_S, "the same"),
        ],
        (HERE, PARQUET),
        targets=TARGETS,
        rounds=rounds,
    )
