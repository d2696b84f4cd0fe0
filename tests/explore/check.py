"""What must hold of a state that a crash left: the promise, clause by clause.

A violation is a string that begins with the clause. `check` reads, opens a writer, appends,
reads again, and opens once more; its depth says how much of what costs time is done.
"""

from __future__ import annotations

import contextlib
from random import Random
from typing import NamedTuple

import aolog
from aolog.cursor import cursor_names, read_position
from aolog.record import Gap, Record
from aolog.slab import slab_base
from aolog.storage import Storage
from aolog.testing import Effect, RandomFaults, SimulatedSystem
from tests.explore.history import Case
from tests.explore.run import LOG, Given, Point, Promise

NEW = [b"new one", b"new two"]


class Violation(Exception):
    """A clause of the promise is broken."""


class Read(NamedTuple):
    """All that a reader gets from the beginning. found: whether there is a log."""

    records: list[Given]
    gaps: list[Gap]
    found: bool = True


class Model:
    """The records of a run, for its points."""

    def __init__(self, case: Case, records: list[Given], dropped: set[int]) -> None:
        self.case = case
        self.records = records
        self.dropped = dropped
        self.value_at = {
            given.address: given.value for i, given in enumerate(records) if i not in dropped
        }

    def known(self, promise: Promise) -> list[Given]:
        """What was given to append, and may be in the log."""
        end = promise.known
        return [g for i, g in enumerate(self.records[:end]) if i not in self.dropped]

    def required(self, promise: Promise, *, power_cut: bool) -> set[int]:
        """Addresses that must be there."""
        if power_cut:
            there = [g for g in self.known(promise) if g.address < promise.durable]
        else:
            flushed = self.records[: promise.flushed]
            there = [g for i, g in enumerate(flushed) if i not in self.dropped]
        return {g.address for g in there if not promise.may_be_pruned(g.address)}


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
    kept = {
        k: v
        for k, v in case.options.items()
        if k in {"format", "slab_bytes", "batch_bytes", "preallocate"}
    }
    return kept | {"flush_seconds": None, "sync": "never"}


def check(
    model: Model,
    point: Point,
    system: SimulatedSystem,
    *,
    power_cut: bool,
    visible_to: int,
    draw: int,
) -> None:
    """Raises Violation. visible_to: no address below it may be used again. draw: decides, by its
    bits, which of the checks that cost time are made: each is made of every fourth state or so."""
    case, promise, storage = model.case, point.promise, Storage(system)
    system.capacity = None  # somebody made room
    required = model.required(promise, power_cut=power_cut)
    thorough = not power_cut or draw % 8 == 0
    before = read_all(storage)
    check_reading(model, promise, before, required)
    if thorough:
        check_cursors(model, promise, storage, before, power_cut=power_cut)
        if draw % 16 == 0:
            check_no_room(model, system.snapshot(), before)
    if draw % 16 == 2:
        check_faults(model, point, system.snapshot(), required, draw)
    was = system.files()
    options = options_of(case)
    writer = aolog.Writer(LOG, storage=storage, **options)  # type: ignore[arg-type]
    check_kept(was, system.files())
    new = [Given(writer.append(value), value) for value in NEW]
    durable = writer.sync()
    claim(durable > new[-1].address, "durable: sync's address", durable, new)
    if thorough:
        writer.close()
    else:
        system = system.kill()
        storage = Storage(system)
    after = read_all(storage)
    claim(after.records[-2:] == new, "recovery: what was appended", new, after)
    old = after._replace(records=after.records[:-2])
    claim(old.records == before.records, "recovery: other records", before, after)
    check_gaps(model, promise, old)
    positions = check_cursors(model, promise, storage, old, power_cut=power_cut, new=new)
    fresh = max([visible_to, *(address + 1 for address, _ in old.records), *positions.values()])
    claim(case.format_1 or new[0].address >= fresh, "reused: an address", new[0], fresh)
    if draw % 16 == 1 or not power_cut:
        check_acknowledged(system.snapshot(), after)
    if draw % 16 == 8:
        closed = system.files()
        aolog.Writer(LOG, storage=storage, **options).close()  # type: ignore[arg-type]
        claim(system.files() == closed, "idempotent: a second opening changes", sorted(closed))


def check_reading(model: Model, promise: Promise, read: Read, required: set[int]) -> None:
    """Only what was appended, in order; what is missing is at the end, in a gap, or pruned."""
    last = -1
    for address, value in read.records:
        claim(address > last, "order: addresses fall", last, address)
        claim(model.value_at.get(address) == value, "invented: a record", address, value)
        last = address
    there = {address for address, _ in read.records}
    claim(required <= there, "durable: acknowledged and lost", sorted(required - there), read.gaps)
    for given in model.known(promise):
        if given.address not in there and given.address < last:
            in_gap = any(gap.begin <= given.address < gap.end for gap in read.gaps)
            claim(
                in_gap or promise.may_be_pruned(given.address),
                "gaps: missing and not told", given.address, read,
            )  # fmt: skip  # the claim and its words
    check_gaps(model, promise, read)


def check_gaps(model: Model, promise: Promise, read: Read) -> None:
    """Counts that are stated are exact."""
    there = {address for address, _ in read.records}
    missing = [g.address for g in model.known(promise) if g.address not in there]
    for gap in read.gaps:
        claim(gap.reason not in {"corrupt", "missing"}, "gaps: a crash is told as damage", gap)
        if gap.records_lost is not None:
            lost = sum(gap.begin <= address < gap.end for address in missing)
            claim(lost == gap.records_lost, "gaps: a count is wrong", gap, lost, missing)


def check_cursors(
    model: Model,
    promise: Promise,
    storage: Storage,
    read: Read,
    *,
    power_cut: bool,
    new: list[Given] | None = None,
) -> dict[str, int]:
    """Addresses of the cursors that are there. They are where a commit put them, not behind the
    last that returned, and, where the log's writer syncs, not ahead of its records. A reader
    resumes there. new: what was appended since."""
    names = cursor_names(LOG, storage) if read.found else []
    for name in promise.committed:
        claim(name in names, "cursor: a commit is lost", name)
    found = {}
    there = {address for address, _ in read.records}
    format_1 = model.case.format_1
    for name in names:
        try:
            position = read_position(LOG, name, storage)
        except aolog.CursorCorrupt:
            raise Violation(f"cursor: {name} is damaged") from None
        address = found[name] = position.address
        tried = {tried.address for tried in promise.trying.get(name, [])}
        claim(address in tried, "cursor: where nobody put it", name, address, tried)
        if name in promise.committed:
            least = promise.committed[name].address
            claim(address >= least, "cursor: a commit is undone", name, address, least)
        taken = [
            g.address
            for g in model.known(promise)
            if g.address >= address and g.address not in there and promise.may_be_pruned(g.address)
        ]
        claim(not taken, "retention: took what a cursor needs", name, address, taken)
        ahead = power_cut and not model.case.synced  # it may be: nothing was promised
        if not ahead:
            passed = {
                g.address
                for g in model.known(promise)
                if g.address < address and not promise.may_be_pruned(g.address)
            }
            claim(passed <= there, "cursor: ahead of what is durable", name, address, there)
        if not ahead or (new is not None and not format_1):
            resumed = read_all(storage, cursor=name)
            wanted = [given for given in read.records + (new or []) if given.address >= address]
            claim(resumed.records == wanted, "cursor: resumes elsewhere", name, address, resumed)
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


def check_no_room(model: Model, system: SimulatedSystem, before: Read) -> None:
    """On a full disk opening fails or succeeds; nothing that was readable goes."""
    system.capacity = system.used()
    with contextlib.suppress(aolog.StorageFull):
        aolog.Writer(LOG, storage=Storage(system), **options_of(model.case)).close()  # type: ignore[arg-type]
    system = system.kill()
    storage = Storage(system)
    full = read_all(storage)
    claim(full.records == before.records, "full disk: other records", before, full)
    system.capacity = None
    with aolog.Writer(LOG, storage=storage, **options_of(model.case)) as writer:  # type: ignore[arg-type]
        new = [Given(writer.append(value), value) for value in NEW]
    read = read_all(storage)
    claim(read.records == before.records + new, "full disk: other records later", before, read)


def check_faults(
    model: Model, point: Point, system: SimulatedSystem, required: set[int], draw: int
) -> None:
    """Calls fail at random while it is opened and appended to. What was acknowledged all the
    same survives the next power cut; so does what was required before."""
    system.faults = RandomFaults(draw, rate=0.08)
    storage = Storage(system)
    acknowledged: list[Given] = []
    known = Model(model.case, [*model.records], model.dropped)
    promise = point.promise.copy()
    promise.known = len(model.records)
    try:
        writer = aolog.Writer(LOG, storage=storage, **options_of(model.case))  # type: ignore[arg-type]
        for value in NEW:
            known.value_at[writer.append(value)] = value
        writer.sync()
        acknowledged = [
            g for g in map(Given, known.value_at, known.value_at.values()) if g[1] in NEW
        ]
        writer.close()
    except aolog.AologError:
        pass
    for survivor in system.power_cut(limit=6, sample=2, rng=Random(draw)):
        left = read_all(Storage(survivor.system))
        there = set(left.records)
        claim(there.issuperset(acknowledged), "faults: acknowledged and lost", acknowledged, left)
        addresses = {address for address, _ in there}
        claim(required <= addresses, "faults: durable and lost", sorted(required - addresses), left)
        for address, value in left.records:
            claim(known.value_at.get(address) == value, "faults: invented", address, value)


def half_of(call_number: int) -> object:
    """A rule of faults: so much of the call's bytes is written, half of them."""
    return lambda call: Effect(short=call.size // 2) if call.number == call_number else None
