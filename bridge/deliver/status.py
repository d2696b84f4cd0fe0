"""The status of a forwarder."""

from __future__ import annotations

from typing import Any, NamedTuple, TypedDict

from bridge.kafka.stalls import Stall

COUNTED = ("acknowledged", "skipped", "dead_lettered", "dropped", "filtered")
"""Counts since the forwarder started; they may be summed over forwarders."""
NOTHING: dict[str, Any] = dict.fromkeys(COUNTED, 0)
LANES_MAX = 100  # in a status: a topic that is missing may have thousands of lanes


def done(counts: object) -> int:
    """Records that are dealt with: the sum of the attributes that COUNTED names."""
    return sum(getattr(counts, name) for name in COUNTED)


def pending(lag_records: int | None, ahead_records: int) -> int | None:
    """Records that are not delivered, skipped or set aside yet; None if unknown."""
    return None if lag_records is None else lag_records - ahead_records


class WaitingLane(TypedDict):
    """A lane whose records wait in the log. A dict, as in JSON."""

    topic: str  # "" for all
    partition: int  # -1 for all of a topic's
    state: str  # `waits`, it goes on by itself; `blocked`, somebody has to act
    reason: str  # the whole sentence
    cause: str  # the part of it that other lanes with the same problem share
    code: str  # of the refusal, see error_table; "" if there is none


class Status(NamedTuple):
    """A moment in a forwarder's life. The delivery fills in what only it knows; the forwarder the rest. Counts of
    records are since the start; losses since the process started."""

    state: str  # of the delivery's state machine, or `blocked`; supervise.status translates it for users
    reachable: bool = False
    position: int = 0  # address of the first record that is not acknowledged
    committed: int = 0  # address of the cursor
    acknowledged: int = 0  # with exactly_once: committed
    skipped: int = 0  # they were in Kafka already
    outstanding: int = 0  # records that were sent and are not acknowledged
    lag_records: int | None = None  # after the position, as are lag_bytes and lag_seconds
    lag_bytes: int = 0
    lag_seconds: float | None = None
    lost_records: int = 0  # that can no longer be delivered, where their number is known
    gaps: int = 0
    error: str | None = None
    rate: float = 0.0
    dead_lettered: int = 0
    dropped: int = 0
    standing: int = 0  # lanes that wait until somebody acts; a reload or a restart retries them
    held_back: int = 0  # lanes whose records wait in the log
    delivery: str = "at_least_once"
    ahead_records: int = 0  # of lag_records, at least so many are acknowledged
    stalled: tuple[Stall, ...] = ()  # lanes without progress, see bridge.kafka.stalls
    filtered: int = 0  # a transform left them out
    waiting_lanes: tuple[WaitingLane, ...] = ()  # the first LANES_MAX that have a reason
    durable: int | None = None  # all before this survives power loss; None if unknown
    copies: int = 0  # messages with stamps of the log that are not its records where they are
    limited: bool = False  # a rate limit holds records back, now or within the last seconds

    def counted(self) -> dict[str, Any]:
        """The fields that COUNTED names."""
        return {name: getattr(self, name) for name in COUNTED}
