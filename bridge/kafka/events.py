"""What a producer reports. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeVar

from bridge.kafka.error_table import Fault, Kind, kind_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bridge.kafka.lane import LaneKey, Refusal


class Put(NamedTuple):
    """records: how many were queued. refusal: why the next one can never be sent, if it cannot.
    spoiled: the producer takes no more; the next poll, or the transaction's commit, reports why."""

    records: int
    refusal: Refusal | None
    spoiled: bool = False


class Delivered(NamedTuple):
    """A record that has a callback is in its partition, and so are all before it in its lane."""

    lane: LaneKey
    address: int
    offset: int


class Failed(NamedTuple):
    """Something was not delivered. code: Kafka's name for the reason, if it says more than the reason.
    lane, address, time_ms: of the record whose callback reported it, if one did. named: the addresses of
    the records that the cluster names."""

    reason: str
    code: str = ""
    lane: LaneKey | None = None
    address: int | None = None
    time_ms: int | None = None
    named: tuple[int, ...] = ()

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
