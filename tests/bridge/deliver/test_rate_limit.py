"""RateLimit: the rate holds on average, whatever the batches."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from aolog import Writer
from bridge.deliver.rate_limit import BURST_S, RateLimit
from bridge.kafka.embedded import EmbeddedBroker
from tests.bridge.conftest import Run, append, assert_arrived, consume, fill, records_of, wait_until


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


def test_a_forwarder_keeps_its_own_limit_and_a_shared_one(
    broker: EmbeddedBroker, log: Path, forward: Callable[..., Run]
) -> None:
    fill(log, 2000)
    shared = RateLimit(bytes_per_s=1.0)
    shared.spend(0, 1_000_000, now_s=time.monotonic())
    run = forward(records_per_second=1e9, shared_limit=shared)
    assert run.until(lambda s: s.reachable and s.lag_records == 2000).acknowledged == 0
    seen = len(run.statuses)
    wait_until(lambda: len(run.statuses) > seen + 10)
    assert run.status.acknowledged == 0
    shared.change(None, None)
    run.until(lambda s: s.acknowledged == 2000)
    run.stop()
    fill(log, 6)
    begin_s = time.monotonic()
    with Writer(log, batch_bytes=1) as writer:  # a frame each
        append(writer, range(4000))
    forward(records_per_second=2000.0, bytes_per_second=1e9, drain=True).end()
    assert time.monotonic() - begin_s >= 0.9  # the first second's are there at once
    assert_arrived(records_of(log), consume(broker.bootstrap_servers))
