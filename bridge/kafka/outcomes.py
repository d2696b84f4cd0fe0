"""Outcomes of a transactional producer's calls, and which of them an error means."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from confluent_kafka import KafkaError

from bridge.kafka.client import no_transactions
from bridge.kafka.error_table import Fault, Kind, kind_of
from bridge.kafka.events import Failed

if TYPE_CHECKING:
    from collections.abc import Collection

    from bridge.errors import DestinationError
    from bridge.kafka.cursor_record import CursorRecord
    from bridge.kafka.lane import LaneKey

INVALID_STATE = KafkaError._STATE  # noqa: SLF001 -- a public name: the transaction has failed


class Found(NamedTuple):
    """Nothing of a predecessor is open. record: the cursor record, if there is one."""

    record: CursorRecord | None


class Looked(NamedTuple):
    """No transaction of this log is open in these partitions."""

    lanes: Collection[LaneKey]


class Proven(NamedTuple):
    """The cluster isolates transactions, and the cursor record names this process. twice: the end of
    a transaction may have been requested twice."""

    twice: bool


class Committed(NamedTuple):
    """The transaction and its cursor record are committed. twice: that may have been requested
    twice."""

    twice: bool


class Pending(NamedTuple):
    """The cluster has not answered: ask again."""

    reason: str


class Broke(NamedTuple):
    """The producer cannot be used any more. code: Kafka's name for the reason, if it has one."""

    reason: str
    code: str = ""


class Impossible(NamedTuple):
    """No retry helps."""

    error: DestinationError


TransactionEvent: TypeAlias = (
    Found | Looked | Proven | Committed | Pending | Failed | Broke | Impossible
)


def outcome_of(error: KafkaError) -> Pending | Failed | Broke | Impossible:
    """What an error means for the transaction."""
    kind, reason = kind_of(error.name()), f"{error.name()}: {error.str()}"
    if kind in {Kind.LOCKED_OUT, Kind.TOPIC_FORBIDDEN}:
        return Broke(reason, error.name())
    if kind in {Kind.NO_TRANSACTIONS, Kind.TRANSACTION_SETTING}:
        return Impossible(no_transactions(error))
    if kind.fault is Fault.RECORD:
        return Failed(reason, error.name())
    if error.fatal() or kind is Kind.FENCED:
        return Broke(reason)
    if error.txn_requires_abort() or error.code() == INVALID_STATE:
        return Failed(reason)
    if error.retriable() or kind is Kind.UNANSWERED:
        return Pending(reason)
    return Failed(reason)
