"""Moves records through Spark: from logs, through functions of DataFrames, to Parquet, logs or Kafka.

    without a checkpoint               one batch of all records that exist now
    with a checkpoint                  a stream's batches of all records since the last run; then it ends
    with a checkpoint and `stream`     the same, until it is stopped

After a kill, a run with a checkpoint continues after its last complete batch. Parquet and logs then
have each row once, Kafka has it at least once.
"""

from __future__ import annotations

import time
import warnings
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

from aolog.errors import UsageError
from aolog.spark.kafka_sink import SENT, KafkaTarget, check_columns, check_topic, sender
from aolog.spark.monitoring import lag
from aolog.spark.options import read_options
from aolog.spark.options_parsing import directory, place
from aolog.spark.skipped import losses

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.streaming.listener import StreamingQueryProgress
    from pyspark.sql.streaming.query import StreamingQuery

_KINDS = ("parquet", "kafka", "aolog")
_LOOK_S = 0.2  # how often a query is asked for progress, and a stop is noticed
_IN, _OUT = "aolog_in", "aolog_out"


class Transfer(NamedTuple):
    """The task of a run. kind, place: of the destination. transforms: applied in this order. options: of
    the reader. write_options: of the writer, or librdkafka's."""

    root: str
    kind: str
    place: str
    transforms: tuple[Callable[[DataFrame], DataFrame], ...] = ()
    options: dict[str, str] = {}  # noqa: RUF012 -- a default that is never changed
    write_options: dict[str, str] = {}  # noqa: RUF012 -- the same
    bootstrap: str | None = None
    checkpoint: str | None = None
    stream: bool = False


class Moved(NamedTuple):
    """The counts of a batch, or of a whole run. records_in: read; None if a transform did not read them
    in the same job. records_out: written. batch: its number in the checkpoint; None without one. lost:
    records that the options of the reader skip, by reason. uncounted: skipped gaps of an unknown number of
    records."""

    batch: int | None
    records_in: int | None
    records_out: int
    seconds: float
    lost: Counter[str] = Counter()  # noqa: RUF012 -- a default that is never changed
    uncounted: int = 0


def parse_target(text: str) -> tuple[str, str]:
    """`parquet:PATH`, `kafka:TOPIC` or `aolog:ROOT`. Raises UsageError."""
    kind, _, place = text.partition(":")
    if kind in _KINDS and not place:
        what = {"kafka": "a topic", "parquet": "a path", "aolog": "a root"}[kind]
        raise UsageError(f"--to {text} does not name {what}", hint=f"write {kind}:NAME")
    if kind not in _KINDS:
        raise UsageError(
            f"--to {text}: is not a destination",
            hint="there are parquet:PATH, kafka:TOPIC and aolog:ROOT",
        )
    return kind, place


def checked(wanted: Transfer) -> Transfer:
    """The same with absolute paths. Needs no Spark. Raises UsageError for values that exclude each
    other, and for invalid options of the reader."""
    if wanted.stream and wanted.checkpoint is None:
        raise UsageError(
            "--stream: needs --checkpoint DIR",
            hint="the next run continues from its progress there",
        )
    if wanted.kind == "kafka" and not wanted.bootstrap:
        raise UsageError("--to kafka: needs --bootstrap-servers HOST:PORT")
    if wanted.kind != "kafka" and wanted.bootstrap:
        raise UsageError(f"--bootstrap-servers: applies to --to kafka, not to {wanted.kind}")
    root = place(wanted.root)
    if wanted.kind == "aolog":
        into = directory(wanted.place)
        if f"{root}/".startswith(f"{into}/") or f"{into}/".startswith(f"{root}/"):
            raise UsageError(
                f"--to aolog:{into}: overlaps with --from {root}", hint="name another directory"
            )
        wanted = wanted._replace(place=into)
    options = dict(wanted.options)
    named = {name.lower() for name in options}
    if wanted.kind != "parquet" and not named & {"includeheaders", "columns"}:
        options["includeHeaders"] = "true"  # a copied record keeps its headers
    if wanted.kind == "aolog" and not wanted.transforms and "includegaps" not in named:
        options["includeGaps"] = "true"  # a transform could make records of their rows
    read_options(options | {"path": root}, stream=wanted.checkpoint is not None)
    return wanted._replace(root=root, options=options)


def run_transfer(
    spark: SparkSession,
    wanted: Transfer,
    *,
    tell: Callable[[Moved], None] = lambda _: None,
    stopped: Callable[[], bool] = lambda: False,
) -> Moved:
    """Runs the transfer. Returns the sums. tell: called with each complete batch of a stream. stopped:
    called often; once it returns true, the stream ends after its last complete batch. The session has
    the source registered. Raises UsageError before anything is read, Spark's errors, JobFailed."""
    wanted = checked(wanted)
    target = None
    if wanted.kind == "kafka":
        assert wanted.bootstrap is not None
        target = KafkaTarget(wanted.bootstrap, wanted.place, wanted.write_options, wanted.root)
        check_topic(target)
    begun_s = time.monotonic()
    if wanted.checkpoint is None:
        before = _Lost.of_batches(spark)
        records_in, records_out = _run_batch(spark, wanted, target)
        lost = _Lost.of_batches(spark).since(before)
        return Moved(None, records_in, records_out, _since(begun_s), *lost)
    total = Moved(None, 0, 0, 0.0)

    def note(moved: Moved) -> None:
        nonlocal total
        total = Moved(
            moved.batch,
            (total.records_in or 0) + (moved.records_in or 0),
            total.records_out + moved.records_out,
            0.0,
            total.lost + moved.lost,
            total.uncounted + moved.uncounted,
        )
        tell(moved)

    _run_stream(spark, wanted, target, note, stopped)
    return total._replace(seconds=_since(begun_s))


class _Lost(NamedTuple):
    """As in Moved."""

    records: Counter[str]
    uncounted: int

    @classmethod
    def of_batches(cls, spark: SparkSession) -> _Lost:
        """What batches of this application skipped."""
        records, uncounted = Counter[str](), 0
        for each in losses(spark):
            if each.query is None:
                records[each.reason] += each.records
                uncounted += each.uncounted
        return cls(records, uncounted)

    def since(self, before: _Lost) -> _Lost:
        """The difference, without reasons that did not change."""
        return _Lost(self.records - before.records, max(0, self.uncounted - before.uncounted))


def _since(begun_s: float) -> float:
    return round(time.monotonic() - begun_s, 3)


def _transformed(frame: DataFrame, transforms: Sequence[Callable[[Any], Any]]) -> DataFrame:
    from pyspark.sql import DataFrame

    for transform in transforms:
        name = getattr(transform, "__name__", "it")
        made = transform(frame)
        if not isinstance(made, DataFrame):
            raise UsageError(
                f"--transform {name}: returned {type(made).__name__}, and no DataFrame"
            )
        frame = made
    return frame


# --- once -----------------------------------------------------------------------------------


def _run_batch(
    spark: SparkSession, wanted: Transfer, target: KafkaTarget | None
) -> tuple[int | None, int]:
    from pyspark.sql import Observation

    from aolog.spark.query_filters import plans

    read, written = Observation(_IN), Observation(_OUT)
    source = spark.read.format("aolog").options(**wanted.options).load(wanted.root)
    frame = _transformed(source.observe(read, _records(source)), wanted.transforms)
    plan = plans(frame).optimizedPlan().toString()
    reads = _IN in plan  # otherwise nothing is observed, and `get` would block
    if target is not None:
        sent = _send(frame, target)
    else:
        made = frame.observe(written, _records(frame))
        made.write.format(wanted.kind).options(**wanted.write_options).mode(
            "append" if wanted.kind == "aolog" else "errorifexists"
        ).save(wanted.place)
        sent = int(written.get["records"])
    return int(read.get["records"]) if reads else None, sent


def _records(frame: DataFrame) -> Column:
    """Counts the rows of a frame that are records."""
    from pyspark.sql import functions as f

    record = f.lit(1)
    if "gap" in frame.columns:
        record = f.when(f.col("gap").isNull(), record)
    return f.count(record).alias("records")


def _send(frame: DataFrame, target: KafkaTarget) -> int:
    check_columns(frame.schema)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # of PySpark, about pandas 3
        sent = frame.mapInArrow(sender(target), SENT)
    return sum(int(row.records) for row in sent.collect())


# --- in batches -----------------------------------------------------------------------------


def _run_stream(
    spark: SparkSession,
    wanted: Transfer,
    target: KafkaTarget | None,
    note: Callable[[Moved], None],
    stopped: Callable[[], bool],
) -> None:
    assert wanted.checkpoint is not None
    source = spark.readStream.format("aolog").options(**wanted.options).load(wanted.root)
    if "gap" in source.columns:
        source = source.observe(_IN, _records(source))  # Spark counts rows of gaps too
    frame = _transformed(source, wanted.transforms)
    sent: dict[int, int] = {}
    writer: Any
    if target is not None:
        check_columns(frame.schema)

        def send(batch: DataFrame, number: int) -> None:
            sent[number] = _send(batch, target)

        writer = frame.writeStream.foreachBatch(send)
    else:
        made = frame.observe(_OUT, _records(frame))
        writer = made.writeStream.format(wanted.kind).options(**wanted.write_options)
        writer = writer.option("path", wanted.place)
    if not wanted.stream:
        writer = writer.trigger(availableNow=True)
    query = writer.option("checkpointLocation", directory(wanted.checkpoint)).start()
    try:
        _follow(query, sent, note, stopped)
    finally:
        query.stop()


def _lost_of(progress: StreamingQueryProgress) -> _Lost | None:
    """Since the query was started. None in the first batch after a restart, which has no report."""
    try:
        found = lag(progress)
    except UsageError:
        return None
    return _Lost(Counter(found.lost), sum(found.uncounted.values()))


def _follow(
    query: StreamingQuery,
    sent: dict[int, int],
    note: Callable[[Moved], None],
    stopped: Callable[[], bool],
) -> None:
    """Waits until the query ends or `stopped` is true. Raises the query's error."""
    noted, before = -1, _Lost(Counter(), 0)
    while True:
        ended = stopped() or query.awaitTermination(_LOOK_S)  # type: ignore[arg-type]  # takes fractions
        for progress in query.recentProgress:
            number = progress.batchId
            out = progress.observedMetrics.get(_OUT)
            if number <= noted or "addBatch" not in progress.durationMs:
                continue  # noted already, or a trigger without records
            noted = number
            records = sent.pop(number, 0) if out is None else int(out["records"])
            seconds = progress.batchDuration / 1000
            lost = _lost_of(progress) or before
            read = progress.observedMetrics.get(_IN)
            rows = progress.numInputRows if read is None else int(read["records"])
            note(Moved(number, rows, records, round(seconds, 3), *lost.since(before)))
            before = lost
        if ended:
            return
