"""A file system that fails on purpose, for tests of programs that embed the log.

A `SimulatedSystem` replaces the operating system. It has a page cache and a disk, and distinguishes
written from durable bytes: after a power cut, any combination of the pieces and names that were not
synced may survive.

    >>> import aolog
    >>> from aolog.storage.storage import Storage
    >>> from aolog.testing import SimulatedSystem
    >>> system = SimulatedSystem(piece_bytes=512)
    >>> log = aolog.Writer("/log", storage=Storage(system), flush_seconds=None, sync="never")
    >>> address = log.append(b"safe")
    >>> durable = log.sync()
    >>> address = log.append(b"not yet")
    >>> end = log.flush()
    >>> left = set()
    >>> for survivor in system.power_cut(limit=100):
    ...     with aolog.Reader("/log", storage=Storage(survivor.system)) as reader:
    ...         left.add(tuple(record.value for record in reader))
    >>> sorted(left)
    [(b'safe',), (b'safe', b'not yet')]

`kill` ends the process and keeps the page cache. Faults (a full disk, errors, short writes, an
fsync that fails once and then reports success without writing) are planned with `Fault` or drawn by `RandomFaults`.

Tests compare it with the real system: the same calls, and random ones, give the same results, errors
and bytes. It is simpler: no links, owners, modes or sparse files; directory entries take no space; an
fsync of a file never makes its name durable (on ext4 it does).

`SystemTests` is the contract of a system of your own, as a class of tests for pytest.

Read in this order: system (a process), calls, faults, machine (what processes share), disk and inode (its
files), outcomes (the states after a power cut); objects (an object store, as a value); contract.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aolog.testing.faults import Call, Effect, Fault, FaultPlan, Faults, RandomFaults
from aolog.testing.machine import Killed, SimulatedStatus
from aolog.testing.system import SimulatedSystem, Survivor

if TYPE_CHECKING:
    from aolog.testing.contract import SystemTests

__all__ = [
    "Call",
    "Effect",
    "Fault",
    "FaultPlan",
    "Faults",
    "Killed",
    "RandomFaults",
    "SimulatedStatus",
    "SimulatedSystem",
    "Survivor",
    "SystemTests",
]


if not TYPE_CHECKING:  # otherwise mypy would accept any name

    def __getattr__(name: str) -> Any:
        """Imports pytest only for the name that needs it."""
        if name != "SystemTests":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib import import_module

        import pytest

        pytest.register_assert_rewrite("aolog.testing.contract")  # a failed test shows its values
        return import_module("aolog.testing.contract").SystemTests


def __dir__() -> list[str]:
    return sorted({*__all__, *globals()})
