"""What a pull is: one frozen value; and how both pullers fetch."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable

    from bridge.kafka.fetcher import Protocol

Reset: TypeAlias = Literal["earliest", "latest", "fail"]
# At most so many at once, and what arrives in so long: topics' ids are asked for once for all of them.
FETCH_MESSAGES, FETCH_S = 100_000, 0.1
# In steps, each a frame: the garbage collector visits messages that are kept, and so few are released
# before it runs.
STEP_MESSAGES = 500
STEP_S = 0.01  # while it may be the last step of a drain
SYNC_S = 1.0  # how long a pulled record may wait to be durable
AGAIN_S = 0.5  # before a full log or disk, a claim or a silent cluster is tried again


@dataclass(frozen=True, slots=True)
class PullOptions:
    """topics: names, and patterns that begin with ^. topics_file: a file with more of them, one a
    line, which is read again at run time. path: the log. root: of the archive, if several processes
    share the topics; None: the log alone. group: None to read all partitions of the topics. begin:
    where a partition begins of which the archive has no record; latest: at its end at the archive's
    first start, and a newer partition at its first record. out_of_range: what to do if the next
    offset is not in its partition any more. drain: end at the partitions' ends as they are at the
    start. max_bytes: of the log; the pull waits for cursors that need the oldest slab, and a slab
    that none needs is deleted. skip_clusters: records that came through these clusters are not
    pulled. units: records of a unit; None: partitions are pulled whole.
    sure_s: after so long all nodes of a cluster have learnt that a topic was made anew. renewed: called some times a second; returns
    settings to connect anew with, or None."""

    servers: str
    topics: tuple[str, ...]
    path: str
    settings: dict[str, Any] = field(default_factory=dict)
    root: str | None = None
    group: str | None = None
    protocol: Protocol = "classic"
    begin: Literal["earliest", "latest"] = "earliest"
    out_of_range: Reset = "earliest"
    drain: bool = False
    max_bytes: int | None = None
    skip_clusters: frozenset[str] = frozenset()
    units: int | None = None
    topics_file: str | None = None
    sure_s: float = 5.0
    renewed: Callable[[], dict[str, Any] | None] = lambda: None


class PullStatus(NamedTuple):
    """state: pulling, waiting (another process has a partition's claim, or a topic is missing), full
    (the log takes no more), away (the cluster does not answer), drained, stopped. pulled, skipped:
    records, since the start. lost: offsets that the cluster deleted before they were pulled. deleted:
    the archive's oldest records, which `max_bytes` removed since the start; None if unknown.
    positions: the next offset by topic/partition. units: finished, since the start. left_out: headers
    and timestamps of pulled records that the log cannot hold."""

    state: str
    pulled: int
    skipped: int
    lost: int
    positions: dict[str, int]
    error: str | None
    units: int = 0
    deleted: int | None = 0
    left_out: int = 0
