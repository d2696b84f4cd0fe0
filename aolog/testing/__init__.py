"""A file system that fails on purpose, for whoever embeds the log and does not trust it.

A `SimulatedSystem` stands where the operating system does. It keeps a page cache over a disk,
and tells apart what was written and what is durable: a power cut leaves some of the pieces that
no sync has ordered, in any combination, and some of the names.

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
fsync that fails once and then lies) are planned with `Fault` or drawn by `RandomFaults`.

It is honest as far as its tests go: calls of the real system, and random ones, give the same
results, errors and bytes here. It is simpler than a real one in this: no links, owners, modes or
sparse files; entries take no room; a file's fsync never makes its name durable (ext4's does).
"""

from aolog.testing.calls import Killed, SimulatedStatus
from aolog.testing.faults import Call, Effect, Fault, FaultPlan, Faults, RandomFaults
from aolog.testing.system import SimulatedSystem, Survivor

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
]
