"""What a producer reports: of records, and how a call of a transactional one ended."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple, TypeAlias, TypeVar

from confluent_kafka import KafkaError

from bridge.errors import DestinationError, NotIsolated
from bridge.kafka.cursor_record import CursorRecord
from bridge.kafka.error_table import Fault, Kind, kind_of, row_of
from bridge.kafka.lane import LaneKey, Refusal

INVALID_STATE = KafkaError._STATE  # noqa: SLF001 -- a public name: the transaction has failed


class Put(NamedTuple):
    """What a producer took."""

    records: int  # that were queued
    refusal: Refusal | None  # why the next one can never be sent, if it cannot
    spoiled: bool = False  # it takes no more; the next poll, or the transaction's commit, says why


class Delivered(NamedTuple):
    """A record that has a callback is in its partition, and so are all before it in its lane."""

    lane: LaneKey
    address: int
    offset: int


class Failed(NamedTuple):
    """Something was not delivered."""

    reason: str
    code: str = ""  # Kafka's name for the reason, if it says more than the reason
    lane: LaneKey | None = None  # as address, time_ms: of the record that reported it, if one did
    address: int | None = None
    time_ms: int | None = None
    named: tuple[int, ...] = ()  # the addresses of the records that the cluster names

    @property
    def suspect(self) -> bool:
        """Whether the cluster refused a request, perhaps because of one record in it."""
        return kind_of(self.code).fault is Fault.RECORD


KafkaEvent = Delivered | Failed
_Event = TypeVar("_Event")


def with_names(events: Iterable[_Event]) -> list[_Event | Failed]:
    """Replaces a lane's reports on a refused request by one that names the refused records, if the
    cluster named them: then, and only then, it reports the other records as innocent."""
    reports: dict[LaneKey, list[Failed]] = {}
    others: list[_Event | Failed] = []
    for event in events:
        if isinstance(event, Failed) and event.lane is not None:
            reports.setdefault(event.lane, []).append(event)
        else:
            others.append(event)
    by_name: list[_Event | Failed] = []
    by_request: list[_Event | Failed] = []
    for of_lane in reports.values():
        guilty = [report for report in of_lane if kind_of(report.code) is Kind.POISON]
        if 0 < len(guilty) < len(of_lane):
            named = tuple(r.address for r in guilty if r.address is not None)
            by_name.append(guilty[0]._replace(named=named))
        else:
            by_request += of_lane
    return others + by_name + by_request


class Found(NamedTuple):
    """Nothing of a predecessor is open. record: the cursor record, if there is one."""

    record: CursorRecord | None


class Looked(NamedTuple):
    """No transaction of this log is open in these partitions."""

    lanes: Collection[LaneKey]


class Proven(NamedTuple):
    """The cluster isolates transactions, and its cursor record names this process. twice: as of Committed."""

    twice: bool


class Committed(NamedTuple):
    """The transaction and its cursor record are committed. twice: that may have been requested twice."""

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
    (kind, cause, does), reason = row_of(error.name()), f"{error.name()}: {error.str()}"
    if kind in {Kind.LOCKED_OUT, Kind.TOPIC_FORBIDDEN}:
        return Broke(reason, error.name())
    if kind is Kind.NO_TRANSACTIONS:
        return Impossible(NotIsolated(f"the cluster has no transactions: {reason}", hint=does))
    if kind is Kind.TRANSACTION_SETTING:
        return Impossible(DestinationError(cause, hint=does))
    if kind.fault is Fault.RECORD:
        return Failed(reason, error.name())
    if error.fatal() or kind is Kind.FENCED:
        return Broke(reason)
    if error.txn_requires_abort() or error.code() == INVALID_STATE:
        return Failed(reason)
    if error.retriable() or kind is Kind.UNANSWERED:
        return Pending(reason)
    return Failed(reason)
