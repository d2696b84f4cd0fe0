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

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from aolog.errors import (
    CursorLocked,
    HeaderLost,
    LogLocked,
    StorageFull,
)
from aolog.log.directory import Log
from aolog.storage.files import Storage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from aolog.maintenance.aside import Aside
    from aolog.maintenance.audit import Audit
    from aolog.maintenance.mending import SlabPlan
    from aolog.record import Gap
    from aolog.storage.files import Inside

__all__ = ["SPARE_BYTES", "Mended", "Repaired", "repair"]

SPARE_BYTES = 1 << 20  # beside the slabs: directories, the report, what is salvaged


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
    log = Log(os.fspath(path), storage)
    try:
        log.require_slabs()
        if into is not None:
            from aolog.maintenance.copy import copy_fresh

            target = os.fspath(into)
            return copy_fresh(
                log, target, dry_run=dry_run, resync=resync, progress=progress, storage=storage
            )
        with _writers_lock(log, dry_run=dry_run):
            log.refresh(force=True)
            if log.published and not dry_run:
                from aolog.log.forward import roll_forward

                roll_forward(log)
            return _in_place(log, dry_run=dry_run, resync=resync, progress=progress)
    finally:
        log.close()


@contextmanager
def _writers_lock(log: Log, *, dry_run: bool) -> Iterator[None]:
    directory = log.storage.open_directory(log.directory)
    try:
        if not dry_run:
            log.storage.refuse_root(directory)
        if not directory.try_lock():
            raise LogLocked(
                "a writer has the log open: it would go on in a slab that is replaced",
                hint="stop it, then repair; readers may go on",
                path=log.path,
            )
        yield
    finally:
        directory.close()


# --- looking --------------------------------------------------------------------------------


def _plans(log: Log, found: Audit) -> list[SlabPlan]:
    from aolog.maintenance.mending import damaged_ranges, plan_slab
    from aolog.maintenance.verify import seal_state

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


def _is_dirty(storage: Storage, path: Inside, ranges: list[tuple[int, int]]) -> bool:
    if not ranges:
        return False
    try:
        file = storage.open_read(path)
    except FileNotFoundError:  # pruned meanwhile
        return False
    try:
        return not all(file.is_blank(begin, end) for begin, end in ranges)
    finally:
        file.close()


def _progress_half(
    progress: Callable[[int, int], None] | None, half: int
) -> Callable[[int, int], None] | None:
    """The log is read twice: before, and as it will be."""
    if progress is None:
        return None
    return lambda done, total: progress((done + half * total) // 2, total)


def _in_place(
    log: Log,
    *,
    dry_run: bool,
    resync: bool,
    progress: Callable[[int, int], None] | None,
) -> Repaired:
    from aolog.maintenance.audit import audit
    from aolog.maintenance.verify import judge

    storage = log.storage
    found = audit(log, progress=_progress_half(progress, 0), resync=resync)
    if all(slab.format == 2 and slab.header is None for slab in found.slabs):
        raise HeaderLost(
            "no slab's header is intact: nothing says what the log is",
            hint="salvage what its frames still hold, and move the directory aside",
            path=log.path,
        )
    report = judge(log, found)
    plans = _plans(log, found)
    cursors = [c.name for c in report.cursors if c.state != "corrupt" and False in c.copies]
    needed = sum(end - begin for plan in plans for begin, end in plan.keep)
    needed += SPARE_BYTES if plans else 0
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
    from aolog.maintenance import aside as kept
    from aolog.maintenance.replacing import replace_slabs

    aside = kept.Aside(log.directory, storage, [plan.base for plan in plans])
    if plans:
        _remove_unborn(log)
        after = replace_slabs(
            log, found, plans, aside, resync=resync, progress=_progress_half(progress, 1)
        )
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


def _remove_unborn(log: Log) -> None:
    """As a writer does: nobody reads them, and a repair that was killed leaves some."""
    log.refresh(force=True)
    for name in log.unborn:
        log.storage.unlink(log.directory / name)


def _mend_cursor(log: Log, name: str, aside: Aside) -> bool:
    """Whether its damaged copy was written anew. One that a reader holds gets it with that
    reader's next commit."""
    from aolog.log.cursor_file import mend_copy

    try:
        return mend_copy(
            log.path, name, log.storage, lambda data: aside.put(f"{name}.cursor", [data])
        )
    except (CursorLocked, FileNotFoundError):
        return False
