"""What a pipeline does: logs in, a function of DataFrames, files, logs or Kafka out.

    without a checkpoint        one batch: what is there now
    with one                    a stream's batches over what came since the last run, then the end
    with one, and `stream`      the same, until it is stopped

A run with a checkpoint that was killed goes on where its last complete batch ended. Parquet and logs
then have each row once; Kafka has it at least once.
"""

from __future__ import annotations

import time
import warnings
from typing import TYPE_CHECKING, Any, NamedTuple

from aolog.errors import UsageError
from aolog.spark.kafka_sink import SENT, KafkaTarget, check_columns, check_topic, sender
from aolog.spark.options import read_options
from aolog.spark.options_parsing import directory

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


_KINDS = ("parquet", "kafka", "aolog")
_LOOK_S = 0.2  # at a query, between signals
_IN, _OUT = "aolog_in", "aolog_out"


class Transfer(NamedTuple):
    """What is asked for. kind, place: of the destination. transforms: one after the other. options:
    of the reader; write_options: of the writer, or librdkafka's."""

    root: str
    kind: str
    place: str
    transforms: tuple[Callable[[DataFrame], DataFrame], ...] = ()
    options: dict[str, str] = {}  # noqa: RUF012 -- never written to
    write_options: dict[str, str] = {}  # noqa: RUF012 -- the same
    bootstrap: str | None = None
    checkpoint: str | None = None
    stream: bool = False


class Moved(NamedTuple):
    """A batch, or all of a run. records_in: read, None where the function did not read them in the
    same job. records_out: written. batch: its number in the checkpoint, None of a single one."""

    batch: int | None
    records_in: int | None
    records_out: int
    seconds: float


def parse_target(text: str) -> tuple[str, str]:
    """`parquet:PATH`, `kafka:TOPIC` or `aolog:ROOT`. Raises UsageError."""
    kind, _, place = text.partition(":")
    if kind not in _KINDS or not place:
        raise UsageError(
            f"--to {text}: is no destination",
            hint="there are parquet:PATH, kafka:TOPIC and aolog:ROOT",
        )
    return kind, place


def checked(wanted: Transfer) -> Transfer:
    """With paths made absolute. Needs no Spark. Raises UsageError for what cannot be together, and
    for the reader's options."""
    if wanted.stream and wanted.checkpoint is None:
        raise UsageError(
            "--stream: needs --checkpoint DIR", hint="there it goes on when it is started again"
        )
    if wanted.kind == "kafka" and not wanted.bootstrap:
        raise UsageError("--to kafka: needs --bootstrap-servers HOST:PORT")
    if wanted.kind != "kafka" and wanted.bootstrap:
        raise UsageError(f"--bootstrap-servers: has no use with --to {wanted.kind}")
    root = directory(wanted.root)
    if wanted.kind == "aolog":
        place = directory(wanted.place)
        if f"{root}/".startswith(f"{place}/") or f"{place}/".startswith(f"{root}/"):
            raise UsageError(
                f"--to aolog:{place}: overlaps with --from {root}", hint="name another directory"
            )
        wanted = wanted._replace(place=place)
    options = dict(wanted.options)
    named = {name.lower() for name in options}
    if wanted.kind != "parquet" and not named & {"includeheaders", "columns"}:
        options["includeHeaders"] = "true"  # what a record has goes on with it
    read_options(options | {"path": root}, stream=wanted.checkpoint is not None)
    return wanted._replace(root=root, options=options)


def run_transfer(
    spark: SparkSession,
    wanted: Transfer,
    *,
    told: Callable[[Moved], None] = lambda _: None,
    stopped: Callable[[], bool] = lambda: False,
) -> Moved:
    """Carries it out; the sums. told: of each batch of a stream as it is done. stopped: asked again
    and again; once true, a stream ends behind its last complete batch. The session has the source
    registered. Raises UsageError before anything is read, Spark's errors, JobFailed."""
    wanted = checked(wanted)
    target = None
    if wanted.kind == "kafka":
        assert wanted.bootstrap is not None
        target = KafkaTarget(wanted.bootstrap, wanted.place, wanted.write_options, wanted.root)
        check_topic(target)
    begun_s = time.monotonic()
    if wanted.checkpoint is None:
        records_in, records_out = _run_batch(spark, wanted, target)
        return Moved(None, records_in, records_out, _since(begun_s))
    batches: list[Moved] = []

    def note(moved: Moved) -> None:
        batches.append(moved)
        del batches[:-1]
        sums[0] += moved.records_in or 0
        sums[1] += moved.records_out
        told(moved)

    sums = [0, 0]
    _run_stream(spark, wanted, target, note, stopped)
    last = batches[-1].batch if batches else None
    return Moved(last, sums[0], sums[1], _since(begun_s))


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
    from pyspark.sql import functions as f

    read, written = Observation(_IN), Observation(_OUT)
    one = f.count(f.lit(1)).alias("records")
    source = spark.read.format("aolog").options(**wanted.options).load(wanted.root)
    frame = _transformed(source.observe(read, one), wanted.transforms)
    reads = _IN in _plan(frame)  # else the observation is never made, and asking for it blocks
    if target is not None:
        sent = _send(frame, target)
    else:
        made = frame.observe(written, one)
        made.write.format(wanted.kind).options(**wanted.write_options).mode(
            "append" if wanted.kind == "aolog" else "errorifexists"
        ).save(wanted.place)
        sent = int(written.get["records"])
    return int(read.get["records"]) if reads else None, sent


def _plan(frame: DataFrame) -> str:
    return str(frame._jdf.queryExecution().optimizedPlan().toString())  # noqa: SLF001 -- no other way


def _send(frame: DataFrame, target: KafkaTarget) -> int:
    check_columns(frame.schema)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # PySpark's words on pandas 3
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
    from pyspark.sql import functions as f

    assert wanted.checkpoint is not None
    source = spark.readStream.format("aolog").options(**wanted.options).load(wanted.root)
    frame = _transformed(source, wanted.transforms)
    sent: dict[int, int] = {}
    writer: Any
    if target is not None:
        check_columns(frame.schema)

        def send(batch: DataFrame, number: int) -> None:
            sent[number] = _send(batch, target)

        writer = frame.writeStream.foreachBatch(send)
    else:
        made = frame.observe(_OUT, f.count(f.lit(1)).alias("records"))
        writer = made.writeStream.format(wanted.kind).options(**wanted.write_options)
        writer = writer.option("path", wanted.place)
    if not wanted.stream:
        writer = writer.trigger(availableNow=True)
    query = writer.option("checkpointLocation", directory(wanted.checkpoint)).start()
    try:
        _follow(query, sent, note, stopped)
    finally:
        query.stop()


def _follow(
    query: StreamingQuery,
    sent: dict[int, int],
    note: Callable[[Moved], None],
    stopped: Callable[[], bool],
) -> None:
    """Until the query ends, or is to be stopped. Raises what ended it."""
    noted = -1
    while True:
        ended = stopped() or query.awaitTermination(_LOOK_S)  # type: ignore[arg-type]  # takes fractions
        for progress in query.recentProgress:
            number = progress.batchId
            out = progress.observedMetrics.get(_OUT)
            if number <= noted or "addBatch" not in progress.durationMs:
                continue  # told already, or a look that found nothing
            noted = number
            records = sent.pop(number, 0) if out is None else int(out["records"])
            seconds = progress.batchDuration / 1000
            note(Moved(number, progress.numInputRows, records, round(seconds, 3)))
        if ended:
            return
