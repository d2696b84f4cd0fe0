"""Router: where the records of a batch go, and which of them cannot. Both deliveries use it.

It joins what is known before anything is sent: the rules (bridge.config.routing), the partitions
(partitioner), the topics' limits (bridge.kafka.admission), and errors of transforms.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from bridge.deliver.partitioner import Partitioner
from bridge.deliver.transform import refusals_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from aolog.read.batch import Batch
    from bridge.config.routing import Routing
    from bridge.deliver.partitioner import Routed
    from bridge.kafka.admission import Admission
    from bridge.kafka.lane import Refusal
    from bridge.kafka.messages import Messages


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
        """messages: of the batch. partitions_of: see Partitioner.route. The refusals are those of all
        records that cannot be sent, as far as that is known."""
        now_ms = int(time.time() * 1_000)
        known = self._admission.refusals(messages, self._topic_of, now_ms=now_ms)
        routed = self._partitioner.route(messages, self._routing, partitions_of)
        return routed._replace(refusals=known | refusals_of(batch) | routed.refusals)
