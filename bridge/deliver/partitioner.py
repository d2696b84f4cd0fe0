"""Partitioner: to which lane each record of a batch goes. Pure.

`Destination.partition_of` answers the same for one record; here it is answered a column at a time,
and the lane of a key is remembered, because keys recur.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aolog.format.native.speed import groups
from bridge.config.partition import KEY_BYTES_REMEMBERED, partition_of, partition_of_address

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from bridge.config.routing import Destination
    from bridge.kafka.lane import LaneKey

_KEYS_REMEMBERED = 1 << 13  # of 100 bytes each: a megabyte for each log


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


class Partitioner:
    """For one log. source: the UUID that chooses the partition of records without a key. Not
    thread-safe."""

    def __init__(self, source: bytes) -> None:
        self._source = source
        self._by_key: dict[tuple[str, int], _ByKey] = {}

    def lanes(
        self,
        to: Destination,
        partitions: int,
        keys: Sequence[bytes | None],
        addresses: Sequence[int],
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


def lanes_by_topic(
    topics: Sequence[str | None],
    keys: Sequence[bytes | None],
    addresses: Sequence[int],
    lanes_of: Callable[
        [str | None, Sequence[bytes | None], Sequence[int]], Sequence[LaneKey | None]
    ],
) -> Sequence[LaneKey | None]:
    """The lane of each record. lanes_of: of records that name the same topic, by keys and addresses."""
    if len(set(topics)) == 1:
        return lanes_of(topics[0], keys, addresses)
    by_topic = groups(list(topics))
    found: list[LaneKey | None] = [None] * len(topics)
    for topic, indices in by_topic.items():
        lanes = lanes_of(topic, [keys[i] for i in indices], [addresses[i] for i in indices])
        for i, lane in zip(indices, lanes, strict=True):
            found[i] = lane
    return found
