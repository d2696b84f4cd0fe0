"""A job on a simulated disk: logs that are there before, tasks that write, what readers then see."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa

import aolog
from aolog.format.root_manifest import Transaction
from aolog.publish.pending import PendingLog, PendingSlab
from aolog.publish.publication import Published, publish
from aolog.storage.storage import Storage
from aolog.testing import Call, SimulatedSystem
from aolog.write.options import WriterOptions

ROOT = "/data/root"
JOB, OTHER = "ab" * 16, "cd" * 16
FIRST = Transaction("app/nightly", 1)
# What each log holds before: one that was never closed, one that was, and one that is not there.
OLD = {"a": ["a0", "a1"], "d": ["d0"], "b/c": []}
# What the job adds: a list a task, and in it values by log.
TASKS = [
    {"a": ["p0", "p1"], "b/c": ["q0"]},
    {},
    {"a": ["p2"], "d": ["r0", "r1"], "b/c": ["q1"]},
]
CHANGES = {"open", "pwritev", "fdatasync", "fsync", "ftruncate", "replace", "unlink", "mkdir"}


class Told:
    """A process's system, which tells before each call; the machine's lock is not held then."""

    def __init__(self, system: SimulatedSystem, before: Callable[[str, int], None]) -> None:
        self._system = system
        self._before = before
        self.calls = 0

    def __getattr__(self, name: str) -> object:
        call = getattr(self._system, name)

        def told(*args: object, **options: object) -> object:
            self.calls += 1
            self._before(name, self.calls)
            return call(*args, **options)

        return told


def begin(system: SimulatedSystem) -> None:
    """The logs as they are before the job."""
    writers = []  # one that is dropped is closed
    for log, values in OLD.items():
        if values:
            writer = aolog.Writer(f"{ROOT}/{log}", storage=Storage(system), flush_seconds=None)
            writers.append(writer)
            for value in values:
                writer.append(value.encode())
            writer.sync()
            if log == "d":
                writer.close()
    system.kill()


def old_disk(**options: int) -> SimulatedSystem:
    """The next process on a disk with the logs as they are before the job."""
    system = SimulatedSystem(**options)
    begin(system)
    return system.process()


def write(storage: Storage, values: Mapping[str, list[str]], job: str = JOB) -> list[PendingSlab]:
    """What one task does: a slab for each two values."""
    slabs = []
    for log, listed in values.items():
        with PendingLog(ROOT, log, job, WriterOptions(slab_bytes=1), storage=storage) as pending:
            for i in range(0, len(listed), 2):
                pending.append_arrow(
                    pa.record_batch({"value": [v.encode() for v in listed[i : i + 2]]})
                )
        slabs += pending.slabs
    return slabs


def task(
    root: Path, log: str, *values: str, job: str = JOB, storage: Storage | None = None
) -> list[PendingSlab]:
    """What a task does that adds one slab to a log on the real disk."""
    with PendingLog(root, log, job, storage=storage) as pending:
        pending.append_arrow(pa.record_batch({"value": [v.encode() for v in values]}))
    return pending.slabs


def run(storage: Storage, transaction: Transaction | None = FIRST, job: str = JOB) -> Published:
    """All tasks, of which the first is tried twice, and the commit."""
    write(storage, TASKS[0], job)
    slabs = [slab for task in TASKS for slab in write(storage, task, job)]
    return publish(ROOT, job, slabs, transaction=transaction, storage=storage)


def added(times: int = 1) -> dict[str, list[str]]:
    """What the logs hold after so many jobs."""
    new = {log: [v for task in TASKS for v in task.get(log, ())] for log in OLD}
    return {log: old + times * new[log] for log, old in OLD.items()}


def values_of(storage: Storage, log: str) -> list[str]:
    """What a reader gets, from the beginning to the end, without a gap."""
    try:
        reader = aolog.Reader(f"{ROOT}/{log}", storage=storage, strict=True)
    except aolog.NotALog:
        return []
    with reader:
        return [(record.value or b"").decode() for record in reader]


def seen(storage: Storage, logs: Iterable[str] = OLD) -> dict[str, list[str]]:
    """What readers get of each log."""
    return {log: values_of(storage, log) for log in logs}


@contextmanager
def points(system: SimulatedSystem) -> Iterator[list[tuple[Call, SimulatedSystem]]]:
    """A copy of the disk before each call that changes it, and one when all is done."""
    found: list[tuple[Call, SimulatedSystem]] = []
    versions = set[int]()

    def before(call: Call) -> None:
        if call.name in CHANGES and system.version not in versions:
            versions.add(system.version)
            found.append((call, system.snapshot()))

    system.before = before
    yield found
    system.before = None
    found.append((Call(system.calls, "end", "", 0), system.snapshot()))


def pending_names(system: SimulatedSystem) -> list[str]:
    """Files that no reader of names knows."""
    return [path for path in system.files() if path.endswith(".pending")]
