"""What stops logs, said once; whether clusters answer; when a disk is full."""

from __future__ import annotations

import random

import pytest

from bridge.deliver.rate_limit import LIMITED_S, RateLimit
from bridge.kafka.error_table import advice
from bridge.kafka.stalls import Stall
from bridge.operate.health import Health, troubles_of
from bridge.operate.monitor import Trend
from bridge.supervise.status import STUCK_S, LogStatus, state_of
from bridge.supervise.turns import Phase
from tests.bridge.operate.endpoints import STATUS
from tests.bridge.operate.shown import MISSING, WELL

AWAY = WELL._replace(state="connecting", error="b:9092: connection refused; trying again")
STALL = Stall(topic="t", partition=1, leader="b1", seconds=9.0)


@pytest.mark.parametrize(
    ("log", "cause", "advised", "needs"),
    [
        (AWAY, "b:9092: connection refused", "wait; if the brokers are up", "nothing"),
        (MISSING, "there is no topic 'orders'", "create it", "cause"),
        (
            AWAY._replace(error="b:9092: it closes the connection at once: check security.protocol"),
            "b:9092: it closes the connection at once", "check security.protocol", "cause",
        ),
        (
            AWAY._replace(error=f"_AUTHENTICATION: no: {advice('_AUTHENTICATION')}"),
            "_AUTHENTICATION: no", "check the user, the password", "cause",
        ),
        (WELL._replace(phase=Phase.PAUSED, state="blocked"), "paused", "resume it", "cause"),
        (WELL._replace(silent_s=STUCK_S + 1), "hangs", "look at the disk", "cause"),
        (
            WELL._replace(phase=Phase.STANDING, state="blocked", error="fenced; stop the other one"),
            "fenced", "stop the other one", "retry",
        ),
        (
            WELL._replace(phase=Phase.WAITING, state="blocked", error="another bridge has it; wait"),
            "another bridge has it", "wait", "nothing",
        ),
        (
            WELL._replace(state="blocked", error="no acknowledgement from t/1 for 9 s",
                          status=STATUS._replace(stalled=(STALL,))),
            "no acknowledgement from t/1", "look at the broker", "nothing",
        ),
    ],
)  # fmt: skip  # a table
def test_a_trouble_has_a_cause_what_to_do_and_whether_it_needs_somebody(
    log: LogStatus, cause: str, advised: str, needs: str
) -> None:
    (trouble,) = troubles_of(log)
    assert cause in trouble.cause
    assert "trying again" not in trouble.cause
    assert advised in trouble.advice
    assert advised not in trouble.cause
    assert trouble.needs == needs


def test_a_log_that_goes_on_has_no_trouble_and_a_topic_that_is_being_created_is_none() -> None:
    assert troubles_of(WELL) == []
    assert troubles_of(MISSING._replace(state="live", error=None)) == []


def test_a_cause_is_shown_once_since_it_began_and_those_that_need_somebody_come_first() -> None:
    health = Health()
    logs = [AWAY._replace(log="a"), MISSING._replace(log="b"), MISSING._replace(log="c")]
    health.see(logs[:1], None, 100.0)
    health.see(logs, None, 110.0)
    assert [(t.since_s, t.logs) for t in health.troubles] == [(110.0, ("b", "c")), (100.0, ("a",))]
    health.see(logs[1:], None, 112.0)
    health.see(logs, "the root is missing", 114.0)  # away for a moment only
    assert [t.since_s for t in health.troubles] == [110.0, 114.0, 100.0]
    health.see([], None, 120.0)
    assert health.troubles == []
    health.see(logs[:1], None, 200.0)
    assert health.troubles[0].since_s == 200.0


@pytest.mark.parametrize(
    ("logs", "state"),
    [
        ([WELL], "answers"),
        ([AWAY, WELL], "answers"),
        ([WELL._replace(status=STATUS._replace(stalled=(STALL,)))], "stalled"),
        ([WELL._replace(status=STATUS._replace(stalled=(STALL,))), WELL], "answers"),
        ([AWAY._replace(status=STATUS._replace(reachable=False))], "no answer"),
        (
            [AWAY._replace(error=f"_AUTHENTICATION: no: {advice('_AUTHENTICATION')}",
                           status=STATUS._replace(reachable=False))],
            "refuses",
        ),
        ([WELL._replace(phase=Phase.PARKED)], "answers"),
        ([WELL._replace(phase=Phase.PAUSED, state="blocked")], "not asked"),
    ],
)  # fmt: skip  # a table
def test_a_cluster_answers_if_one_log_reaches_it(logs: list[LogStatus], state: str) -> None:
    health = Health()
    health.see(logs, None, 5.0)
    assert [(c.cluster, c.state, c.since_s) for c in health.clusters] == [("main", state, 5.0)]


def test_a_log_that_a_rate_limit_holds_back_is_limited_between_its_batches_too() -> None:
    limit = RateLimit(records_per_s=10)
    limit.spend(5, 0, now_s=0.0)
    assert limit.wait_s(0.0) == 0
    assert not limit.limits(0.0)
    limit.spend(15, 0, now_s=0.0)
    assert limit.wait_s(0.0) > 0
    assert limit.limits(LIMITED_S / 2)
    assert not limit.limits(LIMITED_S)
    assert state_of(STATUS._replace(limited=True)) == "limited"
    assert state_of(STATUS._replace(limited=True, lag_bytes=0)) == "live"


def test_the_time_to_a_full_disk_is_steady_in_spite_of_bursts_and_prunes() -> None:
    chance, trend, free = random.Random(1), Trend(), 1e12
    answers = []
    for second in range(1, 3600):
        free -= chance.choice((0, 0, 0, 8e6))  # 2 MB a second, in bursts
        found_s = trend.add(second, free)
        if second > 900:
            answers.append(found_s)
    known = [found_s for found_s in answers if found_s is not None]
    assert len(known) == len(answers)
    assert max(known) < 1.5 * min(known)


def test_a_disk_that_is_pruned_as_it_fills_is_not_filling() -> None:
    trend, answers = Trend(), []
    for second in range(3600):
        answers.append(trend.add(second, 1e9 - second % 60 * 1e6))
    assert set(answers[900:]) == {None}
