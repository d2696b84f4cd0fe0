"""The status of a forwarder."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict

if TYPE_CHECKING:
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
    """A lane whose records wait in the log. state: `waits`, it goes on by itself; `blocked`, somebody
    has to act. partition: -1 for all of a topic's; topic: "" for all. reason: the whole sentence. cause:
    the part of it that other lanes with the same problem share. code: of the refusal, see error_table;
    "" if there is none. A dict, as in JSON."""

    topic: str
    partition: int
    state: str
    reason: str
    cause: str
    code: str


class Status(NamedTuple):
    """A moment in a forwarder's life. The delivery fills it in; the forwarder adds lag, losses, rate,
    ahead_records and durable.

    state: of the delivery's state machine; bridge.supervise.status translates it for users.
    position, committed: addresses: of the first record that is not acknowledged, and of the cursor.
    acknowledged, skipped, dead_lettered, dropped, filtered: records since the start. Skipped records
    were in Kafka already; a transform left filtered ones out; with exactly_once, acknowledged means
    committed.
    outstanding: records that were sent and are not acknowledged.
    lag_records, lag_bytes, lag_seconds: what lies after the position. ahead_records: how many of these
    are acknowledged already, because lanes do not wait for each other; at least so many.
    lost_records, gaps: what can no longer be delivered, since the process started; records where their
    number is known.
    held_back: lanes whose records wait in the log. standing: those that wait until somebody acts; a
    reload or a restart retries them. stalled: lanes without progress (see bridge.kafka.stalls).
    waiting_lanes: the first LANES_MAX of held_back that have a reason.
    copies: messages that carry stamps of the log and are not its records where they are, as far as
    they were met; they do not count as delivered.
    durable: everything in the log before this address survives power loss; None if unknown.
    limited: a rate limit holds records back, now or within the last seconds.
    """

    state: str
    reachable: bool
    position: int
    committed: int
    acknowledged: int
    skipped: int
    outstanding: int
    lag_records: int | None = None
    lag_bytes: int = 0
    lag_seconds: float | None = None
    lost_records: int = 0
    gaps: int = 0
    error: str | None = None
    rate: float = 0.0
    dead_lettered: int = 0
    dropped: int = 0
    standing: int = 0
    held_back: int = 0
    delivery: str = "at_least_once"
    ahead_records: int = 0
    stalled: tuple[Stall, ...] = ()
    filtered: int = 0
    waiting_lanes: tuple[WaitingLane, ...] = ()
    durable: int | None = None
    copies: int = 0
    limited: bool = False

    def counted(self) -> dict[str, Any]:
        """The fields that COUNTED names."""
        return {name: getattr(self, name) for name in COUNTED}
