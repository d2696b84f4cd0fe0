"""A batch is cut so that every record is sent once, in order, and answered for once."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

import hypothesis.strategies as st
import pytest
from hypothesis import given

from aolog import Record
from bridge.planning import MARK_EVERY, Outgoing, plan

if TYPE_CHECKING:
    from bridge.engine import LaneKey, Mark


def record(address: int) -> Record:
    return Record(address, 0, None, b"v", (), None)


def by_lane(outgoing: list[Outgoing]) -> dict[LaneKey, list[Outgoing]]:
    found: dict[LaneKey, list[Outgoing]] = defaultdict(list)
    for out in outgoing:
        found[out.lane].append(out)
    return found


LANES: list[LaneKey] = [("t", 0), ("t", 1), ("u", 0)]


@given(
    lanes=st.lists(st.integers(0, 2), max_size=900),
    held=st.lists(st.integers(-1, 9000), min_size=3, max_size=3),
    opened=st.sets(st.integers(0, 2)),
    every=st.sampled_from([1, 2, 3, MARK_EVERY]),
    ordinal=st.sampled_from([None, 0, 1000]),
)
def test_marks_answer_for_every_record_that_is_sent_exactly_once(
    lanes: list[int], held: list[int], opened: set[int], every: int, ordinal: int | None
) -> None:
    records = [record(10 * i) for i in range(len(lanes))]
    lane_of = {r.address: LANES[lane] for r, lane in zip(records, lanes, strict=True)}
    outgoing, marks = plan(
        records,
        ordinal,
        lambda r: lane_of[r.address],
        lambda lane, address: address <= held[LANES.index(lane)],
        lambda lane: LANES.index(lane) in opened,
        mark_every=every,
    )

    sent = [out.record for out in outgoing]
    assert sent == [r for r in records if r.address > held[LANES.index(lane_of[r.address])]]
    assert all(out.lane == lane_of[out.record.address] for out in outgoing)

    marks_by_lane: dict[LaneKey, list[Mark]] = defaultdict(list)
    for lane, mark in marks:
        marks_by_lane[lane].append(mark)
    assert marks_by_lane.keys() == by_lane(outgoing).keys()
    for lane, outs in by_lane(outgoing).items():
        addresses = [out.record.address for out in outs]
        begin = 0
        for mark in marks_by_lane[lane]:
            covered = addresses[begin : begin + mark.records]
            assert (mark.first.address, mark.last_address) == (covered[0], covered[-1])
            place = covered[0] // 10
            assert mark.first.ordinal == (None if ordinal is None else ordinal + place)
            assert mark.records <= every
            begin += mark.records
        assert begin == len(addresses)
        ends = {mark.last_address for mark in marks_by_lane[lane]}
        assert {out.record.address for out in outs if out.marked} == ends
        assert outs[-1].marked
        if LANES.index(lane) not in opened:
            assert marks_by_lane[lane][0].records == 1


def plan_one_lane(count: int, **options: int) -> tuple[list[Outgoing], list[Mark]]:
    outgoing, marks = plan(
        [record(i) for i in range(count)],
        0,
        lambda _: LANES[0],
        lambda *_: False,
        lambda _: True,
        **options,
    )
    return outgoing, [mark for _, mark in marks]


@pytest.mark.parametrize(
    ("count", "sizes"),
    [(1, [1]), (255, [255]), (256, [256]), (257, [256, 1]), (600, [256, 256, 88])],
)
def test_every_256th_record_of_a_lane_is_marked_and_the_last(count: int, sizes: list[int]) -> None:
    outgoing, marks = plan_one_lane(count)
    assert [mark.records for mark in marks] == sizes
    assert sum(out.marked for out in outgoing) == len(sizes)


def test_carefully_every_record_is_marked() -> None:
    outgoing, marks = plan_one_lane(300, mark_every=1)
    assert all(out.marked for out in outgoing)
    assert {mark.records for mark in marks} == {1}


def test_of_nothing_comes_nothing() -> None:
    assert plan_one_lane(0) == ([], [])
