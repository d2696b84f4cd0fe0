"""A fleet of bridges after an outage of their cluster: how long a request waits, and when all is sent.

A simulation in steps of time, not of Kafka. Bridges that all lost one cluster send what they hold
back, up to their link's rate, with one request of a bounded size under way. The cluster serves what
it can, shared by what is asked. All bridges are alike, so one is simulated for all of them.
"""

from __future__ import annotations

from typing import NamedTuple

from bridge.deliver.at_least_once.window import Window

_STEP_S = 0.1


class Fleet(NamedTuple):
    """bytes_per_s: what each bridge's log grows by. capacity: the cluster's, in multiples of what the
    whole fleet writes on a usual day. request_bytes: the most that a bridge has under way. window:
    what is under way is bounded as bridge.deliver.at_least_once.window does, else by a request."""

    bridges: int = 10_000
    outage_s: float = 3600.0
    bytes_per_s: float = 10_000.0
    capacity: float = 3.0
    request_bytes: float = 1_000_000.0
    link_bytes_per_s: float = 10_000_000.0
    round_trip_s: float = 0.02
    window: bool = True


class Outcome(NamedTuple):
    """peak_wait_s: for a request. recovered_s: until no bridge holds anything back."""

    peak_wait_s: float
    recovered_s: float


def simulate(fleet: Fleet) -> Outcome:
    """What becomes of it."""
    usual, most = fleet.bytes_per_s, fleet.link_bytes_per_s
    capacity = fleet.capacity * fleet.bridges * usual
    backlog = fleet.outage_s * usual
    window = Window(int(fleet.request_bytes))
    wait_s = fleet.round_trip_s
    peak_wait_s = now_s = 0.0
    while backlog > usual:
        now_s += _STEP_S
        # What is asked for is what waits in the cluster, and each sees how long it does.
        holds = backlog > usual * _STEP_S
        bound = window.bytes if fleet.window else fleet.request_bytes
        under_way = min(bound, backlog, most * wait_s) if holds else 0.0
        wait_s = fleet.round_trip_s + under_way * fleet.bridges / capacity
        peak_wait_s = max(peak_wait_s, wait_s)
        rate = min(under_way / wait_s, most) if holds else usual
        rate *= min(1.0, capacity / max(1.0, rate * fleet.bridges))
        backlog = max(0.0, backlog + (usual - rate) * _STEP_S)
        if holds:
            window.acknowledged(
                int(rate * _STEP_S), under_way=int(under_way), sent_s=now_s - wait_s, now_s=now_s
            )
    return Outcome(peak_wait_s, now_s)
