"""RateLimit: the rate holds on average, whatever the batches."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from bridge.deliver.rate_limit import BURST_S, RateLimit


@given(
    rate=st.floats(1, 1e6),
    batches=st.lists(st.tuples(st.integers(0, 10_000), st.floats(0, 2)), min_size=1, max_size=50),
)
def test_no_stretch_is_faster_than_the_rate_and_a_batch(
    rate: float, batches: list[tuple[int, float]]
) -> None:
    pace = RateLimit(records_per_s=rate)
    now_s, sent = 0.0, 0
    for records, pause_s in batches:
        now_s += pause_s + pace.wait_s(now_s + pause_s)
        assert sent <= rate * (now_s + BURST_S) * (1 + 1e-9) + 1
        pace.spend(records, 0, now_s=now_s)
        sent += records


def test_of_two_limits_the_slower_holds_and_other_rates_forgive_a_debt() -> None:
    shared = RateLimit(bytes_per_s=10.0)
    both = RateLimit(records_per_s=100.0, shared=shared)
    both.spend(200, 50, now_s=0.0)
    assert both.wait_s(0.0) == 4.0
    shared.change(None, None)
    assert both.wait_s(0.0) == 1.0
    both.change(10.0, None)
    assert both.wait_s(0.0) == 0.0
    assert RateLimit().wait_s(0.0) == 0.0
