"""What a refused timestamp says about others: never more than the partition would say."""

from __future__ import annotations

import random
from array import array

import pytest

from bridge.kafka.admission import Bounds, RefusedTimes
from bridge.kafka.messages import Messages

NOW_MS = 1_700_000_000_000
HOUR_MS = 3_600_000
LANE, OTHER = ("t", 0), ("t", 1)
DEFAULT = Bounds(after_ms=HOUR_MS)  # Kafka's


def messages(times_ms: list[int]) -> Messages:
    """The addresses are 0, 1, 2, ..."""
    count = len(times_ms)
    return Messages(
        array("q", range(count)), [None] * count, [None] * count, [b""] * count,
        array("q", [0] * count), array("q", times_ms), bytes(36 * count), None,
    )  # fmt: skip  # one call


def refused(
    time_ms: int, others_ms: list[int], *, bounds: Bounds | None = DEFAULT, later_ms: int = 0
) -> list[int]:
    """Which of these times are refused this long after one was."""
    times = RefusedTimes(lambda _: bounds)
    times.note(LANE, time_ms, sent_ms=NOW_MS)
    given = messages(others_ms)
    found = times.refusals(given, [LANE] * len(others_ms), NOW_MS + later_ms)
    assert {refusal.code for refusal in found.values()} <= {"INVALID_TIMESTAMP"}
    return [others_ms[address] for address in found]


AHEAD = NOW_MS + 24 * HOUR_MS


@pytest.mark.parametrize(
    ("later_ms", "bounds", "others_ms", "bad_ms"),
    [(1_000, DEFAULT, [AHEAD - 1, AHEAD, AHEAD + 1], [AHEAD, AHEAD + 1]),
     (60_000, DEFAULT, [AHEAD, AHEAD + 59_999, AHEAD + 60_000], [AHEAD + 60_000]),
     (1_000, None, [AHEAD + 999, AHEAD + 1_000], [AHEAD + 1_000]),
     (601_000, DEFAULT, [AHEAD * 2], []),
     (-1_000, DEFAULT, [AHEAD - 500, AHEAD, AHEAD * 2], []),
     (1_000, DEFAULT._replace(before_ms=HOUR_MS), [AHEAD + 10, 0, 1], [AHEAD + 10])],
    ids=["a moment ago", "a minute ago", "unknown bounds", "too long ago", "this clock was set back", "two bounds"],
)  # fmt: skip  # a table
def test_after_one_that_was_too_far_ahead(
    later_ms: int, bounds: Bounds | None, others_ms: list[int], bad_ms: list[int]
) -> None:
    assert refused(AHEAD, others_ms, bounds=bounds, later_ms=later_ms) == bad_ms


def test_a_moment_ago_counts_only_if_this_clock_agrees() -> None:
    """A writer's clock is an hour ahead, and a broker's a second behind: its records become valid in a
    second."""
    time_ms = NOW_MS + HOUR_MS
    assert refused(time_ms, [time_ms, time_ms + 100], later_ms=500) == []
    assert refused(time_ms, [time_ms + 500], later_ms=500) == [time_ms + 500]


def test_after_one_that_was_too_old_older_ones_are_too_old() -> None:
    old = NOW_MS - 48 * HOUR_MS
    bounds = Bounds(before_ms=HOUR_MS, after_ms=HOUR_MS)
    others = [0, 1, old - 1, old, old + 1, NOW_MS]
    assert refused(old, others, bounds=bounds, later_ms=60_000) == [1, old - 1, old]


@pytest.mark.parametrize("time_ms", [NOW_MS, NOW_MS - 2 * HOUR_MS, NOW_MS + 2 * HOUR_MS])
def test_if_either_bound_may_be_meant_it_says_nothing(time_ms: int) -> None:
    """The clocks may differ by hours."""
    bounds = Bounds(before_ms=HOUR_MS, after_ms=HOUR_MS)
    assert refused(time_ms, [1, time_ms, AHEAD * 2], bounds=bounds) == []


def test_it_says_nothing_about_other_partitions_and_is_forgotten_on_request() -> None:
    times = RefusedTimes(lambda _: DEFAULT)
    times.note(LANE, AHEAD, sent_ms=NOW_MS)
    given = messages([AHEAD, AHEAD])
    assert list(times.refusals(given, [OTHER, LANE], NOW_MS)) == [1]
    times.forget()
    assert times.refusals(given, [OTHER, LANE], NOW_MS) == {}


def test_of_many_partitions_each_refuses_its_own_records() -> None:
    times = RefusedTimes(lambda _: DEFAULT)
    lanes = [("t", partition) for partition in range(1_000)]
    for lane in lanes:
        times.note(lane, AHEAD, sent_ms=NOW_MS)
    given = messages([AHEAD, NOW_MS, AHEAD, AHEAD - 1, AHEAD] * 1_000)
    found = times.refusals(given, lanes * 5, NOW_MS)
    assert len(found) == 3_000


def test_whatever_the_clocks_say_only_what_the_partition_refuses_is_refused() -> None:
    """As if it had been sent with the one that was refused."""
    chance, said = random.Random(5), 0
    for _ in range(5_000):
        bounds = Bounds(
            before_ms=chance.choice([1 << 62, HOUR_MS, 30 * HOUR_MS]),
            after_ms=chance.choice([HOUR_MS, 30 * HOUR_MS]),
        )
        broker_ms = NOW_MS + chance.randint(-23 * HOUR_MS, 23 * HOUR_MS)

        def takes(time_ms: int, now_ms: int, bounds: Bounds = bounds) -> bool:
            return now_ms - bounds.before_ms <= time_ms <= now_ms + bounds.after_ms

        times = [NOW_MS + chance.randint(-99 * HOUR_MS, 99 * HOUR_MS) for _ in range(20)]
        if takes(times[0], broker_ms):
            continue
        later_ms = chance.choice([0, 500, 20_000, 500_000])
        known = chance.choice([bounds, None])
        for time_ms in refused(times[0], times, bounds=known, later_ms=later_ms):
            assert not takes(time_ms, broker_ms)
            assert later_ms <= 10_000 or not takes(time_ms, broker_ms + later_ms)
            said += 1
    assert said > 10_000
