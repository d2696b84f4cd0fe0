"""A process on a simulated disk: how it begins, what it sees, and the ways in which it ends.

It is an `aolog.storage.system.System`; its calls are in calls.py. Paths are absolute; there are no links,
owners or modes. Thread-safe.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, NamedTuple

from aolog.log import lifetime
from aolog.testing.calls import BLOCK, Machine, SimulatedCalls
from aolog.testing.disk import Disk
from aolog.testing.faults import Call, Effect, Fault, Faults, as_faults
from aolog.testing.inode import FileNode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from random import Random

__all__ = ["SimulatedSystem", "Survivor"]


class Survivor(NamedTuple):
    """What a power cut left. content_hash: of names and bytes: equal hashes, equal disks.
    system: a new process on it, after a new boot."""

    content_hash: bytes
    system: SimulatedSystem


class SimulatedSystem(SimulatedCalls):
    """A process on a simulated disk of its own.

    seed: of `random_bytes`. piece_bytes: what the device writes whole or not at all, 512 or
    4096. capacity: bytes that files may take together, None for any; set `capacity` to change it.
    full_errno: ENOSPC, or EDQUOT. faults: a plan of `Fault`s, or any rule such as `RandomFaults`.
    before: called with each Call before it is carried out; what it raises is raised there, and
    Killed kills the process.

        system = SimulatedSystem()
        writer = aolog.Writer("/log", storage=Storage(system))
    """

    def __init__(
        self,
        *,
        seed: int = 0,
        piece_bytes: int = 4096,
        capacity: int | None = None,
        full_errno: int = errno.ENOSPC,
        faults: Faults | Iterable[Fault] = (),
        before: Callable[[Call], None] | None = None,
    ) -> None:
        if piece_bytes not in {512, 4096}:
            raise ValueError(f"piece_bytes={piece_bytes}: devices write 512 or 4096")
        shared = Machine(Disk(seed=seed, piece_bytes=piece_bytes, capacity=capacity))
        shared.full_errno = full_errno
        super().__init__(shared, as_faults(faults) if faults else None, before)

    # --- what becomes of it ---------------------------------------------------------------------

    def process(self) -> SimulatedSystem:
        """Another process on the same disk, on the same boot."""
        new = SimulatedSystem.__new__(SimulatedSystem)
        SimulatedCalls.__init__(new, self._shared)
        return new

    def kill(self) -> SimulatedSystem:
        """The process dies: descriptors and locks are gone, the page cache stays. Every later
        call of it raises Killed; writers and readers on it are as in a forked child. A new
        process."""
        with self._lock:
            self._dead = True
            for fd in list(self._files):
                self._close(fd)
        lifetime.abandon(self)
        return self.process()

    def snapshot(self) -> SimulatedSystem:
        """A process on a copy of the disk as it is now, page cache and all. Nothing is open."""
        return self._on(self._disk.copy())

    def power_cut(
        self,
        limit: int,
        sample: int = 0,
        rng: Random | None = None,
        *,
        known: set[bytes] | None = None,
    ) -> Iterator[Survivor]:
        """Kills the process, and yields every different state that the power cut may leave, in
        the same order each time, if there are no more than `limit`. If there are more: `limit`
        of them that lie far apart, then `sample` that `rng` draws. known: hashes of states that
        are passed over; those that are yielded are added."""
        self.kill()
        for digest, disk in self._disk.survivors(limit, sample, rng, known=known):
            yield Survivor(digest, self._on(disk))

    def _on(self, disk: Disk) -> SimulatedSystem:
        shared = Machine(disk)
        shared.full_errno = self._shared.full_errno
        new = SimulatedSystem.__new__(SimulatedSystem)
        SimulatedCalls.__init__(new, shared)
        return new

    # --- what it sees ---------------------------------------------------------------------------

    @property
    def version(self) -> int:
        """Grows with each change of what processes see or of what is durable."""
        return self._disk.version

    @property
    def faults(self) -> Callable[[Call], Effect | None] | None:
        """The rule in force."""
        return self._faults

    @faults.setter
    def faults(self, faults: Faults | Iterable[Fault]) -> None:
        self._faults = as_faults(faults) if faults else None

    @property
    def capacity(self) -> int | None:
        """Bytes that files may take together."""
        return self._disk.capacity

    @capacity.setter
    def capacity(self, size: int | None) -> None:
        self._disk.capacity = size

    def used(self) -> int:
        """Bytes that files take, in blocks of 4 KiB."""
        sizes = (len(content) for _, content in self._disk.files() if content is not None)
        return sum(-(-size // BLOCK) * BLOCK for size in sizes)

    def files(self) -> dict[str, bytes | None]:
        """Every path with its bytes as processes see them; None for a directory."""
        return dict(self._disk.files())

    def at(self, path: str) -> bytes | tuple[str, ...] | None:
        """What stands at a path as processes see it: a file's bytes, a directory's names, sorted;
        None where nothing does. No call of the process."""
        try:
            node = self._disk.node(path)
        except OSError:
            return None
        return bytes(node.cache) if isinstance(node, FileNode) else tuple(sorted(node.entries))
