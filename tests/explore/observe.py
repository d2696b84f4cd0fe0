"""What comes of a state that a crash left: it is read, opened, appended to, read again.

Nothing here knows what was promised: an observation depends on the state alone, so it is made once
of each and judged against every promise under which the state may be left (check.py).
"""

from __future__ import annotations

import contextlib
from random import Random
from typing import NamedTuple

import aolog
from aolog.format.slab import slab_base
from aolog.log.cursor_file import cursor_names, read_position
from aolog.record import Gap, Record
from aolog.storage.storage import Storage
from aolog.testing import RandomFaults, SimulatedSystem
from tests.explore.history import Case
from tests.explore.run import LOG, Given

NEW = [b"new one", b"new two"]


class Violation(Exception):
    """A clause of the promise is broken."""


class Read(NamedTuple):
    """All that a reader gets from the beginning. found: whether there is a log."""

    records: list[Given]
    gaps: list[Gap]
    found: bool = True


class CursorSeen(NamedTuple):
    """A cursor. address: None where it is damaged. resumed: what a reader gets that begins there;
    None where nothing was promised of that."""

    address: int | None
    resumed: Read | None


class Faulty(NamedTuple):
    """An opening in which calls failed at random. given: what it appended; acknowledged: what
    a sync returned for; left: what was read after power cuts that followed."""

    given: dict[int, bytes]
    acknowledged: list[Given]
    left: list[Read]


class Observation(NamedTuple):
    """before: what was there; cursors: where they stood, None if nobody looked; new: what was
    appended then; after, cursors_after: what was there in the end. faulty: see there. broken: what
    is wrong whatever was promised."""

    before: Read
    cursors: dict[str, CursorSeen] | None
    new: list[Given]
    after: Read
    cursors_after: dict[str, CursorSeen]
    faulty: Faulty | None
    broken: str | None
    unread: bool = False  # what was there could not be read: that is what is broken


def read_all(storage: Storage, **options: object) -> Read:
    """Everything, one by one."""
    try:
        with aolog.Reader(LOG, storage=storage, **options) as reader:  # type: ignore[arg-type]
            records = [_given(record) for record in reader]
            return Read(records, reader.gaps)
    except aolog.NotALog:
        return Read([], [], False)


def _given(record: Record) -> Given:
    assert record.value is not None
    return Given(record.address, record.value)


def claim(holds: object, clause: str, *details: object) -> None:
    if not holds:
        raise Violation(": ".join([clause, *map(repr, details)]))


def options_of(case: Case) -> dict[str, object]:
    """A writer's that opens after the crash."""
    kept = {k: v for k, v in case.options.items() if k in {"format", "slab_bytes", "batch_bytes"}}
    return kept | {"flush_seconds": None, "sync": "never"}


def observe(case: Case, system: SimulatedSystem, *, power_cut: bool, draw: int) -> Observation:
    """Uses the system up. draw: decides which of the looks that cost most time are taken: each at one
    state in 32 or so; cursors are read before recovery, and the writer is closed and not killed,
    at one in eight."""
    system.capacity = None  # somebody made room
    thorough = draw % 8 == 0
    follows = not power_cut or case.synced  # a cursor is not ahead of its log
    cursors = None
    try:
        before = read_all(Storage(system))
        if thorough:
            cursors = look_at_cursors(system, before, resume=follows)
    except Exception as error:
        unread, broken = Read([], [], False), f"raised: {type(error).__name__}: {error}"
        return Observation(unread, None, [], unread, {}, None, broken, unread=True)
    new: list[Given] = []
    after, cursors_after, faulty = before, cursors or {}, None
    try:
        if draw % 32 == 0:
            check_no_room(case, system.snapshot(), before)
        if power_cut and draw % 32 == 1:
            faulty = with_faults(case, system.snapshot(), draw)
        was = system.files()
        options = options_of(case)
        writer = aolog.Writer(LOG, storage=Storage(system), **options)  # type: ignore[arg-type]
        check_kept(was, system.files())
        new = [Given(writer.append(value), value) for value in NEW]
        durable = writer.sync()
        claim(durable > new[-1].address, "durable: sync's address", durable, new)
        if thorough:
            writer.close()
        else:
            system = system.kill()
        after = read_all(Storage(system))
        resumes = follows or not case.format_1
        cursors_after = look_at_cursors(system, after, resume=resumes)
        if draw % 32 == 2 or not power_cut:
            check_acknowledged(system.snapshot(), after)
        if draw % 32 == 8:
            closed = system.files()
            aolog.Writer(LOG, storage=Storage(system), **options).close()  # type: ignore[arg-type]
            claim(system.files() == closed, "idempotent: a second opening changes", sorted(closed))
    except Violation as broken:
        return Observation(before, cursors, new, after, cursors_after, faulty, str(broken))
    except Exception as error:
        broken = f"raised: {type(error).__name__}: {error}"
        return Observation(before, cursors, new, after, cursors_after, faulty, broken)
    return Observation(before, cursors, new, after, cursors_after, faulty, None)


def look_at_cursors(system: SimulatedSystem, read: Read, *, resume: bool) -> dict[str, CursorSeen]:
    """All that are there."""
    if not read.found:
        return {}
    positions = _positions(Storage(system))
    return {
        name: CursorSeen(
            address,
            read_all(Storage(system), cursor=name) if resume and address is not None else None,
        )
        for name, address in positions.items()
    }


def _positions(storage: Storage) -> dict[str, int | None]:
    """Where the cursors stand; None where one is damaged."""
    found: dict[str, int | None] = {}
    for name in cursor_names(LOG, storage):
        try:
            found[name] = read_position(LOG, name, storage).address
        except aolog.CursorCorrupt:
            found[name] = None
    return found


def check_kept(was: dict[str, bytes | None], now: dict[str, bytes | None]) -> None:
    """What recovery cut is aside, and nothing else is gone."""
    for path, content in was.items():
        if path.endswith(".tmp") or content is None:
            continue
        left = now.get(path)
        claim(left is not None, "kept: a file is gone", path)
        assert left is not None
        if left == content:
            continue
        base = slab_base(path.rpartition("/")[2])
        assert base is not None, path
        claim(content.startswith(left), "kept: a slab is overwritten", path)
        cut = content[len(left) :].rstrip(b"\0")
        aside = now.get(f"{LOG}/aside/{base + len(left):020d}.torn")
        claim(
            not cut or (aside or b"").rstrip(b"\0") == cut,
            "kept: what was cut is not aside",
            path,
            len(left),
        )


def check_acknowledged(system: SimulatedSystem, read: Read) -> None:
    """What the new writer's sync acknowledged survives another power cut, and what was read
    before with it: recovery made it durable."""
    for survivor in system.power_cut(limit=2):
        left = read_all(Storage(survivor.system))
        claim(left.records == read.records, "durable: lost after recovery", read, left)


def check_no_room(case: Case, system: SimulatedSystem, before: Read) -> None:
    """On a full disk opening fails or succeeds; nothing that was readable goes."""
    system.capacity = system.used()
    with contextlib.suppress(aolog.StorageFull):
        aolog.Writer(LOG, storage=Storage(system), **options_of(case)).close()  # type: ignore[arg-type]
    system = system.kill()
    full = read_all(Storage(system))
    claim(full.records == before.records, "full disk: other records", before, full)
    system.capacity = None
    with aolog.Writer(LOG, storage=Storage(system), **options_of(case)) as writer:  # type: ignore[arg-type]
        new = [Given(writer.append(value), value) for value in NEW]
    read = read_all(Storage(system))
    claim(read.records == before.records + new, "full disk: other records later", before, read)


def with_faults(case: Case, system: SimulatedSystem, draw: int) -> Faulty:
    """Calls fail at random while it is opened and appended to."""
    system.faults = RandomFaults(draw, rate=0.08)
    given: dict[int, bytes] = {}
    acknowledged: list[Given] = []
    try:
        writer = aolog.Writer(LOG, storage=Storage(system), **options_of(case))  # type: ignore[arg-type]
        for value in NEW:
            given[writer.append(value)] = value
        writer.sync()
        acknowledged = [*map(Given, given, given.values())]
        writer.close()
    except aolog.AologError:
        pass
    survivors = system.power_cut(limit=6, sample=2, rng=Random(draw))
    return Faulty(given, acknowledged, [read_all(Storage(s.system)) for s in survivors])
