"""What a way of delivering is asked to do, whichever guarantee it gives."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from bridge.errors import DestinationError, Undeliverable
from bridge.kafka.error_table import advice

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bridge.deliver.position import Position
    from bridge.kafka.lane import Refusal
    from bridge.kafka.stalls import Stall

__all__ = ["AT_LEAST_ONCE", "BUSY_S", "EXACTLY_ONCE", "IDLE_S", "Delivery",
           "Progress", "undeliverable"]  # fmt: skip  # one thing, one line

AT_LEAST_ONCE = "at_least_once"
EXACTLY_ONCE = "exactly_once"
IDLE_S = 0.2  # an idle wait: how late a signal or a due commit may be noticed
BUSY_S = 0.005  # a wait while acknowledgements are under way: how late new records are read


class Progress(NamedTuple):
    """A moment of it; fields as in bridge.deliver.status.Status. topics: acknowledged records by topic, None
    where they are not counted."""

    state: str
    reachable: bool
    position: Position
    committed: Position
    acknowledged: int
    skipped: int
    outstanding: int
    error: str | None
    dead_lettered: int = 0
    dropped: int = 0
    standing: int = 0
    held_back: int = 0
    topics: Mapping[str, int] | None = None
    stalled: tuple[Stall, ...] = ()


class Delivery(Protocol):
    """Carries a Source's records to a cluster, driven from one thread."""

    @property
    def over(self) -> bool:
        """Stopped or failed."""

    @property
    def unread(self) -> Position | None:
        """From where the log has still to be read: what is before it is delivered, or in memory.
        None: not known before the cluster answers."""

    @property
    def attempts(self) -> int:
        """Failures since something last succeeded."""

    def turn(self, now_s: float) -> None:
        """One round: time, what the cluster says, what the log has. Waits IDLE_S at most."""

    def stop(self, now_s: float) -> None:
        """Asks it to end; what is under way may be acknowledged yet."""

    def reopen(self) -> None:
        """What stands is tried again: somebody may have mended it."""

    def drain(self, to: int) -> bool:
        """Hurries what is under way; whether all that lies before the address is delivered, or
        cannot be read."""

    def progress(self) -> Progress:
        """How things stand."""

    def finish(self) -> None:
        """When it is over: its last durable word."""

    def error(self) -> DestinationError | None:
        """Why it failed, or what a drain left."""

    def close(self) -> None:
        """Leaves the cluster."""


def undeliverable(
    path: str, refusal: Refusal, address: int | None, *, instead: str, **details: object
) -> Undeliverable:
    """The error of a delivery that waits before a record. instead: what else can be done where the
    record is poison."""
    first = advice(refusal.code)
    where = "records cannot" if address is None else f"the record at address {address} cannot"
    return Undeliverable(
        f"{where} be delivered: {refusal.reason}",
        hint=f"{first}; or {instead}" if refusal.is_poison else first,
        path=path,
        address=address,
        refusal=refusal.code,
        **details,
    )
