"""fleet: bridges by the thousand after an hour without their cluster, with and without manners.

A simulation (bench/fleet.py), so its seconds are the simulated cluster's and nothing here depends
on this machine. Each probe is one set of manners; the figures are the worst that the cluster sees,
and how long it takes until nobody holds anything back.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from bench.fleet import Fleet, simulate
from bench.panel import Panel, Probe

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.cases.plan import Plan

__all__ = ["groups"]

ATTEMPTS, WAIT_S, CONNECTED_S, RECOVERED_S = (
    "attempts to connect, worst second", "wait of a request, s", "all connected, s",
    "all recovered, s",
)  # fmt: skip  # one thing, one line


def groups(plan: Plan) -> Iterator[Panel]:
    fleet = Fleet(
        bridges=plan.size.fleet_bridges,
        outage_s=plan.size.fleet_outage_s,
        greetings_per_s=plan.size.fleet_bridges / 10,
    )
    jitter = fleet._replace(window=False)
    manners = {
        "none: fixed pauses, full requests": jitter._replace(jitter=False),
        "jitter": jitter,
        "jitter, drain limited to 20 times the usual rate": jitter._replace(limit=20.0),
        "jitter, drain limited to 2.5 times the usual rate": jitter._replace(limit=2.5),
        "jitter, and a window that follows the wait: the bridge's": fleet,
    }
    yield Panel(
        "fleet",
        f"{fleet.bridges:,} bridges after {fleet.outage_s / 60:g} minutes without their cluster, which "
        f"serves {fleet.capacity:g} times what they write and opens "
        f"{fleet.greetings_per_s:,.0f} connections a second",
        "a simulation, the same from the same seed",
        [Probe(name, partial(_simulated, each)) for name, each in manners.items()],
        rounds=1,
    )


def _simulated(fleet: Fleet) -> dict[str, float]:
    found = simulate(fleet)
    return {
        ATTEMPTS: found.peak_attempts,
        WAIT_S: found.peak_wait_s,
        CONNECTED_S: found.connected_s,
        RECOVERED_S: found.recovered_s,
    }
