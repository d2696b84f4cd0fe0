"""The delivery engine finds poison by bisection. What becomes of it: test_engine_model.py."""

from __future__ import annotations

import pytest

from tests.bridge.deliver.at_least_once.engines import (
    A,
    many,
    opened,
    read,
    reconnect,
    sending,
)

# --- refusals -------------------------------------------------------------------------------


def test_a_lane_is_bisected_in_groups_a_32nd_as_large() -> None:
    e = opened()
    many(e, 10_000)
    groups = []
    for _ in range(3):
        e.suspect("no", "MSG_SIZE_TOO_LARGE", A, now_s=0.0)
        assert e.careful
        reconnect(e)
        assert e.lanes[A].room() == 1  # a single record opens it first
        read(e, 10_002, {A: range(2, 10_002)})
        assert e.outstanding == 1
        e.delivered(A, e.position.address, -1, now_s=0.0)
        groups.append(e.lanes[A].room())
        read(e, 10_002, {A: range(2, 10_002)})
        assert e.outstanding == groups[-1]
        assert e.lanes[A].room() == 0  # one group at a time
    assert groups == [312, 9, 1]
    assert list(e.suspect("no", "MSG_SIZE_TOO_LARGE", A, now_s=0.0)) == [5]
    reconnect(e)
    e.lanes[A].opened = True
    groups = []
    for last in (5, 12, 13, 315, 400, 10_000, 10_001):
        e.lanes[A].arrived(last)
        groups.append(e.lanes[A].room())
    assert groups[:6] == [1, 9, 9, 312, 312, 312]  # the other suspects go through in larger groups
    assert groups[6] > 10_000


def test_a_refusal_that_teaches_nothing_is_retried_after_growing_pauses() -> None:
    """No report names the lane."""
    e = sending()
    pauses = []
    for _ in range(20):
        read(e, 10, {A: [0]})
        e.suspect("no", "_GAPLESS_GUARANTEE", now_s=0.0)
        pauses.append(e.seconds_to_tick(0.0))
        reconnect(e)
    assert pauses[0] > 0
    assert pauses[4] > 2 * pauses[0]
    assert pauses[-1] <= 30.0


@pytest.mark.parametrize("code", ["_INVALID_DIFFERENT_RECORD", "INVALID_TIMESTAMP"])
def test_if_the_cluster_names_records_the_same_are_sent_once_more_with_a_report_each(
    code: str,
) -> None:
    e = opened()
    many(e, 1_000)
    rooms = []
    for _ in range(2):  # the second time it named none
        e.suspect("no", code, A, now_s=0.0)
        reconnect(e)
        e.lanes[A].opened = True
        rooms.append(e.lanes[A].room())
        read(e, 1_002, {A: range(2, 1_002)})
    assert rooms == [1_000, 31]


def test_if_few_records_had_a_report_the_others_are_sent_again_with_one_each() -> None:
    e = opened()
    many(e, 1_000)
    guilty = list(e.suspect("no", "INVALID_RECORD", A, named=[257], now_s=0.0))
    reconnect(e)
    e.lanes[A].opened = True
    assert e.lanes[A].room() == 1_000
    read(e, 1_002, {A: range(2, 1_002)}, poison=guilty)
    assert [mark.records for mark in e.lanes[A].outstanding] == [1] * 255  # up to the named one
