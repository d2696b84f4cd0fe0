"""What a pull is: one frozen value; and how both pullers fetch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, TypeAlias

Reset: TypeAlias = Literal["earliest", "latest", "fail"]
# At most so many at once, and what arrives in so long: topics' ids are asked for once for all of them.
FETCH_MESSAGES, FETCH_S = 100_000, 0.1
STEP_S = 0.01  # while it may be the last step of a drain
SYNC_S = 1.0  # how long a pulled record may wait to be durable
AGAIN_S = 0.5  # before a full log or disk, a claim or a silent cluster is tried again


@dataclass(frozen=True, slots=True)
class PullOptions:
    """What is pulled, into which log, and how."""

    servers: str
    topics: tuple[str, ...]  # names, and patterns that begin with ^
    path: str  # of the log
    settings: dict[str, Any] = field(default_factory=dict)
    root: str | None = None  # of the archive, if several processes share the topics
    group: str | None = None  # None: all partitions of the topics are read
    # Of a partition without a record in the archive; latest: its end at the archive's first start.
    begin: Literal["earliest", "latest"] = "earliest"
    out_of_range: Reset = "earliest"  # if the next offset is not in its partition any more
    drain: bool = False  # end at the partitions' ends as they are at the start
    max_bytes: int | None = None  # of the log: the pull waits for cursors, and prunes
    skip_clusters: frozenset[str] = frozenset()  # what came through them is not pulled
    units: int | None = None  # records of a unit; None: partitions are pulled whole
    topics_file: str | None = None  # more topics, one a line; read again at run time
    sure_s: float = 5.0  # after so long all nodes know that a topic was made anew
    # Called some times a second: settings to connect anew with, or None.
    renewed: Callable[[], dict[str, Any] | None] = lambda: None


class PullStatus(NamedTuple):
    """A moment of a pull. Counts are since its start.

    state: pulling, waiting (another process has a partition's claim, or a topic is missing), full (the log
    takes no more), away (the cluster does not answer), drained, stopped."""

    state: str
    pulled: int  # records
    skipped: int
    lost: int  # offsets that the cluster deleted before they were pulled
    positions: dict[str, int]  # the next offset by topic/partition
    error: str | None
    units: int = 0  # finished
    deleted: int | None = 0  # records that `max_bytes` removed; None if unknown
    left_out: int = 0  # headers and timestamps that the log cannot hold
