"""Sends rows to Kafka from inside of tasks, at least once.

Each task has an idempotent producer of its own and ends when the cluster has acknowledged all of
its rows. A repeated task sends its rows again, and so does a batch that was killed before its
checkpoint. The header `aolog` (aolog/format/origin.py) shows a consumer which messages are copies: it
names the record from which a row was made, if the row still has its columns `log` and `offset`. Rows of
one key go to the partition that Java's client would choose, in the order of their task.

Only this module of the package uses a Kafka client; it imports the client at the first use.
"""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from aolog.errors import AologError, UsageError, counted, install_command, warn
from aolog.format.origin import HEADER_NAME
from aolog.spark.schema import check_rows
from aolog.spark.shipping import Shipped

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    import pyarrow as pa

SENT = "records bigint, bytes bigint"  # the columns of a task's result
_ANSWER_S = 10.0  # how long to wait for metadata before the job begins
_WARM_UP_S = 1.0  # the same in a task, where it only saves time
_POLL_S = 0.1
_PARTITION_UNASSIGNED = -1  # the client's own partitioner decides
_SETTINGS: dict[str, Any] = {
    "partitioner": "murmur2_random",  # Java's; rows without a key go anywhere
    "linger.ms": 20,
    "queue.buffering.max.kbytes": 65_536,
    "message.timeout.ms": 120_000,  # then the task fails, and Spark repeats it
}
_AUTO_CREATE = "allow.auto.create.topics"
_CREATE_S = 5.0  # how long a topic that the cluster creates may take to appear
_FIXED: dict[str, Any] = {
    _AUTO_CREATE: False,  # the driver has the topic created, on purpose: see check_topic
    "enable.idempotence": True,
    "acks": "all",
    "delivery.report.only.error": True,
}


class JobFailed(AologError):
    """A Spark job failed, in a task or at its destination. What the sink had committed stays there; run
    the job again."""

    code = "job_failed"


class KafkaTarget(NamedTuple):
    """bootstrap: host:port, separated by commas. settings: librdkafka's. root: of the rows' logs."""

    bootstrap: str
    topic: str
    settings: dict[str, str]
    root: str

    def creates_topic(self) -> bool:
        """Whether the cluster is asked to create the topic if it is missing."""
        return self.settings.get(f"kafka.{_AUTO_CREATE}", "true") != "false"

    def producer_settings(self) -> dict[str, Any]:
        """All settings of a producer. Raises UsageError for one that delivery depends on."""
        given = {name.removeprefix("kafka."): value for name, value in self.settings.items()}
        given.pop(_AUTO_CREATE, None)
        if taken := (_FIXED.keys() | {"bootstrap.servers", "transactional.id"}) & given.keys():
            raise UsageError(f"--write-option {min(taken)}: must not be set: the command sets it")
        return _SETTINGS | given | _FIXED | {"bootstrap.servers": self.bootstrap}


def check_columns(schema: Any) -> None:
    """Raises UsageError if rows of this schema, a StructType, cannot become messages."""
    if "gap" in check_rows(schema, "message", offset="bigint"):
        raise UsageError(
            "column gap: Kafka cannot show that records are lost",
            hint="leave out the option includeGaps; the command prints what is lost",
        )


def check_topic(target: KafkaTarget) -> None:
    """Call it on the driver, before a task starts. A missing topic is created as `aolog-bridge run` does it: by
    the cluster, if its auto.create.topics.enable is true. Raises UsageError without the client, for invalid
    settings and for a topic that stays missing, JobFailed if the cluster does not answer."""
    try:
        from confluent_kafka import KafkaError
    except ModuleNotFoundError:
        raise UsageError(
            "kafka: needs confluent-kafka, here and on every executor",
            hint=install_command("spark", "bridge"),
        ) from None
    error = _metadata(_producer(target), target).error
    is_missing = error is not None and error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART
    if is_missing and target.creates_topic():
        error = _created(target)
    if error is not None:
        raise UsageError(
            f"Kafka at {target.bootstrap}: topic {target.topic}: {error.str()}",
            hint=f"create it: aolog-bridge topics --create {target.topic} --bootstrap-servers"
            f" {target.bootstrap}",
        )


def _metadata(producer: Any, target: KafkaTarget) -> Any:
    """The cluster's answer about the topic. Raises JobFailed."""
    from confluent_kafka import KafkaException

    try:
        return producer.list_topics(target.topic, timeout=_ANSWER_S).topics[target.topic]
    except KafkaException as error:
        raise JobFailed(f"Kafka at {target.bootstrap}: {error.args[0].str()}") from None


def _created(target: KafkaTarget) -> Any:
    """Asks the cluster to create the topic, and waits a moment for it. Returns why it is not there, or None."""
    asking, looking = _producer(target, {_AUTO_CREATE: True}), _producer(target)
    _metadata(asking, target)
    until_s = time.monotonic() + _CREATE_S
    while (found := _metadata(looking, target)).error is not None and time.monotonic() < until_s:
        time.sleep(_POLL_S)
    if found.error is None:
        warn(
            "topic %s was not there, and the cluster has created it, with %s; --write-option kafka.%s=false "
            "refuses a missing topic",
            target.topic,
            counted(len(found.partitions), "partition"),
            _AUTO_CREATE,
        )
    return found.error


def _producer(target: KafkaTarget, more: Mapping[str, Any] = {}) -> Any:
    import logging

    from confluent_kafka import KafkaException, Producer

    silent = logging.getLogger("aolog.librdkafka")  # in an outage it logs pages
    silent.addHandler(logging.NullHandler())
    silent.propagate = False
    try:
        return Producer({**target.producer_settings(), **more}, logger=silent)
    except KafkaException as error:
        raise UsageError(f"--write-option: {error.args[0].str()}") from None


def sender(target: KafkaTarget) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function for `mapInArrow` with SENT: sends the rows of a task, and yields one row of counts.
    Raises JobFailed."""
    return Shipped(_sent, target)


def _sent(target: KafkaTarget, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa

    records, size = _send(target, batches)
    yield pa.RecordBatch.from_pydict(
        {"records": pa.array([records], pa.int64()), "bytes": pa.array([size], pa.int64())}
    )


def _send(target: KafkaTarget, batches: Iterator[pa.RecordBatch]) -> tuple[int, int]:
    from confluent_kafka import KafkaException

    from aolog.spark.origins import Origins

    failures: list[Any] = []
    producer = _producer(target)
    records = size = 0

    def refused(error: Any, _message: object) -> None:
        failures.append(error)

    try:
        with Origins(target.root) as origins:
            for batch in batches:
                if batch.num_rows and not records:
                    _warm_up(producer, target.topic)
                for row in messages_of(batch, origins):
                    _produce(producer, target.topic, row, refused)
                    size += len(row[0] or b"")
                records += batch.num_rows
                producer.poll(0)
                if failures:
                    break
        while not failures and len(producer):
            producer.poll(_POLL_S)
    except KafkaException as error:
        failures.insert(0, error.args[0])
    if failures:
        producer.purge()  # the error keeps it alive, and it would go on sending
        raise JobFailed(
            f"Kafka at {target.bootstrap}: topic {target.topic}: {failures[0].str()}",
            hint="run it again: that sends the rows that were not acknowledged, and some others twice",
        )
    return records, size


def _warm_up(producer: Any, topic: str) -> None:
    """Asks for metadata twice, which saves the first record half a second or more (see bridge/kafka).
    Ignores a cluster that does not answer: the records have a longer time-out."""
    from confluent_kafka import KafkaException

    with contextlib.suppress(KafkaException):
        for _ in range(2):
            producer.list_topics(topic, timeout=_WARM_UP_S)


def _produce(producer: Any, topic: str, row: Any, refused: Any) -> None:
    value, key, time_ms, headers = row
    while True:
        try:
            producer.produce(
                topic, value, key, _PARTITION_UNASSIGNED, refused, None, time_ms, headers
            )
        except BufferError:
            if not len(producer):  # it is empty, and has no room even so
                raise JobFailed(
                    f"topic {topic}: the client's queue never has room for a value of {len(value)} bytes",
                    hint="--write-option kafka.queue.buffering.max.kbytes=...",
                ) from None
        else:
            return
        producer.poll(_POLL_S)  # acknowledgements make room


def messages_of(batch: pa.RecordBatch, origins: Any) -> Iterator[tuple[Any, ...]]:
    """(value, key, milliseconds, headers) of each row."""
    import pyarrow as pa

    rows = batch.num_rows
    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    nothing: list[Any] = [None] * rows

    def listed(name: str) -> list[Any]:
        return columns[name].to_pylist() if name in columns else nothing

    times_ms = [0] * rows  # 0: the client uses the present time
    if "timestamp" in columns:
        exact = columns["timestamp"].cast(pa.timestamp("us", "UTC")).cast(pa.int64())
        times_ms = [0 if us is None else max(0, us // 1000) for us in exact.to_pylist()]
    headers = [
        _headers(own, stamp)
        for own, stamp in zip(listed("headers"), origins.stamps(batch), strict=True)
    ]
    return zip(listed("value"), listed("key"), times_ms, headers, strict=True)


def _headers(own: list[dict[str, Any]] | None, stamp: bytes | None) -> list[tuple[str, Any]]:
    if None in (own or ()):
        raise UsageError("column headers: a header is null")
    pairs = [(pair["key"] or "", pair["value"]) for pair in own or ()]
    return pairs if stamp is None else [*pairs, (HEADER_NAME, stamp)]
