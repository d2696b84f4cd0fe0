"""What a forwarder says of itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from bridge.kafka.stalls import Stall

__all__ = ["COUNTED", "NOTHING", "Status", "pending"]

COUNTED = ("acknowledged", "skipped", "dead_lettered", "dropped")
"""Fields that count since the forwarder started: sums over forwarders mean something."""
NOTHING: dict[str, Any] = dict.fromkeys(COUNTED, 0)


def pending(lag_records: int | None, ahead_records: int) -> int | None:
    """Records that are not done with: of those behind the position, all but the ones that lanes
    which do not wait have gone on with. None if that is not known."""
    return None if lag_records is None else lag_records - ahead_records


class Status(NamedTuple):
    """A moment in a forwarder's life, for progress and machines.

    state: of the machine that delivers; to users it is said in the words of bridge.supervise.status.
    acknowledged, skipped: records since it started; skipped were in Kafka already. lag_records,
    lag_bytes, lag_seconds: behind the first that is not acknowledged yet. ahead_records: of those,
    at least so many are done with already, as lanes that do not wait have gone on. lost_records, gaps:
    what cannot be delivered, since the process started: damaged, or removed by retention before it
    was delivered, from when it is gone; records where their number is known.
    dead_lettered, dropped: records that will never be taken, since it started. held_back: lanes
    whose records wait in the log; standing: those of them that wait until somebody acts (a reload
    or a restart tries them again). stalled: lanes that have something under way and make no
    progress, and for how long (see bridge.stalls).
    With exactly_once `acknowledged` means committed, and `committed` is the local cursor.
    """

    state: str
    reachable: bool
    position: int
    committed: int
    acknowledged: int
    skipped: int
    outstanding: int
    lag_records: int | None
    lag_bytes: int
    lag_seconds: float | None
    lost_records: int
    gaps: int
    error: str | None
    rate: float
    dead_lettered: int = 0
    dropped: int = 0
    standing: int = 0
    held_back: int = 0
    delivery: str = "at_least_once"
    ahead_records: int = 0
    stalled: tuple[Stall, ...] = ()

    def counted(self) -> dict[str, Any]:
        """What COUNTED names."""
        return {name: getattr(self, name) for name in COUNTED}
