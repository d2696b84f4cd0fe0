"""A record in the log that will never be taken. Pure: both deliveries share it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from aolog.record import Position

if TYPE_CHECKING:
    from bridge.kafka.lane import LaneKey, Refusal

__all__ = ["Aside", "Poison", "Position"]

Poison: TypeAlias = Literal["stop", "dead-letter", "drop"]
"""What to do with a record that the cluster will never take."""


class Aside(NamedTuple):
    """A record that the cluster will never take, and the lane to which it was to go."""

    position: Position
    lane: LaneKey
    refusal: Refusal
