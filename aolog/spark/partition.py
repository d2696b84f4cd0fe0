"""The partition that Spark hands to a task, of batches and of streams: pieces of logs.

It is of Spark's own class, so that a worker whose Python lacks this package can unpack it.
"""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING

from pyspark.sql.datasource import InputPartition

if TYPE_CHECKING:
    from aolog.spark.planning import Piece

__all__ = ["partition_of", "pieces_in"]


def partition_of(pieces: tuple[Piece, ...]) -> InputPartition:
    """The partition of a task that reads these pieces."""
    return InputPartition(pickle.dumps(pieces))


def pieces_in(partition: InputPartition) -> tuple[Piece, ...]:
    """What `partition_of` was given; empty for the partition that Spark makes of none."""
    if partition.value is None:
        return ()
    pieces: tuple[Piece, ...] = pickle.loads(partition.value)  # noqa: S301 -- from our own driver
    return pieces
