"""A case carried out on a simulated system, and what was promised at each of its points.

A point is a moment before a call that changes the disk: between two of them the disk is the same,
and the last moment is the one at which most was promised.
"""

from __future__ import annotations

import contextlib
from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from unittest import mock

import aolog
from aolog.format.cursor_copy import CursorPosition
from aolog.format.slab import slab_base
from aolog.log.retention import prune
from aolog.storage import clock
from aolog.storage.storage import Storage
from aolog.testing import Call, Effect, Killed, SimulatedSystem
from aolog.write.schedule import Task
from tests.explore.history import Case

LOG = "/data/log"
T0_US = 1_700_000_000_000_000
CHANGES = {"open", "pwritev", "fdatasync", "fsync", "ftruncate", "replace", "unlink", "mkdir"}


class Given(NamedTuple):
    """A record that was appended: where, and what."""

    address: int
    value: bytes


@dataclass
class Promise:
    """What held at a point. durable: every record below it survives power loss. flushed: so
    many of the records survive the process. known: so many were given to append. committed:
    positions that commit returned for; trying: ones that it may have been at. bases: of slabs
    that were; pruned: of those that may be gone."""

    durable: int = 0
    flushed: int = 0
    known: int = 0
    committed: dict[str, CursorPosition] = field(default_factory=dict)
    trying: dict[str, list[CursorPosition]] = field(default_factory=dict)
    bases: list[int] = field(default_factory=list)
    pruned: set[int] = field(default_factory=set)

    def copy(self) -> Promise:
        return Promise(
            self.durable, self.flushed, self.known, dict(self.committed),
            {name: list(tried) for name, tried in self.trying.items()}, list(self.bases),
            set(self.pruned),
        )  # fmt: skip  # as the fields stand

    def may_be_pruned(self, address: int) -> bool:
        i = bisect_right(self.bases, address) - 1
        return i >= 0 and self.bases[i] in self.pruned


@dataclass
class Point:
    """A moment. call: what was about to be done; step: during which step."""

    number: int
    step: int
    call: Call
    system: SimulatedSystem
    promise: Promise


@contextlib.contextmanager
def still_clock() -> Iterator[None]:
    """A clock that stands still: no two states differ by their times alone."""
    with mock.patch.object(clock, "now_us", _now_us):  # a Mock that counts its calls takes its time
        yield


def _now_us() -> int:
    return T0_US


class Run:
    """Carries a case out; `records` and `points` are what came of it. keep: whether points are
    wanted. strike: called before each call, in addition."""

    def __init__(
        self, case: Case, *, keep: bool = True, strike: Callable[[Call], None] | None = None
    ) -> None:
        self.case = case
        self.records: list[Given] = []
        self.dropped: set[int] = set()  # that a kill took from memory: they were never written
        self.points: list[Point] = []
        self.promise = Promise()
        self.calls = 0
        self.writes: list[Call] = []
        self._keep = keep
        self._strike = strike
        self._version = -1
        self._step = 0
        self._given = 0
        self._writer: aolog.Writer | None = None
        # One seed for all: no two states differ by their UUIDs and salts alone.
        self.system = self._watched(SimulatedSystem(piece_bytes=case.piece))

    def _watched(self, system: SimulatedSystem) -> SimulatedSystem:
        system.before = self._before
        return system

    def _before(self, call: Call) -> None:
        self.calls += 1
        call = call._replace(number=self.calls)
        if call.name == "pwritev":
            self.writes.append(call)
        if call.name == "unlink" and (base := _base(call)) is not None:
            self._point(call)  # before it may be gone
            self.promise.pruned.add(base)
        if self._keep and call.name in CHANGES:
            self._point(call)
        base = _base(call)
        if base is not None and base not in self.promise.bases and call.name != "unlink":
            self.promise.bases = sorted([*self.promise.bases, base])
        if self._strike is not None:
            self._strike(call)

    def _point(self, call: Call) -> None:
        system = self.system
        if system.version == self._version:
            return
        self._version = system.version
        if self._writer is not None:
            self.promise.durable = max(self.promise.durable, self._writer.durable)
        number = len(self.points)
        self.points.append(Point(number, self._step, call, system.snapshot(), self.promise.copy()))

    # --- steps --------------------------------------------------------------------------------

    def run(self) -> Run:
        with still_clock():
            try:
                self._open()
                for number, step in enumerate(self.case.steps):
                    self._step = number
                    getattr(self, f"_do_{step[0]}")(*step[1:])
                self._version = -1
                if self._keep:
                    self._point(Call(self.calls + 1, "end", LOG))
            except Killed:
                pass
            finally:
                self.system.kill()
        return self

    @property
    def _storage(self) -> Storage:
        return Storage(self.system)

    def _open(self) -> None:
        options: dict[str, Any] = {
            "flush_seconds": None, "sync_seconds": 1e6, "storage": self._storage,
        }  # fmt: skip  # a table
        self._writer = aolog.Writer(LOG, **options | self.case.options)

    def _value(self, size: int) -> bytes:
        self._given += 1
        return (b"%06d." % self._given * (size // 7 + 1))[:size]

    def _take(self, addresses: list[int], values: list[bytes]) -> None:
        self.records += map(Given, addresses, values)

    @property
    def _log(self) -> aolog.Writer:
        assert self._writer is not None
        return self._writer

    def _do_append(self, size: int) -> None:
        self.promise.known += 1
        value = self._value(size)
        with self._room():
            self._take([self._log.append(value)], [value])

    def _do_many(self, number: int, size: int) -> None:
        self.promise.known += number
        values = [self._value(size) for _ in range(number)]
        with self._room():
            self._take(self._log.append_many(values).tolist(), values)

    @contextlib.contextmanager
    def _room(self) -> Iterator[None]:
        """A record that is refused, as the disk is full, is not part of the log."""
        try:
            yield
        except aolog.StorageFull:
            self.promise.known = len(self.records)

    def _do_flush(self) -> None:
        with contextlib.suppress(aolog.StorageFull):
            self._log.flush()
            self.promise.flushed = len(self.records)

    def _do_sync(self) -> None:
        self.system.capacity = None  # somebody made room
        durable = self._log.sync()
        kept = [g.address for i, g in enumerate(self.records) if i not in self.dropped]
        assert not kept or durable > kept[-1]
        self.promise.flushed = len(self.records)

    def _do_mark(self) -> None:
        self._do_sync()
        self._log._shut()  # as before each task
        with contextlib.suppress(aolog.StorageFull):
            self._log._tail.do(Task.MARK)

    def _do_full(self) -> None:
        self.system.capacity = self.system.used()

    def _do_commit(self, name: str, records: int) -> None:
        try:
            self._commit(self.system, name, records)
        except aolog.StorageFull:
            assert name not in self.promise.committed, "a commit needs no room"

    def _commit(self, system: SimulatedSystem, name: str, records: int) -> None:
        with aolog.Reader(LOG, cursor=name, storage=Storage(system)) as reader:
            for _ in range(records):
                if reader.read() is None:
                    break
            trying = self.promise.trying.setdefault(name, [])
            trying.append(_position(reader.tell()))
            reader.commit()
            self.promise.committed[name] = trying[-1]

    def _do_commit_and_die(self, name: str, records: int) -> None:
        """Another process reads on, and is killed when its commit is written and not synced."""
        process = self.system.process()

        written = False

        def before(call: Call) -> None:
            nonlocal written
            if call.path.endswith(".cursor"):
                if call.name == "fdatasync" and written:  # not the one that settles what is there
                    raise Killed
                written = written or call.name == "pwritev"

        process.before = before
        with contextlib.suppress(Killed, aolog.StorageFull):
            self._commit(process, name, records)
        process.kill()

    def _do_prune_and_die(self, slabs: int) -> None:
        """Another process prunes, and is killed when it has unlinked a slab and not synced that."""
        process = self.system.process()

        def before(call: Call) -> None:
            base = _base(call)
            if call.name == "unlink" and base is not None:
                self.promise.pruned.add(base)
            if call.name == "fsync" and unlinked():
                raise Killed

        def unlinked() -> bool:
            return bool(self.promise.pruned - pruned)

        pruned = set(self.promise.pruned)
        process.before = before
        with contextlib.suppress(Killed):
            prune(LOG, Storage(process), aolog.Retention(max_slabs=slabs))
        process.kill()

    def _do_short(self) -> None:
        self.system.faults = lambda call: (
            Effect(short=(call.size + 1) // 2) if call.name == "pwritev" and call.size > 1 else None
        )

    def _do_prune(self, slabs: int) -> None:
        prune(LOG, self._storage, aolog.Retention(max_slabs=slabs))

    def _do_reopen(self) -> None:
        self.system.capacity = None
        self._log.close()
        self.promise.flushed = len(self.records)
        self._open()

    def _do_kill(self) -> None:
        self.system.capacity = None
        self._version = -1
        if self._keep:
            self._point(Call(self.calls + 1, "kill", LOG))
        self.system = self._watched(self.system.kill())
        self._writer = None
        quiet = Storage(self.system.snapshot())  # what is read here is no call of the history's
        with aolog.Reader(LOG, storage=quiet) as reader:
            there = {record.address for record in reader}
        for number, given in enumerate(self.records):
            if given.address not in there and not self.promise.may_be_pruned(given.address):
                assert number >= self.promise.flushed or number in self.dropped, (
                    "flush survives a kill"
                )
                self.dropped.add(number)
        self.promise.flushed = len(self.records)
        self._open()


def _base(call: Call) -> int | None:
    return slab_base(call.path.rpartition("/")[2])


def _position(address: int) -> CursorPosition:
    return CursorPosition(address, None, b"", 0, True)
