"""Which Kafka record a pulled record is: its last header, named "aolog-origin-kafka". Pure.

The value is text, for people too: CLUSTER/TOPIC-ID/PARTITION/OFFSET. Ids and not names: a cluster or a
topic that was made anew under the same name has another id, so its offsets are not taken for old ones.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

if TYPE_CHECKING:
    from bridge.kafka.catalog import Place, Topic

HEADER_NAME = "aolog-origin-kafka"


class Source(NamedTuple):
    """A partition, for ever. cluster: the cluster's id. topic_id: the topic's."""

    cluster: str
    topic_id: UUID
    partition: int

    @property
    def prefix(self) -> bytes:
        """The header's value up to the offset."""
        return f"{self.cluster}/{self.topic_id}/{self.partition}/".encode()

    @property
    def file_name(self) -> str:
        """Of its claim."""
        return f"{self.cluster}.{self.topic_id}.{self.partition}"


class Origin(NamedTuple):
    """One record of a partition."""

    source: Source
    offset: int


def origin_of(headers: Iterable[tuple[str, bytes | None]]) -> Origin | None:
    """The origin among a record's headers: the last one, which is from the log's own pull; None if
    there is none, or it is malformed."""
    found = [value for name, value in headers if name == HEADER_NAME]
    if not found or found[-1] is None:
        return None
    try:
        cluster, topic_id, partition, offset = found[-1].decode().split("/")
        return Origin(Source(cluster, UUID(topic_id), int(partition)), int(offset))
    except ValueError:
        return None


def sources_of(cluster: str, topics: Iterable[Topic]) -> dict[Place, Source]:
    """The partitions of these topics."""
    return {
        (t.name, p.number): Source(cluster, t.id, p.number) for t in topics for p in t.partitions
    }


def clusters_of(headers: Iterable[tuple[str, bytes | None]]) -> set[bytes]:
    """The ids of the clusters that a record has come through."""
    return {value.partition(b"/")[0] for name, value in headers if name == HEADER_NAME and value}
