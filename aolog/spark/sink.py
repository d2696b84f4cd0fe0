"""`df.write.format("aolog")` and `df.writeStream.format("aolog")`: all rows of a job or batch appear
in their logs at its commit, at once and only once.

Tasks write pending slabs (aolog/publish) and describe them in their commit messages. The driver
publishes the slabs that the messages name; below a URL tasks upload them (publish/objects.py). For a batch, Spark pickles the writer and calls `commit` on
another copy, so the writer holds the job's name. For a stream, Spark makes one writer to plan a batch
and another to commit it, so the job's name follows from the query's id. Only tasks know that id; their
messages carry it.

A transaction is named by an application and its version, or by a query and its batch's number. One
that was published before is a repetition only if it has the same content (batch_content.py).

Spark may call `abort` after a commit that raised. It removes nothing that is published.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import xxhash
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from aolog.errors import NotALog, UsageError, counted, warn
from aolog.format.root_manifest import Content, Transaction
from aolog.log.directory import Log
from aolog.publish import objects
from aolog.publish.leftovers import abort
from aolog.publish.pending import log_path
from aolog.publish.publication import check_free, publish
from aolog.spark.batch_content import checkpoint_below, digest_of, logs_read, plan_of
from aolog.spark.routing import Router
from aolog.spark.schema import COLUMNS, check_rows
from aolog.spark.shipping import parcel
from aolog.spark.sink_options import SinkOptions, read_sink_options
from aolog.spark.skipped import QUERY_ID
from aolog.storage.mounts import warn_of_limits
from aolog.storage.objects.url import is_url
from aolog.storage.storage import Storage

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pyarrow as pa
    from pyspark.sql.types import StructType

    from aolog.publish.objects import SentSlab
    from aolog.publish.pending import PendingSlab
    from aolog.publish.publication import Published


@dataclass(frozen=True)
class Written(WriterCommitMessage):
    """What a task wrote. digest: of its rows; 0 if the job is not a transaction. query, batch: of a stream,
    as the task's context has them; a job of foreachBatch has them too. checkpoints: the directory of
    Spark's setting."""

    slabs: tuple[PendingSlab | SentSlab, ...]
    digest: int = 0
    query: str | None = None
    batch: int | None = None
    checkpoints: str | None = None


def batch_writer(
    options: Mapping[str, str],
    schema: StructType,
    overwrite: bool,  # noqa: FBT001 -- Spark's call
) -> BatchWriter:
    """For `DataSource.writer`. Raises, on the driver and before any task starts, UsageError for invalid
    options, columns or mode, LogLocked if a Writer has the log open, StorageError."""
    read = _checked(options, schema, stream=False, overwrite=overwrite)
    return BatchWriter(read, Storage().system.random_bytes(16).hex())


def stream_writer(
    options: Mapping[str, str],
    schema: StructType,
    overwrite: bool,  # noqa: FBT001 -- Spark's call
) -> StreamWriter:
    """For `DataSource.streamWriter`. Raises as `batch_writer`."""
    return StreamWriter(_checked(options, schema, stream=True, overwrite=overwrite))


def _checked(
    options: Mapping[str, str], schema: StructType, *, stream: bool, overwrite: bool
) -> SinkOptions:
    if overwrite:
        raise UsageError(
            'output mode "complete": a log can only be appended to'
            if stream
            else 'mode "overwrite": a log can only be appended to',
            hint='use outputMode("append")' if stream else 'use mode("append")',
        )
    routed = "log" in check_rows(schema, "record", topic="string", gap=COLUMNS["gap"])
    read = read_sink_options(options, stream=stream)
    if is_url(read.root):
        if routed:
            raise UsageError(
                "column log: below a URL is one log, because a commit of several could not be atomic",
                hint="drop the column, or write below a directory",
            )
        objects.check_store(read.root)
        return read
    check_free(read.root, [] if routed else [read.log], mode=read.writer.mode)
    warn_of_limits(read.root, Storage().mount_of(read.root))
    return read


class BatchWriter(DataSourceArrowWriter):
    """Writes one job. Picklable."""

    def __init__(self, options: SinkOptions, job: str) -> None:
        self.options = options
        self.job = job

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """In a task: writes its slabs, durable and not published on return."""
        options = self.options
        slabs, digest = _written(options, self.job, iterator, digest=options.app is not None)
        return Written(slabs, digest, *_of_query())

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """On the driver: publishes all slabs, or nothing if the transaction was committed before. Raises
        LogLocked, StorageError and UsageError with nothing published, and SyncFailed."""
        options, written = self.options, _messages(messages)
        transaction = None
        if options.app is not None:
            content = _content(written, None)
            transaction = Transaction(f"app/{options.app}", options.version, content)
        if written and written[0].query is not None and written[0].batch is not None:
            checkpoint = checkpoint_below(written[0].checkpoints, written[0].query)
            _check_not_read(options, checkpoint, written[0].batch, written)
        _publish(options, self.job, written, transaction)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """On the driver: removes what the job wrote and did not publish."""
        _abort(self.options, self.job, _messages(messages))

    def __reduce__(self) -> Any:
        return parcel(BatchWriter, self.options, self.job)


class StreamWriter(DataSourceStreamArrowWriter):
    """Writes the batches of a query. Picklable."""

    def __init__(self, options: SinkOptions) -> None:
        self.options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """In a task: writes its slabs, durable and not published on return."""
        query, batch, checkpoints = _of_query()
        if query is None or batch is None:
            raise UsageError(
                "the task belongs to no streaming query: Spark names no query or no batch"
            )
        job = _job_of(self.options, query)
        slabs, digest = _written(self.options, job, iterator, digest=True)
        return Written(slabs, digest, query, batch, checkpoints)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 -- Spark's name
        """On the driver: publishes the batch, or nothing if it was published before. Raises as
        `BatchWriter.commit`."""
        written = _messages(messages)
        queries = {message.query for message in written}
        batches = {message.batch for message in written}
        if not written:
            return
        if len(queries) > 1 or batches != {batchId}:
            raise UsageError(
                f"batch {batchId} received messages of batches {batches} of queries {queries}"
            )
        query, options = queries.pop(), self.options
        assert query is not None
        checkpoint = options.checkpoint or checkpoint_below(written[0].checkpoints, query)
        _check_not_read(options, checkpoint, batchId, written)
        id_ = f"query/{query}" if options.app is None else f"app/{options.app}"
        content = _content(written, plan_of(checkpoint, batchId))
        _publish(options, _job_of(options, query), written, Transaction(id_, batchId, content))

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 -- Spark's name
        """On the driver: removes what the batch's tasks wrote. The query's next commit removes the files
        of killed tasks."""
        del batchId
        written = _messages(messages)
        for query in {message.query for message in written if message.query is not None}:
            _abort(self.options, _job_of(self.options, query), written)

    def __reduce__(self) -> Any:
        return parcel(StreamWriter, self.options)


def _of_query() -> tuple[str | None, int | None, str | None]:
    """In a task: the query, its batch, and Spark's setting for checkpoints; None for what it has not."""
    context = TaskContext.get()
    if context is None:
        return None, None, None
    batch = context.getLocalProperty("streaming.sql.batchId")
    query = context.getLocalProperty(QUERY_ID)
    checkpoints = context.getLocalProperty("spark.sql.streaming.checkpointLocation")
    return query or None, int(batch) if batch else None, checkpoints or None


def _job_of(options: SinkOptions, query: str) -> str:
    """The job's name. A query has one batch at a time, so other files of the job are leftovers."""
    return xxhash.xxh3_128_hexdigest((options.app or query).encode())


def _messages(messages: list[WriterCommitMessage | None]) -> list[Written]:
    """The messages of tasks that succeeded."""
    return [message for message in messages if isinstance(message, Written)]


def _slabs(messages: list[Written]) -> list[Any]:
    """PendingSlabs, or SentSlabs if the root is a URL."""
    return [slab for message in messages for slab in message.slabs]


def _abort(options: SinkOptions, job: str, messages: list[Written]) -> None:
    end = objects.abort if is_url(options.root) else abort
    end(options.root, job, _slabs(messages))


def _written(
    options: SinkOptions, job: str, batches: Iterator[pa.RecordBatch], *, digest: bool
) -> tuple[tuple[PendingSlab | SentSlab, ...], int]:
    """The slabs, and the digest of their rows."""
    if not is_url(options.root):
        return _written_below(options, job, batches, digest=digest)
    with objects.scratch() as directory:
        local = options._replace(root=directory)
        slabs, total = _written_below(local, job, batches, digest=digest)
        return tuple(objects.send(options.root, directory, job, slabs)), total


def _written_below(
    options: SinkOptions, job: str, batches: Iterator[pa.RecordBatch], *, digest: bool
) -> tuple[tuple[PendingSlab, ...], int]:
    total = 0
    with Router(options, job) as router:
        for batch in batches:
            router.write(batch)
            if digest and batch.num_rows:
                total += digest_of(batch)
        return tuple(router.finish()), total


def _content(messages: list[Written], plan: str | None) -> Content:
    records = sum(slab.records for slab in _slabs(messages))
    digest = sum(message.digest for message in messages) % (1 << 64)
    return Content(records, f"{digest:016x}", plan)


def _check_not_read(
    options: SinkOptions, checkpoint: str | None, batch: int, messages: list[Written]
) -> None:
    """Raises UsageError if the batch has records of a log into which it is written."""
    read = logs_read(checkpoint, batch)
    for name in sorted({slab.log for slab in _slabs(messages)}) if read else ():
        path = log_path(options.root, name)
        with suppress(NotALog, FileNotFoundError), Log(path, Storage()) as log:
            header = log.slab(len(log.bases) - 1).header if log.bases else None
            if header is not None and header.topic_uuid.hex() in read:
                raise UsageError(
                    f"the query reads the log {name!r}, into which it writes: it would copy its own rows "
                    "for ever",
                    hint="write below another root, or select what to read with subscribe; then with "
                    "another checkpointLocation, as this batch is planned",
                    path=path,
                )


def _publish(
    options: SinkOptions, job: str, messages: list[Written], transaction: Transaction | None
) -> None:
    # A descriptor for each log's lock: Java raised this process's limit to the most that the system allows.
    commit = objects.commit if is_url(options.root) else publish
    done = commit(
        options.root,
        job,
        _slabs(messages),
        transaction=transaction,
        leftover_seconds=options.leftover_seconds,
    )
    if done.repeated and transaction is not None:
        _check_repeated(options, transaction, done)


def _check_repeated(options: SinkOptions, transaction: Transaction, done: Published) -> None:
    """Raises UsageError if rows that were not published would be dropped; warns if the options drop them."""
    now, before, version = transaction.content, done.content, transaction.version
    assert now is not None
    if before is not None and before.is_again(now):
        if before.records != now.records:
            warn("%s: as it was planned before, with %s: not written again", _named(transaction),
                 _changed(before, now))  # fmt: skip  # one thing, two lines
        return
    if before is None and version == done.last:  # published by an aolog that did not record it
        warn("%s: published before; its rows are not compared", _named(transaction))
        return
    had = "with rows that are not recorded" if before is None else f"with {_changed(before, now)}"
    text = f"{_named(transaction)} was published before, {had}"
    if not options.fail_on_repeated:
        warn("%s; onRepeatedBatch is skip: not written", text)
        return
    raise UsageError(
        text,
        hint="if these rows must be added, as after a checkpoint was rewound or copied, set txnAppId "
        "to a new name (of a batch, or raise txnVersion); if the logs have them, set onRepeatedBatch to skip; "
        "if the logs have some of them, begin a new checkpoint, with startingOffsets where the last "
        "published batch ended",
    )


def _named(transaction: Transaction) -> str:
    kind, _, name = transaction.id.partition("/")
    if kind == "query":
        return f"batch {transaction.version} of query {name}"
    return f"version {transaction.version} of {name!r}"


def _changed(before: Content, now: Content) -> str:
    others = "other" if now.records == 1 else "others"
    return f"{counted(before.records, 'record')}, and has {now.records} {others} now"
