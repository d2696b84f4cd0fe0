"""A Writer inside a Spark task, with a log of its own."""

from __future__ import annotations

import socket
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from aolog.storage.objects.url import bucket_url
from aolog.storage.storage import checked_path

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator

    from aolog.write.writer import Writer


@contextmanager
def writer_per_task(
    root: str | os.PathLike[str],
    *,
    prefix: str = "task",
    archive: str | None = None,
    **options: Any,
) -> Iterator[Writer]:
    """A Writer of a new log below `root`, for `foreachPartition` and `mapInArrow`. options: the
    Writer's::

        def save(rows):
            with aolog.spark.writer_per_task("/var/lib/app/logs") as log:
                for row in rows:
                    log.append(row.value, key=row.key)

        frame.foreachPartition(save)

    The log's name has the prefix, host, stage, partition, attempt and a random part: no attempt,
    speculative or repeated, of this job or another, opens another attempt's log. The log is synced
    and closed when the block ends, with or without an error. So records of an attempt that failed
    stay, and exist twice after its repetition; `df.write.format("aolog")` leaves one copy.

    archive: a URL below which the log is archived, by its name, when the block ends without an error: so it
    outlives the executor's disk. A table of `root` and this URL has each record of it once.

    Raises the errors of Writer, and those of an archiver; UsageError for a wrong URL before anything is written.
    """
    from pyspark import TaskContext

    from aolog.write.writer import Writer  # a process of Spark that reads need not load it

    context = TaskContext.get()
    where = "driver"
    if context is not None:
        where = f"{context.stageId()}-{context.partitionId()}-{context.taskAttemptId()}"
    host = socket.gethostname().partition(".")[0]
    name = f"{prefix}-{host}-{where}-{uuid4().hex[:12]}"
    url = None if archive is None else bucket_url(f"{archive.rstrip('/')}/{name}")
    log = Writer(f"{checked_path(root)}/{name}", **options)
    try:
        yield log
    finally:
        try:
            log.sync()
        finally:
            log.close()
    if url is not None:
        _archive(log.path, url)


def _archive(path: str, url: str) -> None:
    from aolog.log.directory import Log
    from aolog.maintenance.archive.archiver import Archiver
    from aolog.storage.storage import Storage

    with Log(path, Storage()) as log:
        if not log.bases:
            return  # nothing was appended
    with Archiver(path, url) as archiver:
        archiver.begin()
        archiver.round()
