"""Repair: a damaged log made clean, at the same addresses or as a new log. Never needed to read.

In place, each damaged slab is replaced by a clean one (mending.py says what that holds), one
rename a slab. Why the log is whole at every moment, whatever is killed or loses power:

1. A slab and its clean copy read alike: same header fields, same intact frames at the same
   offsets, same gaps. What a reader makes of the log depends on each slab by itself, so any mixture
   of old and new slabs is the same log. Nothing has to change at once, but each file whole.
2. A clean copy is written as `NAME.slab.tmp`, which nobody reads and the next writer removes, and
   is durable before anything else happens. All copies are made, then the log is read once more
   as it will be, and compared with what it was: records, frames, gaps. Only then
3. the original gets a second name in aside/repair-NNNN/, durable, and
4. the copy is renamed over it. There is no moment without a file of that name, and the original
   is never written to and never removed.

So a repair that was killed is repeated from the start; what was replaced already is clean and is
passed over. The whole directory is not swapped: the writer's lock is on the directory itself,
cursors are locked in it, and readers list it by its path. Those who read keep the old file open.

Locks: the writer's all the time, so a live writer is refused before anything is touched; for the
replacement the retention lock too, so that no slab that was pruned comes back.
"""

from __future__ import annotations

import json
import os
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from aolog import clock
from aolog.errors import (
    CursorLocked,
    HeaderLost,
    LogLocked,
    StorageError,
    StorageFailed,
    StorageFull,
    UsageError,
)
from aolog.frame import FLAG_DURABLE, FRAME_HEADER_LEN, decode_header
from aolog.log import ASIDE_DIRECTORY, RETENTION_LOCK, Log, Slab
from aolog.storage import Directory, File, Storage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from aolog.audit import Audit, SlabAudit
    from aolog.frame import Buffer
    from aolog.mending import SlabPlan
    from aolog.record import Gap
    from aolog.storage import Entry

__all__ = ["Mended", "Repaired", "repair"]

_COPY_BYTES = 1 << 20
_SPARE_BYTES = 1 << 20  # beside the slabs: directories, the report, what is salvaged
REPORT_NAME = "report.json"
SALVAGE_NAME = "salvage.jsonl"


class Mended(NamedTuple):
    """A slab that was replaced, or would be. why: what was mended. kept: where the original is."""

    base: int
    path: str
    why: list[str]
    kept: str | None


class Repaired(NamedTuple):
    """What `repair` did, or would do. records, gaps: as every reader is told them, before and
    after. cursors: of which a damaged copy was written anew. needed_bytes: room for the copies.
    aside: directory of what was replaced. salvaged: records in salvage_path, unverified. left:
    damage that could not be mended. into, map_path: of a new log."""

    dry_run: bool
    records: int
    gaps: list[Gap]
    slabs: list[Mended]
    cursors: list[str]
    needed_bytes: int
    aside: str | None
    salvaged: int
    salvage_path: str | None
    left: list[str]
    into: str | None = None
    map_path: str | None = None


def repair(
    path: str | os.PathLike[str],
    into: str | os.PathLike[str] | None = None,
    *,
    dry_run: bool = False,
    resync: bool = False,
    progress: Callable[[int, int], None] | None = None,
    storage: Storage | None = None,
) -> Repaired:
    """Makes a damaged log clean, at the same addresses; durable on return.

    Gaps stay, with their ranges and counts: records that are lost stay lost, and are told. Originals
    are kept in the log's aside/repair-NNNN/. into: in place of that, copies every intact record to
    a new log there, with new addresses, and writes a map of them beside it; the log stays as it is.
    dry_run: only says what would be done, and touches nothing. resync: as `verify`'s.

    Safe to kill at any moment and to call again. Readers may go on meanwhile. Raises LogLocked
    beside a writer, StorageFull naming the bytes needed, HeaderLost where nothing says what the log
    is, NotALog, NewerFormat, UsageError, StorageError: then the log is as it was.
    """
    storage = storage or Storage()
    where = os.fspath(path)
    log = Log(where, storage)
    try:
        log.require_slabs()
        if into is not None:
            from aolog.fresh import copy_fresh

            target = os.fspath(into)
            return copy_fresh(
                log, target, dry_run=dry_run, resync=resync, progress=progress, storage=storage
            )
        with _writers_lock(where, storage) as directory:
            log.refresh(force=True)
            return _in_place(log, directory, dry_run=dry_run, resync=resync, progress=progress)
    finally:
        log.close()


@contextmanager
def _writers_lock(path: str, storage: Storage) -> Iterator[Directory]:
    directory = storage.open_directory(path)
    try:
        if not directory.try_lock():
            raise LogLocked(
                "a writer has the log open: it would go on in a slab that is replaced",
                hint="stop it, then repair; readers may go on",
                path=path,
            )
        yield directory
    finally:
        directory.close()


# --- looking --------------------------------------------------------------------------------


def _plans(log: Log, found: Audit) -> list[SlabPlan]:
    from aolog.mending import damaged_ranges, plan_slab
    from aolog.verify import seal_state

    plans = []
    for i, slab in enumerate(found.slabs):
        last = i + 1 == len(found.slabs)
        successor = None if last else found.slabs[i + 1].header
        plan = plan_slab(
            slab,
            successor,
            last=last,
            dirty=_is_dirty(log.storage, slab.path, damaged_ranges(slab, last=last)),
            is_damaged=seal_state(slab, successor) == "damaged",
        )
        if plan is not None:
            plans.append(plan)
    return plans


def _is_dirty(storage: Storage, path: str, ranges: list[tuple[int, int]]) -> bool:
    if not ranges:
        return False
    file = storage.open_read(path)
    try:
        for begin, end in ranges:
            for at in range(begin, end, _COPY_BYTES):
                piece = file.pread(min(_COPY_BYTES, end - at), at)
                if piece.count(0) != len(piece):
                    return True
    finally:
        file.close()
    return False


def _progress_half(
    progress: Callable[[int, int], None] | None, half: int
) -> Callable[[int, int], None] | None:
    """The log is read twice: before, and as it will be."""
    if progress is None:
        return None
    return lambda done, total: progress((done + half * total) // 2, total)


def _in_place(
    log: Log,
    directory: Directory,
    *,
    dry_run: bool,
    resync: bool,
    progress: Callable[[int, int], None] | None,
) -> Repaired:
    from aolog.audit import audit
    from aolog.verify import judge

    storage = log.storage
    found = audit(log, progress=_progress_half(progress, 0), resync=resync)
    if log.format == 2 and all(slab.header is None for slab in found.slabs):
        raise HeaderLost(
            "no slab's header is intact: nothing says what the log is",
            hint="salvage what its frames still hold, and move the directory aside",
            path=log.path,
        )
    report = judge(log, found)
    plans = _plans(log, found)
    cursors = [c.name for c in report.cursors if c.state != "corrupt" and False in c.copies]
    needed = sum(end - begin for plan in plans for begin, end in plan.keep)
    needed += _SPARE_BYTES if plans else 0
    for plan in plans:
        _refuse_link(storage.entry(plan.path), plan.path)
    if plans and (free := storage.free_bytes(log.path)) < needed:
        raise StorageFull(
            f"{needed} bytes are needed for clean copies, {free} are free",
            hint="free some; nothing was changed",
            path=log.path,
            needed=needed,
            free=free,
        )
    planned = {plan.path for plan in plans}
    left = [
        problem.message
        for problem in report.findings
        if problem.damage and problem.path not in planned and problem.code != "cursor_copy"
    ]
    told = Repaired(
        dry_run=dry_run,
        records=found.records,
        gaps=found.gaps,
        slabs=[Mended(plan.base, plan.path, plan.why, None) for plan in plans],
        cursors=cursors,
        needed_bytes=needed,
        aside=None,
        salvaged=0,
        salvage_path=None,
        left=left,
    )
    if dry_run or not (plans or cursors):
        if progress is not None:
            progress(found.bytes, found.bytes)
        return told
    aside = Aside(log.path, directory, storage, [plan.base for plan in plans])
    if plans:
        _remove_unborn(log)
        after = _replace(log, found, plans, aside, resync=resync, progress=progress)
        told = told._replace(
            slabs=[Mended(p.base, p.path, p.why, aside.kept(p.base)) for p in plans],
            gaps=after.gaps,
            left=[
                f.message
                for f in judge(log, after).findings
                if f.damage and f.code != "cursor_copy"
            ],
        )
    told = told._replace(
        aside=aside.path,
        cursors=[name for name in cursors if _mend_cursor(log, name, aside)],
        salvaged=aside.salvaged,
        salvage_path=aside.salvage_path,
    )
    aside.finish(told)
    return told


def _refuse_link(entry: Entry | None, path: str) -> None:
    if entry is not None and entry.kind == "link":
        raise UsageError(
            f"{path}: is a symbolic link, in whose place a file would come",
            hint="put the file itself there, or copy to a new log with --fresh",
        )


def _remove_unborn(log: Log) -> None:
    """As a writer does: nobody reads them, and a repair that was killed leaves some."""
    for name in log.storage.list_names(log.path):
        if name.endswith(".slab.tmp"):
            log.storage.unlink(f"{log.path}/{name}")


# --- replacing ------------------------------------------------------------------------------


class _Staged(Storage):
    """Reads the log as it will be: a clean copy in the place of each slab that has one."""

    def __init__(self, inner: Storage, staged: dict[str, str]) -> None:
        self._inner = inner
        self._staged = staged

    def list_names(self, path: str) -> list[str]:
        return self._inner.list_names(path)

    def open_directory(self, path: str) -> Directory:
        return self._inner.open_directory(path)

    def open_read(self, path: str) -> File:
        return self._inner.open_read(self._staged.get(path, path))

    def entry(self, path: str) -> Entry | None:
        return self._inner.entry(self._staged.get(path, path))


def _replace(
    log: Log,
    found: Audit,
    plans: list[SlabPlan],
    aside: Aside,
    *,
    resync: bool,
    progress: Callable[[int, int], None] | None,
) -> Audit:
    """Makes the copies, proves them, and puts them in their places; the audit of the new log."""
    from aolog.audit import audit

    storage = log.storage
    originals = {slab.base: slab for slab in found.slabs}
    staged: dict[str, str] = {}
    try:
        for plan in plans:
            try:
                _write_copy(storage, plan, originals[plan.base], staged)
            except FileNotFoundError:  # pruned meanwhile
                continue
        plans = [plan for plan in plans if plan.path in staged]
        storage.sync_directory(log.path)
        new = Log(log.path, _Staged(storage, staged))
        try:
            after = audit(new, progress=_progress_half(progress, 1), resync=resync)
        finally:
            new.close()
        seals = [
            (plan.base + plan.new_seal.offset, plan.base + plan.new_seal.end)
            for plan in plans
            if plan.new_seal is not None
        ]
        _require_alike(log.path, found, after, seals)
        aside.salvage(log.path, found.slabs)
        lock = _retention_lock(log, list(staged.values()))
        try:
            lock.lock()
            _swap(log, plans, originals, aside)
        finally:
            lock.close()
    except StorageError:
        for temporary in staged.values():  # on a full disk they would keep what room there is
            storage.unlink(temporary)
        raise
    return after


def _retention_lock(log: Log, copies: list[str]) -> File:
    """Opened; one that is made here belongs to whoever the slabs belong to."""
    path = f"{log.path}/{RETENTION_LOCK}"
    is_new = not log.storage.exists(path)
    lock = log.storage.open_lock(path)
    try:
        if is_new and copies:
            copy = log.storage.open_read(copies[0])
            try:
                lock.adopt(copy)
            finally:
                copy.close()
    except BaseException:
        lock.close()
        raise
    return lock


def _write_copy(storage: Storage, plan: SlabPlan, slab: SlabAudit, staged: dict[str, str]) -> None:
    """The clean copy, durable on return but for its name. staged: is told where it is."""
    from aolog.slab import encode_seal

    original = storage.open_read(plan.path)
    staged[plan.path] = plan.path + ".tmp"
    copy = storage.create(staged[plan.path])
    try:
        copy.adopt(original)  # before anything of the log stands in it
        copy.truncate(plan.size)
        for begin, end in plan.keep:
            for at in range(begin, end, _COPY_BYTES):
                copy.pwrite_all([original.pread(min(_COPY_BYTES, end - at), at)], at)
        if plan.header is not None:
            same_file = plan.header.inode == original.stat().inode
            header = replace(plan.header, inode=copy.stat().inode if same_file else 0)
            copy.pwrite_all([header.encode_prelude()], 0)
            if plan.new_seal is not None:
                made = replace(plan.new_seal.seal, header=header)
                parts = encode_seal(
                    made, plan.new_seal.offset, flags=FLAG_DURABLE, timestamp_us=clock.now_us()
                )
                copy.pwrite_all(parts, plan.new_seal.offset)
            elif plan.reseal and slab.seal_at is not None:
                old = Slab(original, plan.base, limit=slab.limit, log_format=2)
                seal = old.seal()
                head = decode_header(
                    original.pread(FRAME_HEADER_LEN, slab.seal_at), 0, slab.seal_at, header.salt
                )
                if seal is not None and head is not None:
                    parts = encode_seal(
                        replace(seal, header=header),
                        slab.seal_at,
                        flags=head.flags,
                        timestamp_us=head.timestamp_us,
                    )
                    copy.pwrite_all(parts, slab.seal_at)
        copy.adopt(original)  # once more, for the time of change, by which retention tells age
        copy.datasync()
    finally:
        copy.close()
        original.close()


def _require_alike(path: str, before: Audit, after: Audit, seals: list[tuple[int, int]]) -> None:
    """Raises unless the new log reads as the old one did. seals: ranges of new ones, over which
    there may be no gap any more."""
    first = after.slabs[0].base if after.slabs else 0  # others may be pruned meanwhile
    same_slabs = [_tally(slab) for slab in before.slabs if slab.base >= first] == [
        _tally(slab) for slab in after.slabs
    ]
    gaps = [
        gap
        for old in before.gaps
        if old.begin >= first and (gap := _without(old, seals)) is not None
    ]
    if not same_slabs or gaps != after.gaps:
        raise StorageFailed(
            "the clean copy does not read as the log does",
            hint="check the device; nothing was changed",
            path=path,
        )


def _tally(slab: SlabAudit) -> tuple[int, ...]:
    """What tells intact frames apart: headers have their bodies' hashes."""
    return slab.base, slab.records, slab.frames, slab.headers_hash


def _without(gap: Gap, seals: list[tuple[int, int]]) -> Gap | None:
    """The gap as it is told beside seals that are there again."""
    for begin, end in seals:
        if gap.begin == begin and end <= gap.end:
            gap = gap._replace(begin=end)
        elif gap.end == end and gap.begin <= begin:
            gap = gap._replace(end=begin)
    if gap.begin < gap.end:
        return gap
    return None if gap.records_lost in {0, None} else gap


def _swap(log: Log, plans: list[SlabPlan], originals: dict[int, SlabAudit], aside: Aside) -> None:
    """Each original gets its second name, then each copy its first. Durable on return."""
    storage = log.storage
    going = []
    for plan in plans:
        if storage.entry(plan.path) is None:  # pruned meanwhile
            storage.unlink(plan.path + ".tmp")
            continue
        file = storage.open_read(plan.path)
        try:
            if file.stat() != originals[plan.base].stat:
                raise StorageFailed(
                    "changed while it was repaired",
                    hint="somebody wrote to it without the writer's lock; nothing was replaced",
                    path=plan.path,
                )
        finally:
            file.close()
        aside.keep(plan.base, plan.path)
        going.append(plan)
    aside.sync()
    for plan in going:
        storage.rename(plan.path + ".tmp", plan.path)
    storage.sync_directory(log.path)


def _mend_cursor(log: Log, name: str, aside: Aside) -> bool:
    """Whether its damaged copy was written anew. One that a reader holds gets it with that
    reader's next commit."""
    from aolog.cursor import mend_copy

    try:
        return mend_copy(
            log.path, name, log.storage, lambda data: aside.put(f"{name}.cursor", [data])
        )
    except (CursorLocked, FileNotFoundError):
        return False


# --- what is kept ---------------------------------------------------------------------------


class Aside:
    """LOG/aside/repair-NNNN/: originals, what was salvaged, a report that says it is finished.

    One that has no report is of a repair that was killed, and is gone on with, unless an original
    that is to be kept has a namesake there. Belongs to whoever the log belongs to.
    """

    def __init__(
        self, log_path: str, directory: Directory, storage: Storage, bases: list[int]
    ) -> None:
        from aolog.slab import slab_name

        self._storage = storage
        self._name = slab_name
        self.salvaged = 0
        self.salvage_path: str | None = None
        parent = f"{log_path}/{ASIDE_DIRECTORY}"
        self._make(parent, directory)
        numbers = [
            int(name[7:])
            for name in storage.list_names(parent)
            if name.startswith("repair-") and name[7:].isdecimal()
        ]
        number = max(numbers, default=0)
        self.path = f"{parent}/repair-{number:04d}"
        if (
            not number
            or storage.exists(f"{self.path}/{REPORT_NAME}")
            or self._clashes(bases, log_path)
        ):
            self.path = f"{parent}/repair-{number + 1:04d}"
        self._make(self.path, directory)

    def _make(self, path: str, like: Directory) -> None:
        if self._storage.exists(path):
            return
        self._storage.make_directory(path)
        made = self._storage.open_directory(path)
        try:
            made.adopt(like)  # a writer that runs as another user puts its own things there
        finally:
            made.close()

    def _clashes(self, bases: list[int], log_path: str) -> bool:
        for base in bases:
            kept = self.kept(base)
            if self._storage.exists(kept) and not self._is_same(
                kept, f"{log_path}/{self._name(base)}"
            ):
                return True
        return False

    def _is_same(self, one: str, other: str) -> bool:
        inodes = []
        for path in (one, other):
            file = self._storage.open_read(path)
            inodes.append(file.stat().inode)
            file.close()
        return inodes[0] == inodes[1]

    def kept(self, base: int) -> str:
        """Where the original of a slab is."""
        return f"{self.path}/{self._name(base)}"

    def keep(self, base: int, path: str) -> None:
        """The original has a second name, or where there is none, a copy."""
        kept = self.kept(base)
        if self._storage.exists(kept) or self._storage.link(path, kept):
            return
        file = self._storage.open_read(path)
        try:
            pieces = range(0, file.stat().size, _COPY_BYTES)
            self.put(self._name(base), (file.pread(_COPY_BYTES, at) for at in pieces))
        finally:
            file.close()

    def put(self, name: str, parts: Iterable[Buffer]) -> None:
        """A file, durable on return."""
        self._storage.write_file(f"{self.path}/{name}", parts)

    def sync(self) -> None:
        """Second names are on the device on return."""
        self._storage.sync_directory(self.path)

    def salvage(self, log_path: str, slabs: list[SlabAudit]) -> None:
        """What damaged frames still hold goes to a file; one of a repair that was killed stays:
        it may be of slabs that are clean by now."""
        from aolog.salvage import write_salvage

        path = f"{self.path}/{SALVAGE_NAME}"
        if not self._storage.exists(path):
            self.salvaged = write_salvage(path, log_path, slabs, self._storage)
            if not self.salvaged:
                return
        self.salvage_path = path

    def finish(self, told: Repaired) -> None:
        """The report, the last thing."""
        text = json.dumps(
            {
                **told._asdict(),
                "gaps": [gap._asdict() for gap in told.gaps],
                "slabs": [slab._asdict() for slab in told.slabs],
                "finished_us": clock.now_us(),
            },
            indent=1,
        )
        self.put(REPORT_NAME, [text.encode() + b"\n"])
