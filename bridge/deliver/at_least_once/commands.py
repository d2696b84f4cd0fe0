"""What the engine and whoever drives it say to one another: states, plans, commands. Pure."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from bridge.deliver.at_least_once.partition_state import Mark
    from bridge.deliver.position import Aside, Position
    from bridge.kafka.lane import LaneKey

__all__ = [
    "Command",
    "Commit",
    "Connect",
    "Disconnect",
    "Planned",
    "SetAside",
    "State",
]


class State(Enum):
    """Where the engine stands; the value is what status and logs say."""

    CONNECTING = "connecting"
    SENDING = "sending"
    BACKING_OFF = "backing_off"
    STOPPING = "stopping"
    STOPPED = "stopped"


class Planned(NamedTuple):
    """What becomes of a batch (see batch_planner). marks: of what is sent, in order. left:
    where lanes were left behind. poison: records to be set aside, or in front of which lanes
    stand. skipped: how many records that had arrived were passed for the first time, and the
    last of them."""

    marks: list[tuple[LaneKey, Mark]]
    left: dict[LaneKey, Position]
    poison: list[Aside]
    skipped: dict[LaneKey, tuple[int, int]]


class Connect(NamedTuple):
    """Make a producer, read back what arrived, then report `connected`. careful: a refusal is
    being looked for."""

    careful: bool


class Disconnect(NamedTuple):
    """Forget the producer and everything that it has not delivered."""


class Commit(NamedTuple):
    """Make the cursor durable here: everything before is acknowledged."""

    position: Position


class SetAside(NamedTuple):
    """Keep these records elsewhere, durably, or count them as dropped; report `set_aside` before
    anything else is sent."""

    records: tuple[Aside, ...]


Command: TypeAlias = Connect | Disconnect | Commit | SetAside
