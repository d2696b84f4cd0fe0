"""`python -m tests.spark.sending ROOT BOOTSTRAP TOPIC BATCHES`: a task of the pipeline that sends logs
to Kafka, with the batches that Spark would hand it; behind so many of them it prints a line and
waits for one."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pyarrow as pa

from aolog.spark.kafka_sink import KafkaTarget, sender
from tests.spark.driving import tasks

__all__ = ["rows", "send"]


def rows(root: str) -> list[pa.RecordBatch]:
    """As the pipeline reads them, in small batches."""
    read = [batch for task in tasks(root, includeHeaders="true") for batch in task]
    return [batch.slice(at, 100) for batch in read for at in range(0, batch.num_rows, 100)]


def send(target: KafkaTarget, batches: Iterator[pa.RecordBatch]) -> int:
    """How many records the task says that it sent."""
    (told,) = sender(target)(batches)
    return int(told.column("records")[0].as_py())


def _paused(batches: list[pa.RecordBatch], after: int) -> Iterator[pa.RecordBatch]:
    yield from batches[:after]
    print("half", flush=True)
    sys.stdin.readline()
    yield from batches[after:]


if __name__ == "__main__":
    root, bootstrap, topic, after = sys.argv[1:]
    send(KafkaTarget(bootstrap, topic, {}, root), _paused(rows(root), int(after)))
