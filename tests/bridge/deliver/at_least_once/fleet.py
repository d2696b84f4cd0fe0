"""A fleet of bridges after an outage of their cluster: how hard it is trampled, and for how long.

A simulation in steps of time, not of Kafka: bridges that all lost one cluster at the same moment
try to connect again as the engine does (a pause that doubles up to a bound, with or without
jitter); the cluster greets so many a second, in order; who waits longer than its patience begins
anew, though the greeting is made. Who is connected sends what it holds back, up to its limit, and
what comes meanwhile, with one request of a bounded size under way. The cluster serves what it can,
shared by what is asked. What is measured is the worst second.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bridge.deliver.at_least_once.window import BYTES_MIN, step

__all__ = ["Fleet", "Outcome", "simulate"]

_STEP_S = 0.1
_END_S = 24 * 3600.0


class Fleet(NamedTuple):
    """bytes_per_s: what each bridge's log grows by. capacity: the cluster's, in multiples of what
    the whole fleet writes on a usual day. greetings_per_s: connections that the cluster opens. request_bytes: the most that a
    bridge has under way. limit: of a bridge's drain, in multiples of its usual rate; None: none.
    window: what is under way is bounded as bridge.deliver.at_least_once.window does, else by what a request takes."""

    bridges: int = 10_000
    outage_s: float = 3600.0
    bytes_per_s: float = 10_000.0
    capacity: float = 3.0
    greetings_per_s: float = 1_000.0
    patience_s: float = 30.0
    backoff_max_s: float = 30.0
    request_bytes: float = 1_000_000.0
    link_bytes_per_s: float = 10_000_000.0
    round_trip_s: float = 0.02
    jitter: bool = True
    limit: float | None = None
    window: bool = True


class Outcome(NamedTuple):
    """connected_s: until every bridge is connected. peak_attempts: in the worst second, to
    connect. peak_wait_s: for a request, behind what the cluster was given before. recovered_s:
    until no bridge holds anything back."""

    connected_s: float
    peak_attempts: float
    peak_wait_s: float
    recovered_s: float


def simulate(fleet: Fleet, *, seed: int = 0) -> Outcome:
    """What becomes of it."""
    greeter = _Greeter(fleet, np.random.default_rng(seed))
    served = _Served(fleet)
    steps = round(_END_S / _STEP_S)
    for i in range(1, steps + 1):
        greeter.step(i * _STEP_S)
        served.step(greeter.connected)
        if greeter.all_s is not None and served.recovered:
            return Outcome(greeter.all_s, greeter.peak(), served.peak_wait_s, i * _STEP_S)
    return Outcome(greeter.all_s or _END_S, greeter.peak(), served.peak_wait_s, _END_S)


class _Greeter:
    """Who tries to connect when, and who is let in."""

    def __init__(self, fleet: Fleet, entropy: np.random.Generator) -> None:
        self._fleet = fleet
        self._entropy = entropy
        self.connected = np.zeros(fleet.bridges, bool)
        self.all_s: float | None = None
        # After an hour every pause is the longest. Those with jitter have long lost their step.
        self._next_try_s = self._pauses(fleet.bridges)
        if fleet.jitter:
            self._next_try_s *= entropy.random(fleet.bridges)
        self._waiting = np.zeros(fleet.bridges, bool)
        self._since_s = np.zeros(fleet.bridges)
        self._line: list[np.ndarray] = []
        self._may_greet = 0.0
        self._attempts: list[int] = []

    def _pauses(self, count: int) -> np.ndarray:
        longest = np.full(count, self._fleet.backoff_max_s)
        return longest * self._entropy.uniform(0.5, 1.0, count) if self._fleet.jitter else longest

    def peak(self) -> float:
        """Attempts in the worst second."""
        steps = round(1 / _STEP_S)
        return max(sum(self._attempts[i : i + steps]) for i in range(len(self._attempts)))

    def step(self, now_s: float) -> None:
        if self.all_s is not None:
            return
        trying = np.flatnonzero(~self.connected & ~self._waiting & (self._next_try_s <= now_s))
        self._waiting[trying] = True
        self._since_s[trying] = now_s
        self._attempts.append(len(trying))
        if len(trying):
            self._line.append(trying)
        self._greet()
        late = np.flatnonzero(self._waiting & (now_s - self._since_s > self._fleet.patience_s))
        self._waiting[late] = False  # its place in the line is greeted all the same
        self._next_try_s[late] = now_s + self._pauses(len(late))
        if self.connected.all():
            self.all_s = now_s

    def _greet(self) -> None:
        self._may_greet += self._fleet.greetings_per_s * _STEP_S
        while self._line and self._may_greet >= 1:
            head, rest = np.split(self._line[0], [int(self._may_greet)])
            self._line[:1] = [rest] if len(rest) else []
            self._may_greet -= len(head)
            self.connected[head[self._waiting[head]]] = True
            self._waiting[head] = False
        if not self._line:
            self._may_greet = min(self._may_greet, 1.0)


class _Served:
    """What those who are connected send, and how long it waits."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._backlog = np.full(fleet.bridges, fleet.outage_s * fleet.bytes_per_s)
        begin = BYTES_MIN if fleet.window else fleet.request_bytes
        self._window = np.full(fleet.bridges, float(begin))
        self._wait_s = fleet.round_trip_s
        self.peak_wait_s = 0.0

    @property
    def recovered(self) -> bool:
        return not (self._backlog > self._fleet.bytes_per_s).any()

    def step(self, connected: np.ndarray) -> None:
        fleet, usual = self._fleet, self._fleet.bytes_per_s
        capacity = fleet.capacity * fleet.bridges * usual
        most = fleet.link_bytes_per_s
        if fleet.limit is not None:
            most = min(most, fleet.limit * usual)
        # What is asked for is what waits in the cluster, and how long it does is what each sees.
        holds = connected & (self._backlog > usual * _STEP_S)
        under_way = np.minimum(np.minimum(self._window, self._backlog), most * self._wait_s) * holds
        self._wait_s = fleet.round_trip_s + float(under_way.sum()) / capacity
        self.peak_wait_s = max(self.peak_wait_s, self._wait_s)
        rate = np.where(holds, np.minimum(under_way / self._wait_s, most), usual) * connected
        rate *= min(1.0, capacity / max(1.0, float(rate.sum())))
        self._backlog = np.maximum(0.0, self._backlog + (usual - rate) * _STEP_S)
        if fleet.window:
            window = step(
                self._window,
                under_way=under_way,
                acknowledged=rate * _STEP_S * holds,
                wait_s=self._wait_s,
                trips=min(1.0, _STEP_S / self._wait_s),
            )
            np.clip(window, BYTES_MIN, fleet.request_bytes, out=window)
            self._window = np.where(holds, window, self._window)
