"""What histories run on: where the log lies, and what a crash leaves of it.

The real file system here, where a crash is SIGKILL's: memory is gone and files are as they are. A
simulated one, where power goes too, has the same three calls.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from aolog.storage import Storage
from fuzz.shapes import abandon

if TYPE_CHECKING:
    import aolog
    from fuzz.disk import Disk

__all__ = ["Machine", "RealMachine"]


class Machine(Protocol):
    """path: of the log. storage: for writers and readers. loses: whether a crash takes what was
    flushed and not synced."""

    path: str
    storage: Storage
    loses: bool

    def crash(self, writer: aolog.Writer, rng: random.Random) -> None:
        """The writer's process dies, perhaps within a write."""


class RealMachine:
    """The real file system. One history a machine."""

    loses = False

    def __init__(self, disk: Disk) -> None:
        self.path = disk.fresh()
        self.storage = Storage()

    def crash(self, writer: aolog.Writer, rng: random.Random) -> None:
        """Perhaps with the begin of another frame behind what is there."""
        abandon(writer)
        torn = rng.choice([b"", b"", b"\xa0\xf2\x01", rng.randbytes(57), bytes(64)])
        last = max(Path(self.path).glob("*.slab"))
        with last.open("ab") as file:
            file.write(torn)
