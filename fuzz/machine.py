"""The machine of a history: where its log is, and what a crash leaves of it.

On the real file system a crash is a SIGKILL: memory is lost, files stay. On the simulated one it may also
be a power cut: any part of what was not synced may survive, in any order.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from aolog.storage.storage import Storage
from aolog.testing import SimulatedSystem
from fuzz.shapes import abandon

if TYPE_CHECKING:
    import random

    import aolog
    from fuzz.disk import Disk

__all__ = ["MACHINES", "Machine", "RealMachine", "SimulatedMachine"]

_STATES = 6  # of the states that a power cut may leave; one of them is used


class Machine(Protocol):
    """path: of the log. storage: for writers and readers; another after a crash."""

    path: str
    storage: Storage

    def crash(self, writer: aolog.Writer, rng: random.Random) -> bool:
        """Ends the writer's process, perhaps within a write. Returns whether the power was cut too."""


class RealMachine:
    """The real file system. One history a machine."""

    def __init__(self, disk: Disk) -> None:
        self.path = disk.fresh()
        self.storage = Storage()

    def crash(self, writer: aolog.Writer, rng: random.Random) -> bool:
        """A kill, perhaps after the beginning of another frame was written."""
        abandon(writer)
        torn = rng.choice([b"", b"", b"\xa0\xf2\x01", rng.randbytes(57), bytes(64)])
        last = max(Path(self.path).glob("*.slab"))
        with last.open("ab") as file:
            file.write(torn)
        return False


class SimulatedMachine:
    """A simulated file system. One history a machine."""

    def __init__(self, _: Disk) -> None:
        self.path = "/log"
        self._system = SimulatedSystem(piece_bytes=512)
        self.storage = Storage(self._system)

    def crash(self, writer: aolog.Writer, rng: random.Random) -> bool:
        """A kill, or a power cut of which one state is drawn."""
        writer._background.stop()  # noqa: SLF001 -- there is no call for dying
        power_goes = rng.random() < 0.5
        if power_goes:
            states = list(self._system.power_cut(_STATES // 2, _STATES // 2, rng))
            self._system = rng.choice(states).system
        else:
            self._system = self._system.kill()
        self.storage = Storage(self._system)
        return power_goes


MACHINES: dict[str, type[RealMachine | SimulatedMachine]] = {
    "real": RealMachine,
    "simulated": SimulatedMachine,
}
