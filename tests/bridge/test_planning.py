"""A batch is cut so that every record is sent once, in order, and answered for once."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

import hypothesis.strategies as st
import pytest
from hypothesis import given

from aolog import Record
from bridge.lane import Lane, Position, Refusal
from bridge.planning import MARK_EVERY, Outgoing, Poisonous, plan

if TYPE_CHECKING:
    from bridge.lane import LaneKey, Mark


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
    shares=st.lists(st.sampled_from([0, 1, 5, 300, None]), min_size=3, max_size=3),
    poison=st.sets(st.integers(0, 899), max_size=3),
    stop=st.booleans(),
    every=st.sampled_from([1, 2, 3, MARK_EVERY]),
    ordinal=st.sampled_from([None, 0, 1000]),
)
def test_every_record_is_answered_for_or_left_or_poison_exactly_once(
    lanes: list[int],
    held: list[int],
    shares: list[int | None],
    poison: set[int],
    stop: bool,
    every: int,
    ordinal: int | None,
) -> None:
    records = [record(10 * i) for i in range(len(lanes))]
    lane_of = {r.address: LANES[lane] for r, lane in zip(records, lanes, strict=True)}
    known = {
        key: Lane(opened=True, last_address=last, share=share, held=share == 0)
        for key, last, share in zip(LANES, held, shares, strict=True)
    }
    refusal = Refusal("no", "X")

    def lane_or_poison(r: Record) -> LaneKey:
        if r.address // 10 in poison:
            raise Poisonous(lane_of[r.address], refusal)
        return lane_of[r.address]

    outgoing, planned = plan(
        records,
        ordinal,
        lane_or_poison,
        known.__getitem__,
        stop_at_poison=stop,
        mark_every=every,
    )
    marks = planned.marks

    wanted: list[Record] = []
    left: dict[LaneKey, int] = {}
    refused: list[int] = []
    room = {key: known[key].room() for key in LANES}
    for r in records:
        key = lane_of[r.address]
        if r.address <= known[key].last_address:
            continue
        if key in left or room[key] == 0:
            left.setdefault(key, r.address)
        elif r.address // 10 in poison:
            refused.append(r.address)
            if stop:
                left[key] = r.address
        else:
            wanted.append(r)
            room[key] -= 1
    assert [out.record for out in outgoing] == wanted
    assert {key: place.address for key, place in planned.left.items()} == left
    assert [aside.position.address for aside in planned.poison] == refused
    assert all(aside.refusal is refusal for aside in planned.poison)
    skipped = sum(r.address <= held[LANES.index(lane_of[r.address])] for r in records)
    assert sum(count for count, _ in planned.skipped.values()) == skipped
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


def plan_one_lane(
    count: int, *, lane: Lane | None = None, **options: int
) -> tuple[list[Outgoing], list[Mark]]:
    outgoing, planned = plan(
        [record(i) for i in range(count)],
        0,
        lambda _: LANES[0],
        lambda _: lane or Lane(opened=True),
        **options,  # type: ignore[arg-type]
    )
    return outgoing, [mark for _, mark in planned.marks]


@pytest.mark.parametrize(
    ("count", "sizes"),
    [(1, [1]), (255, [255]), (256, [256]), (257, [256, 1]), (600, [256, 256, 88])],
)
def test_every_256th_record_of_a_lane_is_marked_and_the_last(count: int, sizes: list[int]) -> None:
    outgoing, marks = plan_one_lane(count)
    assert [mark.records for mark in marks] == sizes
    assert sum(out.marked for out in outgoing) == len(sizes)


def test_a_lane_that_is_not_opened_takes_one_record() -> None:
    outgoing, (mark,) = plan_one_lane(300, lane=Lane())
    assert [out.record.address for out in outgoing] == [0]
    assert (mark.records, outgoing[0].marked) == (1, True)


def test_a_record_too_large_for_the_client_is_poison_and_its_size_is_that_of_value_and_key() -> (
    None
):
    sizes = [(b"12345", None), (b"12345", b"6"), (None, b"123456"), (None, None)]
    records = [Record(i, 0, key, value, (), None) for i, (value, key) in enumerate(sizes)]
    lane = Lane(opened=True)
    outgoing, planned = plan(
        records, 0, lambda _: LANES[0], lambda _: lane, bytes_max=5, stop_at_poison=False
    )
    assert [out.record.address for out in outgoing] == [0, 3]
    assert [aside.position.address for aside in planned.poison] == [1, 2]
    assert {aside.refusal.code for aside in planned.poison} == {"MSG_SIZE_TOO_LARGE"}
    assert [mark.bytes for _, mark in planned.marks] == [5]


def test_what_was_set_aside_before_is_passed_and_a_lane_waits_for_its_turn() -> None:
    records = [record(i) for i in range(10)]
    lane = Lane(opened=True)
    outgoing, _ = plan(records, 0, lambda _: LANES[0], lambda _: lane, aside={0, 5})
    assert [out.record.address for out in outgoing] == [1, 2, 3, 4, 6, 7, 8, 9]
    lane.leave(Position(3, 3))
    outgoing, planned = plan(records[4:], 4, lambda _: LANES[0], lambda _: lane, begin=4)
    assert outgoing == []
    assert planned.left == {LANES[0]: Position(4, 4)}


def test_of_nothing_comes_nothing() -> None:
    assert plan_one_lane(0) == ([], [])
