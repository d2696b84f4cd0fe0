"""A process on a simulated disk: how it starts, what it sees, and how it ends.

It is an `aolog.storage.system.System`; calls.py has its calls. Paths are absolute; there are no links,
owners or modes. Thread-safe.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from random import Random
from typing import NamedTuple

from aolog.storage import lifetime
from aolog.testing.calls import SimulatedCalls
from aolog.testing.disk import Disk
from aolog.testing.faults import Call, Effect, Fault, Faults, as_faults
from aolog.testing.machine import Machine


class Survivor(NamedTuple):
    """One state after a power cut. content_hash: of names and bytes; equal for equal disks. system: a new
    process on that disk, after the next boot."""

    content_hash: bytes
    system: SimulatedSystem


class SimulatedSystem(SimulatedCalls):
    """A process on a simulated disk of its own.

    seed: of `random_bytes`. piece_bytes: the unit that the device writes completely or not at all, 512
    or 4096. capacity: maximum size of all files in bytes, None without limit. faults: a list of Fault,
    or a rule such as `RandomFaults`. before: called with each Call before it is carried out; the call
    raises what it raises, and Killed kills the process::

        system = SimulatedSystem()
        writer = aolog.Writer("/log", storage=Storage(system))
    """

    def __init__(
        self,
        *,
        seed: int = 0,
        piece_bytes: int = 4096,
        capacity: int | None = None,
        faults: Faults | Iterable[Fault] = (),
        before: Callable[[Call], None] | None = None,
    ) -> None:
        if piece_bytes not in {512, 4096}:
            raise ValueError(f"piece_bytes={piece_bytes}: devices write 512 or 4096")
        shared = Machine(Disk(seed=seed, piece_bytes=piece_bytes, capacity=capacity))
        super().__init__(shared, as_faults(faults) if faults else None, before)

    # --- its end ---------------------------------------------------------------------

    def process(self) -> SimulatedSystem:
        """Another process on the same disk and boot."""
        return self._on(self._shared)

    def kill(self) -> SimulatedSystem:
        """Kills the process: closes descriptors, releases locks, keeps the page cache. Each later call
        raises Killed; its writers and readers behave as in a forked child. Returns a new process."""
        with self._lock:
            self._dead = True
            for fd in list(self._files):
                self._close(fd)
        lifetime.abandon(self)
        return self.process()

    def snapshot(self) -> SimulatedSystem:
        """A process on a copy of the disk and its page cache. Nothing is open."""
        return self._on(Machine(self._disk.copy()))

    def power_cut(
        self,
        limit: int,
        sample: int = 0,
        rng: Random | None = None,
        *,
        known: set[bytes] | None = None,
    ) -> Iterator[Survivor]:
        """Kills the process and yields every different state that the power cut may leave, always in the
        same order, if there are at most `limit`. If there are more: `limit` of them that are far apart,
        then `sample` that `rng` draws. known: hashes of states to skip; adds those that it yields."""
        self.kill()
        seen = set() if known is None else known
        outcomes = self._disk.outcomes()
        for number in outcomes.numbers(limit, sample, rng):
            digest, tree, choice = outcomes.at(number)
            if digest not in seen:
                seen.add(digest)
                disk = self._disk.after_power_cut(tree, choice, outcomes)
                yield Survivor(digest, self._on(Machine(disk)))

    def _on(self, shared: Machine) -> SimulatedSystem:
        new = SimulatedSystem.__new__(SimulatedSystem)
        SimulatedCalls.__init__(new, shared)
        return new

    # --- what it sees ---------------------------------------------------------------------------

    @property
    def version(self) -> int:
        """Grows with each change of visible or durable contents."""
        return self._disk.version

    @property
    def faults(self) -> Callable[[Call], Effect | None] | None:
        """The current rule, None without faults."""
        return self._faults

    @faults.setter
    def faults(self, faults: Faults | Iterable[Fault]) -> None:
        self._faults = as_faults(faults) if faults else None

    @property
    def capacity(self) -> int | None:
        """Maximum size of all files in bytes; None without limit."""
        return self._disk.capacity

    @capacity.setter
    def capacity(self, size: int | None) -> None:
        self._disk.capacity = size

    def used(self) -> int:
        """Size of all files, in blocks of 4 KiB."""
        return self._disk.used()

    def files(self) -> dict[str, bytes | None]:
        """Every path with its visible bytes; None for a directory."""
        return dict(self._disk.files())
