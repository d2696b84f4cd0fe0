"""Pace: the rate holds on average, whatever the batches."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from bridge.pace import BURST_S, Pace


def test_without_a_bound_there_is_no_wait() -> None:
    pace = Pace()
    pace.spend(10**9, 10**12, now_s=0.0)
    assert pace.wait_s(0.0) == 0.0


def test_the_scarcer_of_the_two_counts() -> None:
    pace = Pace(records_per_s=10, bytes_per_s=1_000)
    pace.spend(20, 1_000, now_s=5.0)
    assert pace.wait_s(5.0) == 1.0
    pace.spend(0, 3_000, now_s=5.0)
    assert pace.wait_s(5.0) == 3.0
    assert pace.wait_s(8.0) == 0.0


def test_a_clock_that_stands_or_goes_back_gives_nothing() -> None:
    pace = Pace(records_per_s=10)
    pace.spend(20, 0, now_s=5.0)
    assert pace.wait_s(5.0) == pace.wait_s(4.0) == 1.0
    assert pace.wait_s(5.0) == 1.0


@given(
    rate=st.floats(1, 1e6),
    batches=st.lists(st.tuples(st.integers(0, 10_000), st.floats(0, 2)), min_size=1, max_size=50),
)
def test_no_stretch_is_faster_than_the_rate_and_a_batch(
    rate: float, batches: list[tuple[int, float]]
) -> None:
    pace = Pace(records_per_s=rate)
    now_s, sent = 0.0, 0
    for records, pause_s in batches:
        now_s += pause_s + pace.wait_s(now_s + pause_s)
        assert sent <= rate * (now_s + BURST_S) * (1 + 1e-9) + 1
        pace.spend(records, 0, now_s=now_s)
        sent += records


@given(st.floats(1, 1e6), st.lists(st.integers(1, 10_000), min_size=2, max_size=50))
def test_whoever_waits_no_longer_than_told_reaches_the_rate(
    rate: float, batches: list[int]
) -> None:
    pace = Pace(records_per_s=rate)
    now_s = 0.0
    for records in batches:
        now_s += pace.wait_s(now_s)
        pace.spend(records, 0, now_s=now_s)
    assert now_s <= sum(batches[:-1]) / rate * (1 + 1e-6) + 1e-6
