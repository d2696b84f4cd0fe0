"""States of the delivery engine, and its commands to the driver. Pure."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from bridge.deliver.position import Aside, Position


class State(Enum):
    """The value is the word in status and logs."""

    CONNECTING = "connecting"
    SENDING = "sending"
    BACKING_OFF = "backing_off"
    STOPPING = "stopping"
    STOPPED = "stopped"


class Connect(NamedTuple):
    """Make a producer, read back what arrived, then report `connected`. careful: the engine is
    bisecting a rejected request."""

    careful: bool


class Disconnect(NamedTuple):
    """Forget the producer and everything that it has not delivered."""


class Commit(NamedTuple):
    """Make the cursor durable here: everything before is acknowledged."""

    position: Position


class SetAside(NamedTuple):
    """Write these records to the dead-letter log, durably, or count them as dropped. Then report
    `set_aside`, before anything else is sent."""

    records: tuple[Aside, ...]


Command: TypeAlias = Connect | Disconnect | Commit | SetAside
