"""The interface of a delivery, whichever guarantee it gives."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from bridge.errors import DestinationError, Undeliverable
from bridge.kafka.error_table import advice

if TYPE_CHECKING:
    from bridge.deliver.position import Position
    from bridge.deliver.status import Status
    from bridge.kafka.lane import Refusal

AT_LEAST_ONCE = "at_least_once"
EXACTLY_ONCE = "exactly_once"
SET_ASIDE = "start with --poison dead-letter"  # what the operator can do about poison


class Machine(Protocol):
    """The state machine of a delivery. The delivery does what its state asks, in its next turn."""

    @property
    def over(self) -> bool:
        """Stopped or failed."""

    @property
    def position(self) -> Position:
        """Everything before this is acknowledged."""

    def stop(self, *, now_s: float) -> None:
        """Asks it to end; records in flight may still be acknowledged."""


class LogDelivery(Protocol):
    """Carries the records of a LogSource to a cluster. One thread calls it."""

    @property
    def engine(self) -> Machine:
        """Decides what it does."""

    @property
    def unread(self) -> Position | None:
        """The first record that still has to be read from the log; None before that is known."""

    def turn(self, now_s: float) -> None:
        """One round: time, events of the cluster, new records. Waits for Waits.idle_s at most."""

    def reopen(self) -> None:
        """Retries lanes that wait for somebody to act."""

    def drain(self, to: int) -> bool:
        """Hurries records in flight. Whether all before the address is delivered, or cannot be."""

    @property
    def acknowledged_by_topic(self) -> dict[str, int]:
        """How many records of each topic the cluster has acknowledged; empty if they are not counted."""

    def status(self) -> Status:
        """The present state: the delivery's part. The forwarder adds what it reads from the log."""

    def finish(self) -> None:
        """Once it is over: saves the last cursor and checkpoints."""

    def error(self) -> DestinationError | None:
        """Why it failed, or which record a drain left."""

    def close(self) -> None:
        """Leaves the cluster."""


def undeliverable(
    path: str,
    refusal: Refusal,
    address: int | None,
    *,
    instead: str = SET_ASIDE,
    **details: object,
) -> Undeliverable:
    """The error of a delivery that waits before a record. instead: what else the operator can do about
    poison."""
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
