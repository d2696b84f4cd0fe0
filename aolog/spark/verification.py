"""`aolog.verify` as a Spark job, for logs that are too large or too many for one machine.

Each task reads and hashes its ranges as a reader does, and returns a few rows of counts and gaps. Gaps
and counts are those of `aolog.verify`. Seals, header copies and cursors are not checked here.
"""

from __future__ import annotations

import json
from collections import defaultdict
from typing import TYPE_CHECKING, Any, NamedTuple

from aolog.errors import UsageError
from aolog.format.slab import NO_TIMESTAMP
from aolog.record import Gap
from aolog.spark.java import use_this_python
from aolog.spark.scanning import refuse_connect
from aolog.spark.shipping import Shipped
from aolog.storage.storage import checked_path

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.datasource import InputPartition

    from aolog.spark.planning import Piece

_HOUR_US = 3_600_000_000
# Hours stay microseconds until the JVM makes timestamps of them: Python's datetime ends with the year
# 9999.
_FOUND = "log string, hour_us bigint, records bigint, frames bigint, bytes bigint, gaps string"


class LogVerified(NamedTuple):
    """One log, with the fields of `aolog.verify`'s report. end: the address up to which it was read."""

    records: int
    frames: int
    slabs: int
    gaps: list[Gap]
    end: int


class Verified(NamedTuple):
    """ok: no log has a gap. records, frames: of all logs. logs: by name. statistics: a DataFrame of log,
    hour (of the records' timestamps, null if it has none), records, frames, bytes. Spark keeps it until
    you call `unpersist`; without that it would read the logs again."""

    ok: bool
    records: int
    frames: int
    logs: dict[str, LogVerified]
    statistics: DataFrame


def verify(
    spark: SparkSession,
    root: str | os.PathLike[str],
    *,
    max_partition_bytes: int | None = None,
    min_partitions: int | None = None,
) -> Verified:
    """Reads and checks all logs at the path or below it, up to their ends now. The path must be the same
    directory on every executor. Raises UsageError, also for a session of Spark Connect, and
    StorageError on the driver; Spark's errors for failures in tasks."""
    refuse_connect(spark, "verify where the logs are: a session with a master, or `aolog verify`")
    use_this_python(spark)
    for name, given in (
        ("max_partition_bytes", max_partition_bytes),
        ("min_partitions", min_partitions),
    ):
        if given is not None and given < 1:
            raise UsageError(f"{name}={given!r}", hint="use a positive number, or None")
    from aolog.spark.listing import list_logs
    from aolog.spark.options import PARTITION_BYTES, Options, read_paths
    from aolog.spark.planning import partitions, spans
    from aolog.spark.reading import partition_of

    options = Options(paths=read_paths({"path": checked_path(root)}))
    logs = list_logs(options)
    cut = partitions(
        spans(options, logs),
        max_partition_bytes or PARTITION_BYTES,
        min_partitions or spark.sparkContext.defaultParallelism,
    )
    context = spark.sparkContext
    shares = context.parallelize(map(partition_of, cut), max(1, len(cut)))
    found = shares.flatMap(Shipped(_check_share))
    table = spark.createDataFrame(found, _FOUND).cache()
    statistics = (
        table.where("gaps is null")
        .selectExpr("log", "timestamp_micros(hour_us) AS hour", "records", "frames", "bytes")
        .groupBy("log", "hour")
        .sum("records", "frames", "bytes")
        .toDF("log", "hour", "records", "frames", "bytes")
        .orderBy("log", "hour")
        .cache()
    )
    rows = statistics.groupBy("log").agg({"records": "sum", "frames": "sum"}).collect()
    counts = {row["log"]: (row["sum(records)"], row["sum(frames)"]) for row in rows}
    gaps: dict[str, list[Gap]] = defaultdict(list)
    for row in table.where("gaps is not null").select("log", "gaps").collect():
        gaps[row["log"]] += [Gap(*gap) for gap in json.loads(row["gaps"])]
    verified = {
        log.name: LogVerified(
            *counts.get(log.name, (0, 0)),
            len(log.bases),
            sorted(gaps[log.name], key=lambda gap: gap.begin),
            log.end,
        )
        for log in logs
    }
    table.unpersist()
    return Verified(
        ok=not any(log.gaps for log in verified.values()),
        records=sum(log.records for log in verified.values()),
        frames=sum(log.frames for log in verified.values()),
        logs=verified,
        statistics=statistics,
    )


def _check_share(share: InputPartition) -> Iterator[tuple[Any, ...]]:
    from aolog.spark.reading import pieces_in

    for piece in pieces_in(share):
        yield from check(piece)


def check(piece: Piece) -> Iterator[tuple[Any, ...]]:
    """Rows of _FOUND: one for each hour, and one with the gaps if there are any."""
    import numpy as np

    from aolog.log.directory import Log
    from aolog.read.batch import RecordFrame
    from aolog.read.ranges import read_range
    from aolog.storage.storage import Storage

    if piece.lost is not None:
        yield (piece.name, None, 0, 0, 0, json.dumps([piece.lost]))
        return
    hours: dict[int | None, list[int]] = defaultdict(lambda: [0, 0, 0])
    gaps = []
    with Log(piece.path, Storage()) as log:
        for found in read_range(log, piece.wanted):
            if not isinstance(found, RecordFrame):
                gaps.append(found)
                continue
            begins = [found.address]
            if found.addresses is not None:
                addresses = np.frombuffer(found.addresses, np.int64)
                begins = addresses[np.flatnonzero(np.diff(addresses, prepend=-2) != 1)].tolist()
            sizes = np.diff([*begins, found.end]).tolist()
            if found.columns.timestamps is None:
                hour = None if found.timestamp_us is None else found.timestamp_us // _HOUR_US
                hours[hour][0] += found.columns.records
                of_frames = [hour] * len(begins)
            else:
                each = np.frombuffer(found.columns.timestamps, np.int64) // _HOUR_US
                for hour, records in zip(*np.unique(each, return_counts=True), strict=True):
                    hours[int(hour)][0] += int(records)
                of_frames = [int(each[found.index_of(begin)]) for begin in begins]
            for hour, size in zip(of_frames, sizes, strict=True):
                hours[hour][1] += 1  # a frame counts in the hour of its first record
                hours[hour][2] += size
    for hour, sums in hours.items():
        hour_us = None if hour is None or hour * _HOUR_US < NO_TIMESTAMP else hour * _HOUR_US
        yield (piece.name, hour_us, *sums, None)
    if gaps:
        yield (piece.name, None, 0, 0, 0, json.dumps(gaps))
