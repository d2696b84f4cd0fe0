"""Bridges in every state, for the tests of the page: the statuses are the test's, the page and its server real."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from aolog.storage.storage import Storage
from bridge.deliver.status import WaitingLane
from bridge.kafka.stalls import Stall
from bridge.operate.access import Access
from bridge.operate.endpoint import serving
from bridge.operate.monitor import POINT_S, Monitor
from bridge.supervise.status import LogStatus
from bridge.supervise.turns import Phase
from tests.bridge.operate.endpoints import LOG, STATUS

HOSTILE = 'x"><img src=/ onerror=alert(1)><script>alert(1)</script>'
LONG = "department/" + "a-name-without-a-single-space" * 6
WELL = LOG._replace(
    state="live", lost_records=0, gaps=0, dead_lettered=0, dropped=0, filtered=0, restarts=0,
    status=STATUS._replace(lost_records=0, gaps=0, dead_lettered=0, dropped=0),
)  # fmt: skip  # one value
_REASON = "there is no topic 'orders'"
_LANE: WaitingLane = {
    "topic": "orders", "partition": -1, "state": "waits", "cause": _REASON,
    "code": "UNKNOWN_TOPIC_OR_PART",
    "reason": f"orders waits at address 9: {_REASON}: create it, or send its records elsewhere with a route",
}  # fmt: skip  # one value
MISSING = WELL._replace(
    state="blocked", error=_LANE["reason"], status=STATUS._replace(waiting_lanes=(_LANE,))
)


class Shown:
    """A bridge whose statuses the test sets."""

    def __init__(self, *logs: LogStatus) -> None:
        self.logs: list[LogStatus] = list(logs) or [LOG]
        self._past_s: float | None = None  # while the past is made
        self.monitor = Monitor(lambda: self.logs, Storage(), clock=self._clock, now=self._now)

    def _clock(self) -> float:
        return time.monotonic() if self._past_s is None else self._past_s

    def _now(self) -> float:
        return time.time() - time.monotonic() + self._clock()

    def past(self, points: int, rates: Sequence[int]) -> None:
        """What the first log has done so far, at these records a second in turn."""
        log, at_s = self.logs[0], time.monotonic() - points * POINT_S
        for point in range(points):
            self._past_s = at_s + point * POINT_S
            self.logs[0] = log._replace(
                acknowledged=log.acknowledged + int(rates[point % len(rates)] * POINT_S)
            )
            log = self.logs[0]
            self.monitor.sample()
        self._past_s = None

    @contextmanager
    def served(self, token: str | None = None, **given: Any) -> Iterator[str]:
        """The address of its page."""
        with serving(Access("127.0.0.1:0", token), self.monitor, **given) as at:
            yield f"http://127.0.0.1:{at[1]}/"


def healthy() -> Shown:
    """Three logs that go on."""
    shown = Shown(
        *(WELL._replace(log=name) for name in ("orders/checkout", "orders/returns", LONG))
    )
    shown.past(200, [500, 620, 480, 540])
    return shown


def in_trouble() -> Shown:
    """A missing topic, a partition that stalls, a log that stands, one that is paused."""
    stall = Stall(topic="events", partition=3, leader="b1:9092, node 1", seconds=12.0)
    stalled = STATUS._replace(stalled=(stall,))
    late = "no acknowledgement from events/3 for 12 s (leader b1:9092, node 1)"
    return Shown(
        MISSING._replace(log="orders/checkout"),
        MISSING._replace(log="orders/returns"),
        WELL._replace(log="sensors/roof", state="blocked", error=late, status=stalled),
        WELL._replace(log=LONG, phase=Phase.STANDING, state="blocked", error=HOSTILE * 3),
        WELL._replace(log="paused", phase=Phase.PAUSED, state="blocked", error="paused"),
        LOG._replace(log="limited", state="limited"),
    )


def cut_off() -> Shown:
    """No broker answers."""
    away = (
        "a-long-name-of-a-broker.in-some.cluster.example.com:9092: connection refused; trying again"
    )
    status = STATUS._replace(reachable=False)
    waiting = WELL._replace(state="connecting", error=away, status=status)
    logs = [waiting._replace(log=f"app/{i}") for i in range(3)]
    return Shown(*logs, WELL._replace(log="idle", phase=Phase.PARKED))


def crowded() -> Shown:
    """More logs than the page lists, with great numbers."""
    great = LOG._replace(acknowledged=10**13, lost_records=10**12)
    return Shown(
        *(great._replace(log=f"{LONG}/{i}", cluster=f"cluster-{i % 3}") for i in range(300))
    )


BRIDGES: dict[str, Callable[[], Shown]] = {
    "healthy": healthy, "in trouble": in_trouble, "cut off": cut_off, "crowded": crowded,
    "hostile": lambda: Shown(LOG._replace(log=HOSTILE, cluster=HOSTILE, error=HOSTILE)),
}  # fmt: skip  # a table
