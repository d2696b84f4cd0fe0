"""A batch is cut so that every record is sent once, in order, and answered for once."""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Mapping, Sequence

import hypothesis
import hypothesis.strategies as st
import pytest

from aolog.record import Position
from bridge.config.run_options import Poison
from bridge.deliver.at_least_once.batch_planner import MARK_EVERY, plan
from bridge.deliver.at_least_once.lanes import NARROWING, Lane, Mark
from bridge.deliver.verdicts import Given, Judge, Verdict
from bridge.kafka.lane import LaneKey, Refusal


def given(
    addresses: Sequence[int],
    lanes: Sequence[LaneKey | None],
    ordinal: int | None = 0,
    *,
    sizes: Sequence[int] | None = None,
    verdicts: Mapping[int, Verdict] | None = None,
) -> Given:
    sizes = [1] * len(addresses) if sizes is None else sizes
    return Given(addresses, array("q", sizes), lanes, ordinal, verdicts or {}, list)


def by_lane(sent: Sequence[int], lanes: Sequence[LaneKey]) -> dict[LaneKey, list[int]]:
    found: dict[LaneKey, list[int]] = defaultdict(list)
    for i in sent:
        found[lanes[i]].append(i)
    return found


LANES: list[LaneKey] = [("t", 0), ("t", 1), ("u", 0)]


@hypothesis.given(
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
    addresses = [10 * i for i in range(len(lanes))]
    lane_of = [LANES[lane] for lane in lanes]
    known = {
        key: Lane(opened=True, last_address=last, share=share, held=share == 0)
        for key, last, share in zip(LANES, held, shares, strict=True)
    }
    refusal = Refusal("no", "INVALID_RECORD")
    verdict = Verdict(refusal, stop)
    planned = plan(
        given(addresses, lane_of, ordinal, verdicts={10 * i: verdict for i in poison}),
        known.__getitem__,
        mark_every=every,
    )
    sent, marks = planned.sent, planned.marks

    wanted: list[int] = []
    left: dict[LaneKey, int] = {}
    refused: list[int] = []
    room = {key: known[key].room() for key in LANES}
    for i, (address, key) in enumerate(zip(addresses, lane_of, strict=True)):
        if address <= known[key].last_address:
            continue
        if key in left or room[key] == 0:
            left.setdefault(key, address)
        elif i in poison:
            refused.append(address)
            if stop:
                left[key] = address
        else:
            wanted.append(i)
            room[key] -= 1
    assert list(sent) == wanted
    assert {key: place.address for key, place in planned.left.items()} == left
    asides = [*planned.aside, *planned.stops]
    assert bool(planned.stops if stop else planned.aside) == bool(asides)
    assert sorted(aside.position.address for aside in asides) == refused
    assert all(aside.refusal is refusal for aside in asides)
    assert all(aside.lane == lane_of[aside.position.address // 10] for aside in asides)
    skipped = sum(a <= held[lane] for a, lane in zip(addresses, lanes, strict=True))
    assert sum(count for count, _ in planned.skipped.values()) == skipped

    marks_by_lane: dict[LaneKey, list[Mark]] = defaultdict(list)
    for lane, mark in marks:
        marks_by_lane[lane].append(mark)
    assert marks_by_lane.keys() == by_lane(sent, lane_of).keys()
    for lane, indices in by_lane(sent, lane_of).items():
        begin = 0
        for mark in marks_by_lane[lane]:
            covered = indices[begin : begin + mark.records]
            assert mark.first.address == addresses[covered[0]]
            assert mark.first.ordinal == (None if ordinal is None else ordinal + covered[0])
            assert mark.last_address == addresses[covered[-1]]
            assert mark.records == mark.bytes == len(covered)
            assert mark.records <= every
            begin += mark.records
        assert begin == len(indices)


def plan_one_lane(
    count: int, *, lane: Lane | None = None, **options: int
) -> tuple[list[int], list[Mark]]:
    planned = plan(
        given(range(count), [LANES[0]] * count),
        lambda _: lane or Lane(opened=True),
        **options,  # type: ignore[arg-type]
    )
    return list(planned.sent), [mark for _, mark in planned.marks]


@pytest.mark.parametrize("policy", ["stop", "drop", "dead-letter"])
def test_a_lane_stops_before_a_refusal_that_is_not_the_records_fault_with_every_policy(
    policy: Poison,
) -> None:
    missing, poison = Refusal("no topic", "UNKNOWN_TOPIC_OR_PART"), Refusal("no", "INVALID_RECORD")
    verdicts = Judge(policy).verdicts({1: poison, 2: missing})
    if policy == "stop":
        del verdicts[1]
    planned = plan(given(range(4), [LANES[0]] * 4, verdicts=verdicts), lambda _: Lane(opened=True))
    assert list(planned.sent) == ([0, 1] if policy == "stop" else [0])
    assert planned.left == {LANES[0]: Position(2, 2)}
    assert [aside.refusal for aside in planned.stops] == [missing]
    assert [aside.refusal for aside in planned.aside] == ([] if policy == "stop" else [poison])


def test_while_a_lane_is_bisected_each_record_carries_a_callback() -> None:
    lane = Lane(opened=True)
    lane.bisection.refused(900, 300 * NARROWING, names=False)
    _, marks = plan_one_lane(300, lane=lane)
    assert [mark.records for mark in marks] == [1] * 300


def test_records_of_another_cluster_are_not_sent() -> None:
    lane = Lane(opened=True)
    planned = plan(given(range(4), [None, LANES[0], None, LANES[0]]), lambda _: lane)
    assert list(planned.sent) == [1, 3]
    assert planned.marks == [(LANES[0], Mark(Position(1, 1), 3, 2, 2))]


def test_records_that_were_set_aside_are_skipped_and_earlier_records_of_a_lane_come_first() -> None:
    lane = Lane(opened=True)
    judge = Judge("dead-letter")
    judge.aside = {0, 5}
    lanes = judge.without_aside(range(10), [LANES[0]] * 10)
    planned = plan(given(range(10), lanes), lambda _: lane)
    assert list(planned.sent) == [1, 2, 3, 4, 6, 7, 8, 9]
    lane.leave(Position(3, 3))
    later = given(range(4, 10), [LANES[0]] * 6, 4)
    planned = plan(later, lambda _: lane, begin=4)
    assert list(planned.sent) == []
    assert planned.left == {LANES[0]: Position(4, 4)}
