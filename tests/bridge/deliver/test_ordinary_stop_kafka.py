"""A stop in good order, at whatever moment, is no failure: nothing is warned of, and no error is
left in the status."""

from __future__ import annotations

import logging
import threading
from pathlib import Path

import pytest

from tests.bridge.forwarders import WAITS, Forward
from tests.bridge.logs import fill
from tests.kafka.plugin import TopicFactory
from tests.waiting import SOON_S

pytestmark = pytest.mark.kafka

STEPS, STEP_S = 10, 0.06  # from before the first connection until records flow


@pytest.mark.parametrize("delivery", ["at_least_once", "exactly_once"])
def test_a_stop_at_any_moment_of_a_start_warns_of_nothing(
    topic: TopicFactory,
    log: Path,
    forward_to: Forward,
    delivery: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    waits = WAITS._replace(answer_s=SOON_S)  # a cluster that is only slow is no failure here
    name = topic(2)
    errors: list[str] = []
    for step in range(STEPS):
        fill(log, 2_000)
        run = forward_to(name, delivery=delivery, drain=False, transaction_records=100, waits=waits)
        stop = threading.Timer(step * STEP_S, run.forwarder.stop)
        stop.start()
        status = run.end()
        stop.join()
        errors += [f"{step}: {status.error}"] if status.error is not None else []
    assert errors == []
    assert [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING] == []
