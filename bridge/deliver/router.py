"""Router: where the records of a batch go, and which of them cannot. Both deliveries use it.

It joins what is known before anything is sent: the rules (bridge.config.routing), the partitions
(partitioner), the topics' limits (bridge.kafka.admission), and errors of transforms.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple

from bridge.deliver.partitioner import Partitioner, lanes_by_topic
from bridge.deliver.transform import refusals_of
from bridge.kafka import error_table
from bridge.kafka.error_table import UNKNOWN_TOPIC, row_of
from bridge.kafka.lane import NO_PARTITION, Refusal

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from aolog.read.batch import Batch
    from bridge.config.routing import Routing
    from bridge.kafka.admission import Admission
    from bridge.kafka.lane import LaneKey
    from bridge.kafka.messages import Messages

NO_TOPIC = Refusal(row_of(error_table.NO_TOPIC).reads, error_table.NO_TOPIC)


class Routed(NamedTuple):
    """lanes: of each record; None for a record of another cluster. refusals: by address, of all
    records that cannot be sent, as far as that is known. ours: whether no record is for another
    cluster."""

    lanes: Sequence[LaneKey | None]
    refusals: dict[int, Refusal]
    ours: bool


class Router:
    """For one log and cluster. source: the UUID that chooses the partition of records without a key.
    Not thread-safe."""

    def __init__(self, routing: Routing, admission: Admission, source: bytes) -> None:
        self._routing = routing
        self._admission = admission
        self._partitioner = Partitioner(source)

    def topics(self, messages: Messages) -> set[str]:
        """The destinations of the records, except those for another cluster."""
        return {topic for named in set(messages.topics) if (topic := self._topic_of(named))}

    def _topic_of(self, named: str | None) -> str | None:
        to = self._routing.of(named)
        return None if to is None else to.topic

    def route(
        self,
        batch: Batch,
        messages: Messages,
        partitions_of: Callable[[str], int | Refusal | None],
    ) -> Routed:
        """messages: of the batch. partitions_of: how many partitions of a topic are in use; or why the
        topic cannot be used; None if its lane is closed for that reason already. The records of such
        a topic go to its lane NO_PARTITION."""
        now_ms = int(time.time() * 1_000)
        refusals = self._admission.refusals(messages, self._topic_of, now_ms=now_ms)
        refusals |= refusals_of(batch)
        ours = all(self._routing.of(named) is not None for named in set(messages.topics))

        def lanes_of(
            named: str | None, keys: Sequence[bytes | None], addresses: Sequence[int]
        ) -> Sequence[LaneKey | None]:
            to = self._routing.of(named)
            if to is None:
                return [None] * len(addresses)
            lane: LaneKey = to.topic or "", NO_PARTITION
            found = NO_TOPIC if to.topic is None else partitions_of(to.topic)
            if isinstance(found, int):
                if not isinstance(to.partition, int) or to.partition < found:
                    return self._partitioner.lanes(to, found, keys, addresses)
                lane = lane[0], to.partition
                reason = f"there is no partition {to.partition} in topic {to.topic!r}"
                found = Refusal(reason, UNKNOWN_TOPIC)
            if found is not None:
                refusals.update(dict.fromkeys(addresses, found))
            return [lane] * len(addresses)

        lanes = lanes_by_topic(messages.topics, messages.keys, messages.addresses, lanes_of)
        return Routed(lanes, refusals, ours)
