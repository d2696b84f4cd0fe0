"""A lane that has something under way and makes no progress is named, until it makes some."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from bridge.kafka.lane import LaneKey
from bridge.kafka.stalls import SAY_AGAIN_S, STALLED_S, Sent, Stall, Stalls

A, B = ("t", 0), ("t", 1)
BEGIN: Callable[[LaneKey], int | None] = lambda _: 100
NONE: tuple[list[Stall], list[Stall]] = ([], [])


def sent(waiting: int, acknowledged: int = 0, leader: str = "b:1, node 1") -> Sent:
    return Sent(waiting, acknowledged, leader)


def stalled(at_s: float = 0.0, low: Callable[[LaneKey], int | None] = BEGIN) -> Stalls:
    """A has been stalled since then, and that was logged."""
    stalls = Stalls()
    assert stalls.see({A: sent(3, 5)}, low, at_s) == NONE
    ((one,), _) = stalls.see({A: sent(3, 5)}, low, at_s + STALLED_S)
    assert one == Stall(topic="t", partition=0, leader="b:1, node 1", seconds=STALLED_S)
    return stalls


def lanes(stalls: list[Stall]) -> list[LaneKey]:
    return [(stall["topic"], stall["partition"]) for stall in stalls]


def test_a_lane_that_is_stalled_is_named_with_its_age_until_it_acknowledges() -> None:
    stalls = stalled()
    assert stalls.now(20.0)[0]["seconds"] == 20.0
    _, (over,) = stalls.see({A: sent(2, 6)}, BEGIN, 21.0)
    assert (lanes([over]), over["seconds"]) == ([A], 21.0)
    assert stalls.now(21.0) == []


def test_a_stall_is_logged_once_and_again_each_minute() -> None:
    stalls = stalled()
    said = [s for s in range(8, 200) if stalls.see({A: sent(3, 5)}, BEGIN, float(s))[0]]
    assert said == [7 + SAY_AGAIN_S, 7 + 2 * SAY_AGAIN_S, 7 + 3 * SAY_AGAIN_S]


def test_another_lane_that_stalls_is_logged_at_once() -> None:
    stalls = stalled()
    both: Mapping[LaneKey, Sent] = {A: sent(3, 5), B: sent(1)}
    assert stalls.see(both, BEGIN, 10.0) == NONE
    now, _ = stalls.see(dict(both), BEGIN, 17.0)
    assert lanes(now) == [A, B]


def test_a_new_connection_and_an_aborted_transaction_end_no_stall() -> None:
    stalls = stalled()
    for at_s, again in [(8.0, {}), (9.0, {A: sent(0)}), (10.0, {A: sent(1)})]:
        assert stalls.see(again, BEGIN, at_s) == NONE
        assert stalls.now(at_s)[0]["seconds"] == at_s
    _, over = stalls.see({A: sent(0, 1)}, BEGIN, 11.0)
    assert lanes(over) == [A]


def test_records_that_were_passed_end_a_stall() -> None:
    for low in (None, 200):
        stalls = stalled()
        _, over = stalls.see({A: sent(0, 5)}, lambda _, low=low: low, 8.0)
        assert (lanes(over), stalls.now(8.0)) == ([A], [])
