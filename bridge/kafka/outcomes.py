"""Outcomes: what comes back from the calls of a transactional producer."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from bridge.kafka.producer import Failed

if TYPE_CHECKING:
    from collections.abc import Collection

    from bridge.errors import DestinationError
    from bridge.kafka.cursor_record import CursorRecord
    from bridge.kafka.lane import LaneKey

__all__ = [
    "Aborted",
    "Broke",
    "Committed",
    "Found",
    "Impossible",
    "Looked",
    "Proven",
    "TransactionEvent",
    "Unanswered",
]


class Found(NamedTuple):
    """Nothing of a predecessor is open; the cursor record, if there is one."""

    record: CursorRecord | None


class Looked(NamedTuple):
    """Nothing of ours is open in these partitions."""

    lanes: Collection[LaneKey]


class Proven(NamedTuple):
    """The cluster isolates transactions, and the cursor record names this process. twice: the end
    of one of them may have been asked for twice."""

    twice: bool


class Committed(NamedTuple):
    """The transaction and its cursor record are committed. twice: that may have been asked for
    twice."""

    twice: bool


class Aborted(NamedTuple):
    """Nothing of the transaction will ever be seen."""


class Unanswered(NamedTuple):
    """The cluster has not answered a commit or an abort: ask again."""

    reason: str


class Broke(NamedTuple):
    """The producer is of no more use. code: Kafka's name for the reason, where it has one."""

    reason: str
    code: str = ""


class Impossible(NamedTuple):
    """No retry will help."""

    error: DestinationError


TransactionEvent: TypeAlias = (
    Found | Looked | Proven | Committed | Aborted | Unanswered | Failed | Broke | Impossible
)
