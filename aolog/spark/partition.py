"""The partition that Spark passes to a task, in batches and streams: pieces of logs.

It has Spark's own class, so that a worker whose Python lacks this package can unpickle it.
"""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING

from pyspark.sql.datasource import InputPartition

if TYPE_CHECKING:
    from aolog.spark.planning import Piece


def partition_of(pieces: tuple[Piece, ...]) -> InputPartition:
    """The partition of a task that reads these pieces."""
    return InputPartition(pickle.dumps(pieces))


def pieces_in(partition: InputPartition) -> tuple[Piece, ...]:
    """The argument of `partition_of`; empty for the partition that Spark makes if there is none."""
    if partition.value is None:
        return ()
    pieces: tuple[Piece, ...] = pickle.loads(partition.value)  # noqa: S301 -- from our own driver
    return pieces
