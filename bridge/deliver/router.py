"""Router: where the records of a batch go, and which of them cannot. Both deliveries use it.

It joins what is known before anything is sent: the rules (bridge.config.routing), the partitions, the
topics' limits (bridge.kafka.admission), and errors of transforms. It works on columns, and remembers the
lane of a key, because keys recur.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TypeAlias

from aolog.format.native.speed import groups
from aolog.read.batch import Batch
from bridge.config.routing import (
    KEY_BYTES_REMEMBERED,
    Destination,
    Routing,
    partition_of,
    partition_of_address,
)
from bridge.deliver.partition_counts import PartitionCounts
from bridge.deliver.transform import refusals_of
from bridge.kafka import error_table
from bridge.kafka.admission import Admission
from bridge.kafka.error_table import UNKNOWN_TOPIC, row_of
from bridge.kafka.lane import NO_PARTITION, LaneKey, Refusal
from bridge.kafka.messages import Messages

_KEYS_REMEMBERED = 1 << 13  # of 100 bytes each: a megabyte for each log
Keys: TypeAlias = "Sequence[bytes | None]"
NO_TOPIC = Refusal(row_of(error_table.NO_TOPIC).reads, error_table.NO_TOPIC)


class _ByKey(dict["bytes | None", "LaneKey"]):
    """The lane of each key that was looked up, unless the key is long."""

    def __init__(self, lanes: list[LaneKey], source: bytes) -> None:
        super().__init__()
        self._lanes = lanes
        self._source = source

    def __missing__(self, key: bytes | None) -> LaneKey:
        found = self._lanes[partition_of(key, self._source, len(self._lanes))]
        if key is None or len(key) <= KEY_BYTES_REMEMBERED:
            self[key] = found
        return found


class Router:
    """For one log and cluster, and one thread. source: the UUID that chooses the partition of records without a key."""

    def __init__(self, routing: Routing, admission: Admission, source: bytes) -> None:
        self._routing = routing
        self._admission = admission
        self._source = source
        self._by_key: dict[tuple[str, int], _ByKey] = {}

    def topics(self, messages: Messages) -> set[str]:
        """The destinations of the records, except those for another cluster."""
        return {topic for named in _names(messages.topics) if (topic := self._topic_of(named))}

    def _topic_of(self, named: str | None) -> str | None:
        to = self._routing.of(named)
        return None if to is None else to.topic

    def route(
        self,
        batch: Batch,
        messages: Messages,
        partitions_of: Callable[[str], PartitionCounts | Refusal | None],
    ) -> tuple[Sequence[LaneKey | None], dict[int, Refusal]]:
        """The lane of each record, None for one of another cluster; and by address, refusals of all that cannot be
        sent, as far as that is known. messages: of the batch. partitions_of: how many partitions of a topic are in use; or why the
        topic cannot be used; None if its lane is closed for that reason already. The records of such
        a topic go to its lane NO_PARTITION."""
        now_ms = int(time.time() * 1_000)
        refusals = self._admission.refusals(messages, self._topic_of, now_ms=now_ms)
        refusals |= refusals_of(batch)

        def lanes_of(
            named: str | None, keys: Keys, addresses: Sequence[int]
        ) -> Sequence[LaneKey | None]:
            to = self._routing.of(named)
            if to is None:
                return [None] * len(addresses)
            lane: LaneKey = to.topic or "", NO_PARTITION
            found = NO_TOPIC if to.topic is None else partitions_of(to.topic)
            if isinstance(found, PartitionCounts):
                if not isinstance(to.partition, int) or to.partition < found.latest:
                    lanes: list[LaneKey] = []
                    for begin, end, partitions in found.parts(addresses):
                        part = keys[begin:end], addresses[begin:end]
                        lanes += self.lanes(to, partitions, *part)
                    return lanes
                lane = lane[0], to.partition
                reason = f"there is no partition {to.partition} in topic {to.topic!r}"
                found = Refusal(reason, UNKNOWN_TOPIC)
            if found is not None:
                refusals.update(dict.fromkeys(addresses, found))
            return [lane] * len(addresses)

        lanes = lanes_by_topic(messages.topics, messages.keys, messages.addresses, lanes_of)
        return lanes, self._admission.times.refusals(messages, lanes, now_ms) | refusals

    def lanes(
        self, to: Destination, partitions: int, keys: Keys, addresses: Sequence[int]
    ) -> list[LaneKey]:
        """The lanes of records with these keys and addresses, in a topic of so many partitions. A
        partition that was chosen by number may not exist."""
        topic = to.topic
        assert topic is not None
        if to.partition == "key":
            return list(map(self._of_topic(topic, partitions).__getitem__, keys))
        if to.partition == "round-robin":
            all_lanes = [(topic, partition) for partition in range(partitions)]
            return [all_lanes[partition_of_address(a, partitions)] for a in addresses]
        return [(topic, to.partition)] * len(addresses)

    def _of_topic(self, topic: str, partitions: int) -> _ByKey:
        if sum(map(len, self._by_key.values())) > _KEYS_REMEMBERED:
            self._by_key.clear()
        known = self._by_key.get((topic, partitions))
        if known is None:
            lanes = [(topic, partition) for partition in range(partitions)]
            known = self._by_key[topic, partitions] = _ByKey(lanes, self._source)
        return known


def _names(topics: Sequence[str | None]) -> set[str | None]:
    """Each of them once. Mostly there is one name, and counting it takes a tenth of making a set."""
    first = topics[:1]
    return set(first if first and topics.count(first[0]) == len(topics) else topics)


def lanes_by_topic(
    topics: Sequence[str | None],
    keys: Keys,
    addresses: Sequence[int],
    lanes_of: Callable[[str | None, Keys, Sequence[int]], Sequence[LaneKey | None]],
) -> Sequence[LaneKey | None]:
    """The lane of each record. lanes_of: of records that name the same topic, by keys and addresses."""
    if len(_names(topics)) == 1:
        return lanes_of(topics[0], keys, addresses)
    by_topic = groups(list(topics))
    found: list[LaneKey | None] = [None] * len(topics)
    for topic, indices in by_topic.items():
        lanes = lanes_of(topic, [keys[i] for i in indices], [addresses[i] for i in indices])
        for i, lane in zip(indices, lanes, strict=True):
            found[i] = lane
    return found
