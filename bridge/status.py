"""What a forwarder says of itself."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["Status"]


class Status(NamedTuple):
    """A moment in a forwarder's life, for progress and machines.

    acknowledged, skipped: records since it started; skipped were in Kafka already. lag_records,
    lag_bytes, lag_seconds: not yet acknowledged. lost_records: in gaps that it had to pass.
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
    delivery: str
