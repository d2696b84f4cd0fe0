"""Looking a log over: every frame checked, every gap named, every cursor listed. Reads only."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from aolog import seek
from aolog.batch import RecordFrame
from aolog.cursor import Cursor, cursor_names, read_position
from aolog.errors import CursorDiverged, CursorForeign
from aolog.log import Log, Slab
from aolog.record import Gap, Lag
from aolog.scan import Scan
from aolog.slab import HEADER_COPIES
from aolog.storage import Storage

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Report", "cursors", "verify"]


class Report(NamedTuple):
    """What `verify` found. ok: no gap and nothing damaged. bytes: of slab files. end: address
    behind the last intact frame. durable: address up to which a mark or a seal says that
    everything was synced; more may be. tail_bytes: behind `end`, not blank: an append that is going
    on, or a torn end that the next writer sets aside. problems: damage that costs no record."""

    ok: bool
    records: int
    frames: int
    slabs: int
    bytes: int
    gaps: list[Gap]
    end: int
    durable: int
    tail_bytes: int
    problems: list[str]


def verify(
    path: str | os.PathLike[str],
    *,
    progress: Callable[[int, int], None] | None = None,
    resync: bool = False,
    storage: Storage | None = None,
) -> Report:
    """Reads the whole log and checks every byte that a frame covers, at the speed of reading.

    progress: called with (bytes done, bytes in all). Changes nothing and may run beside a
    writer: what is not finished yet is no damage. Raises NotALog, NewerFormat, StorageError.
    """
    log = Log(os.fspath(path), storage or Storage())
    try:
        log.require_slabs()
        return _verify(log, progress, resync=resync)
    finally:
        log.close()


def _verify(log: Log, progress: Callable[[int, int], None] | None, *, resync: bool) -> Report:
    total = tail_bytes = 0
    problems: list[str] = []
    bases = list(log.bases)
    durable = bases[0]
    for i in range(len(bases)):
        slab = log.open_slab(i)
        try:
            total += slab.end_offset
            problems += _problems(slab, last=i + 1 == len(bases))
            if slab.seal() is not None:
                durable = slab.base + slab.end_offset
            elif slab.header is not None:
                durable = max(durable, slab.base + slab.durable_offset())
        finally:
            slab.close()
    records = frames = done = 0
    gaps: list[Gap] = []
    scan = Scan(log, seek.earliest(log), resync=resync)
    try:
        while (found := scan.next()) is not None:
            if isinstance(found, RecordFrame):
                records += found.columns.records
                frames += 1
                done += found.size
            else:
                gaps.append(found)
                done += found.end - found.begin
            if progress is not None:
                progress(min(done, total), total)
        end = scan.address
        if scan.slab is not None and not scan.blank_tail:
            tail_bytes = scan.slab.base + scan.slab.end_offset - end
    finally:
        scan.close()
    if progress is not None:
        progress(total, total)
    return Report(
        ok=not gaps and not problems,
        records=records,
        frames=frames,
        slabs=len(bases),
        bytes=total,
        gaps=gaps,
        end=end,
        durable=min(durable, end) if end else durable,
        tail_bytes=max(0, tail_bytes),
        problems=problems,
    )


def _problems(slab: Slab, *, last: bool) -> list[str]:
    """Damage of a slab that costs no record."""
    if slab.format == 1:
        return []
    name = slab.file.path
    if slab.header is None:
        return [f"{name}: no copy of the header is intact"]
    found = []
    if slab.copies_intact < len(HEADER_COPIES):
        found.append(f"{name}: {slab.copies_intact} of 2 header copies intact")
    if not last and slab.seal() is None and slab.sealed_by_trailer():
        found.append(f"{name}: the seal is damaged; its index is rebuilt when it is needed")
    return found


def cursors(path: str | os.PathLike[str], *, storage: Storage | None = None) -> list[Cursor]:
    """The log's cursors by name, with their lag. Raises NotALog, CursorCorrupt."""
    from aolog.reader import Reader

    storage = storage or Storage()
    where = os.fspath(path)
    log = Log(where, storage)
    try:
        log.require_slabs()
    finally:
        log.close()
    listed = []
    for name in cursor_names(where, storage):
        position = read_position(where, name, storage)
        with Reader(where, storage=storage) as reader:
            try:
                reader.stand_at(position)
                lag = reader.lag()
            except (CursorForeign, CursorDiverged):
                lag = Lag(None, 0, None)
        listed.append(Cursor(name, position.address, position.ordinal, lag, position.protects))
    return listed
