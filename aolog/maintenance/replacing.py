"""Puts clean slabs in the place of damaged ones. Why that is safe at every moment: repairing.py.

Order: every copy written and durable; the log read as it will be, and compared; originals named
a second time, durable; copies renamed over them, durable.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aolog.errors import AologError, StorageFailed
from aolog.format.frame import FLAG_DURABLE, Frame
from aolog.format.slab import MAGIC, decode_seal_body, encode_seal
from aolog.log.directory import RETENTION_LOCK, Log
from aolog.log.walk import Walker
from aolog.maintenance.audit import audit
from aolog.storage import clock
from aolog.storage.files import Directory, File, Inside, Storage

if TYPE_CHECKING:
    from collections.abc import Callable

    from aolog.maintenance.aside import Aside
    from aolog.maintenance.audit import Audit, SlabAudit
    from aolog.maintenance.mending import SlabPlan
    from aolog.record import Gap
    from aolog.storage.files import Entry

__all__ = ["replace_slabs"]


class _Staged(Storage):
    """Reads the log as it will be: a clean copy in the place of each slab that has one."""

    def __init__(self, inner: Storage, staged: dict[str, Inside]) -> None:
        super().__init__(inner.system)
        self._inner = inner
        self._staged = staged

    def list_names(self, path: str | Directory) -> list[str]:
        return self._inner.list_names(path)

    def open_directory(self, path: str | Directory) -> Directory:
        return self._inner.open_directory(path)

    def open_read(self, path: Inside) -> File:
        return self._inner.open_read(self._staged.get(path, path))

    def entry(self, path: str) -> Entry | None:
        return self._inner.entry(self._staged.get(path, path))


def replace_slabs(
    log: Log,
    found: Audit,
    plans: list[SlabPlan],
    aside: Aside,
    *,
    resync: bool,
    progress: Callable[[int, int], None] | None,
) -> Audit:
    """Makes the copies, proves them, and puts them in their places; the audit of the new log."""
    storage = log.storage
    originals = {slab.base: slab for slab in found.slabs}
    staged: dict[str, Inside] = {}
    try:
        for plan in plans:
            try:
                _write_copy(storage, plan, originals[plan.base], staged)
            except FileNotFoundError:  # pruned meanwhile
                continue
        plans = [plan for plan in plans if plan.path in staged]
        storage.sync_directory(log.directory)
        new = Log(log.directory, _Staged(storage, staged))
        try:
            after = audit(new, progress=progress, resync=resync)
        finally:
            new.close()
        for slab in after.slabs:
            slab.path = log.slab_path(slab.base)
        seals = [
            (plan.base + plan.new_seal.offset, plan.base + plan.new_seal.end)
            for plan in plans
            if plan.new_seal is not None
        ]
        _require_alike(log.path, found, after, seals)
        aside.salvage(log.path, found.slabs)
        lock = storage.open_lock(log.directory / RETENTION_LOCK)
        try:
            lock.lock()
            _swap(log, plans, originals, aside)
        finally:
            lock.close()
    except AologError:
        for temporary in staged.values():  # on a full disk they would keep what room there is
            storage.unlink(temporary)
        raise
    return after


def _write_copy(
    storage: Storage, plan: SlabPlan, slab: SlabAudit, staged: dict[str, Inside]
) -> None:
    """The clean copy, durable on return but for its name. staged: is told where it is."""
    original = storage.open_read(plan.path)
    original.datasync()  # what is kept must not vanish where a writer left it unsynced
    staged[plan.path] = plan.path + ".tmp"
    copy = storage.create(staged[plan.path])
    try:
        copy.adopt(original)  # before anything of the log stands in it
        copy.truncate(plan.size)
        for begin, end in plan.keep:
            for at, piece in original.pieces(begin, end):
                copy.pwrite_all([piece], at)
        if plan.header is None:  # says of what format it is, and no more
            copy.pwrite_all([MAGIC[: plan.size]], 0)
        else:
            same_file = plan.header.inode in {original.identity(), original.stat().inode}
            header = plan.header._replace(inode=copy.identity() if same_file else 0)
            copy.pwrite_all([header.encode_prelude()], 0)
            if plan.new_seal is not None:
                made = plan.new_seal.seal.with_header(header)
                parts = encode_seal(
                    made, plan.new_seal.offset, flags=FLAG_DURABLE, timestamp_us=clock.now_us()
                )
                copy.pwrite_all(parts, plan.new_seal.offset)
            elif plan.reseal and slab.seal_at is not None:
                frame = Walker(original, header.salt, slab.seal_at).next()
                seal = decode_seal_body(frame.body) if isinstance(frame, Frame) else None
                if isinstance(frame, Frame) and seal is not None:
                    head = frame.header
                    parts = encode_seal(
                        seal.with_header(header),
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
    gaps = [_without(gap, seals) for gap in before.gaps if gap.begin >= first]
    if not same_slabs or _that_tell(gaps) != _that_tell(after.gaps):
        raise StorageFailed(
            "the clean copy does not read as the log does",
            hint="check the device; nothing was changed",
            path=path,
        )


def _tally(slab: SlabAudit) -> tuple[int, ...]:
    """What tells intact frames apart: headers have their bodies' hashes."""
    return slab.base, slab.records, slab.frames, slab.headers_hash


def _that_tell(gaps: list[Gap]) -> list[Gap]:
    """Without those that cover no address and count no record: nothing was lost there, or a last
    slab of 0 bytes says that nobody knows what was."""
    return [gap for gap in gaps if gap.begin < gap.end or gap.records_lost]


def _without(gap: Gap, seals: list[tuple[int, int]]) -> Gap:
    """The gap as it is told beside seals that are there again."""
    for begin, end in seals:
        if gap.begin == begin and end <= gap.end:
            gap = gap._replace(begin=end)
        elif gap.end == end and gap.begin <= begin:
            gap = gap._replace(end=begin)
    return gap


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
    storage.sync_directory(log.directory)
