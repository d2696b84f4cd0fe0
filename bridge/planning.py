"""Cutting a batch into lanes and marks. Pure.

The last record of a batch in each lane carries a callback, and each 256th before it: so the
cursor follows closely and almost no record pays for a callback. The first record of a lane that
is not opened yet has a mark of its own (see engine).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from bridge.engine import LaneKey, Mark, Position

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from aolog import Record

__all__ = ["MARK_EVERY", "Outgoing", "plan"]

MARK_EVERY = 256  # measured: a callback each 256th record nearly doubles the rate of one a record


class Outgoing(NamedTuple):
    """A record on its way. marked: it carries its lane's callback."""

    record: Record
    lane: LaneKey
    marked: bool


def plan(
    records: Iterable[Record],
    first_ordinal: int | None,
    lane_of: Callable[[Record], LaneKey | None],
    holds: Callable[[LaneKey, int], bool],
    opened: Callable[[LaneKey], bool],
    *,
    mark_every: int = MARK_EVERY,
) -> tuple[list[Outgoing], list[tuple[LaneKey, Mark]]]:
    """The records to send, in order, and the marks to enter before the first is sent.

    first_ordinal: of the first record, None in format 1. lane_of: None for a record that is left
    out. holds: whether a lane has a record already; such a one is left out too. opened: whether a lane may be sent more than one record.
    """
    kept: list[tuple[Record, LaneKey]] = []
    open_marks: dict[LaneKey, list[tuple[int, int, int | None]]] = {}
    marks: list[tuple[LaneKey, Mark]] = []
    marked: set[int] = set()
    for i, record in enumerate(records):
        lane = lane_of(record)
        if lane is None or holds(lane, record.address):
            continue
        ordinal = None if first_ordinal is None else first_ordinal + i
        alone = lane not in open_marks and not opened(lane)
        members = open_marks.setdefault(lane, [])
        members.append((len(kept), record.address, ordinal))
        kept.append((record, lane))
        if alone or len(members) == mark_every:
            marks.append((lane, _mark(members)))
            marked.add(members[-1][0])
            members.clear()
    for lane, members in open_marks.items():
        if members:
            marks.append((lane, _mark(members)))
            marked.add(members[-1][0])
    return [Outgoing(r, lane, i in marked) for i, (r, lane) in enumerate(kept)], marks


def _mark(members: list[tuple[int, int, int | None]]) -> Mark:
    _, address, ordinal = members[0]
    return Mark(Position(address, ordinal), members[-1][1], len(members))
