"""The report on a log: gaps, damage, and the state of slabs and cursors. Reads only.

audit.py reads and hashes each byte once; this module judges the result. There are three kinds of
findings: damage that causes a gap; damage that costs no record, because another copy or the frames
have the same information; and notes, which are not damage. In a copy by `repair`, the causes of its
known gaps are notes.
"""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from aolog.errors import CursorDiverged, CursorForeign, NoSuchCursor, counted
from aolog.format.cursor_copy import COPIES
from aolog.format.names import MANIFEST_NAME
from aolog.format.slab import ADDRESS_END, HEADER_COPIES, NO_PREDECESSOR, slab_name
from aolog.log.cursor_file import cursor_names, cursor_path, read_copies, read_position
from aolog.log.directory import Log
from aolog.log.manifest import listed_slabs
from aolog.maintenance.audit import audit
from aolog.maintenance.baseline import own_baseline
from aolog.maintenance.report import Finding, Report
from aolog.read import seek
from aolog.read.cursor import check_course, lost_end
from aolog.read.reader import Reader, view_of
from aolog.record import Gap, Lag
from aolog.storage.objects.url import is_url
from aolog.storage.storage import Storage, checked_path

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from aolog.format.cursor_copy import CursorPosition
    from aolog.format.slab import SlabHeader
    from aolog.maintenance.audit import Audit, SlabAudit
    from aolog.record import Gap, Position

SealState: TypeAlias = Literal["intact", "differs", "damaged", "none"]


def verify(
    path: str | os.PathLike[str],
    *,
    progress: Callable[[int, int], None] | None = None,
    storage: Storage | None = None,
) -> Report:
    """Reads the log and checks every byte that a frame covers, at the speed of reading.

    Changes nothing and may run beside a writer: checks what the log held when it began; an unfinished
    append is not damage. progress: called with (bytes done, bytes in all). Raises NotALog, NewerFormat,
    StorageError.
    """
    with Log(checked_path(path), storage or Storage()) as log:
        log.require_slabs()
        return judge(log, audit(log, progress=progress))


def judge(log: Log, found: Audit) -> Report:
    """The report on an audit and on the log's cursors."""
    findings: list[Finding] = []
    any_header = any(slab.header is not None for slab in found.slabs)
    for i, slab in enumerate(found.slabs):
        successor = found.slabs[i + 1].header if i + 1 < len(found.slabs) else None
        findings += _of_slab(slab, _seal_state(slab, successor), any_header=any_header)
    findings += _lost_publications(log)
    lost_ends: list[Gap] = []
    for name in cursor_names(log.path, log.storage):
        findings += _of_cursor(log, found, name, lost_ends)
    # The one that goes furthest; of cursors at one address one that knows its ordinal.
    furthest = sorted(lost_ends, key=lambda gap: (gap.end, gap.records_lost or 0))[-1:]
    gaps = [*found.gaps, *furthest]
    if found.tail_bytes:
        message = (
            f"{counted(found.tail_bytes, 'byte')} after the end: an append in progress, or a torn end "
            "that the next writer sets aside"
        )
        findings.append(Finding("tail", found.slabs[-1].path, message, False))
    own = own_baseline(log)
    findings = [each._replace(damage=each.damage and not own.explains(each)) for each in findings]
    problems = [finding.message for finding in findings if finding.damage]
    durable = found.slabs[0].base if found.slabs else 0
    for slab in found.slabs:
        if slab.runs and slab.has_headers:
            durable = max(durable, slab.base + slab.durable)
    known = [gap for gap in gaps if own.covers(gap)]
    return Report(
        ok=len(known) == len(gaps) and not problems,
        records=found.records,
        frames=found.frames,
        slabs=len(found.slabs),
        bytes=found.bytes,
        gaps=gaps,
        end=found.end,
        durable=min(durable, found.end) if found.end else durable,
        tail_bytes=found.tail_bytes,
        problems=problems,
        notes=[finding.message for finding in findings if not finding.damage],
        findings=findings,
        known=known,
    )


def _lost_publications(log: Log) -> Iterator[Finding]:
    """Slabs at the end of the log that are gone, as a manifest shows: a log keeps its last slab."""
    if is_url(log.path):  # the archive's manifest is the listing
        return
    listed = list(listed_slabs(log.path, log.storage))
    if not listed:
        return
    with Log(log.path, log.storage) as now:  # listed later: what is published meanwhile is no loss
        last = now.bases[-1] if now.bases else ADDRESS_END
    for root, base in listed:
        if base > last:
            message = (
                f"{slab_name(base)}, published by {root}/{MANIFEST_NAME}, is gone, with all its records; a log "
                "that was made anew on purpose lacks it, too"
            )
            yield Finding("published_lost", f"{log.path}/{slab_name(base)}", message, True)


# --- slabs ----------------------------------------------------------------------------------


def _seal_state(slab: SlabAudit, successor: SlabHeader | None) -> SealState:
    """A slab without an intact seal had one if its trailer or its successor shows it."""
    if slab.differences:
        return "differs"
    if slab.seal_header is not None:
        return "intact"
    if slab.header is None:
        return "none"
    if slab.trailer is not None:
        return "damaged"
    followed = successor is not None and successor.shows_sealed(slab.header)
    return "damaged" if followed else "none"


def _of_slab(slab: SlabAudit, seal: SealState, *, any_header: bool) -> list[Finding]:
    """any_header: whether any slab of the log has a header; otherwise an emptied slab is damage, because
    repair refuses such a log."""
    if not slab.has_headers:
        return []
    found = []

    def add(code: str, what: str, *, damage: bool = True) -> None:
        found.append(Finding(code, slab.path, f"{slab.path}: {what}", damage))

    if slab.foreign is not None:
        add("foreign_slab", f"belongs to another log, {slab.foreign.hex()}; nothing in it is read")
    elif slab.header is None and slab.true_base is not None:
        add("renamed", f"is the slab of base {slab.true_base} under another name")
    elif slab.is_emptied and any_header:
        add("emptied", "holds no data; a gap has the loss", damage=False)
    elif slab.header is None:
        add("header_lost", "no copy of the header is intact: nothing in it can be read")
    else:
        bad = [at for at, c in zip(HEADER_COPIES, slab.copies, strict=True) if c != slab.header]
        if bad:
            which = " and ".join(f"at {at}" for at in bad)
            intact = "the seal's" if len(bad) == len(HEADER_COPIES) else "the other"
            add("header_copy", f"header copy {which} is damaged; {intact} is intact")
        if slab.seal_header is not None and slab.seal_header != slab.header:
            add("seal_header", "the seal's copy of the header is different")
    if seal == "damaged":
        add("seal", "the seal is damaged; readers rebuild its index when they need it")
    elif seal == "differs":
        add("seal_differs", f"the seal is intact, but {'; '.join(slab.differences)}")
    return found


# --- cursors --------------------------------------------------------------------------------


def _state(log: Log, found: Audit, position: CursorPosition) -> str:
    """What a reader would find: "foreign", "diverged", "ahead" of the log's end, "pruned", or "ok"."""
    try:
        log.listed(lambda: check_course(log, position))
    except CursorForeign:
        return "foreign"
    except CursorDiverged:
        return "diverged"
    if position.address > found.end and position.address > _end_now(log).address:
        return "ahead"
    first_header = found.slabs[0].header if found.slabs else None
    begins = first_header is not None and first_header.predecessor_base == NO_PREDECESSOR
    if found.slabs and position.address < found.slabs[0].base and not begins:
        return "pruned"
    return "ok"


def _end_now(log: Log) -> Position:
    """The end of the log, which a writer may have moved since the audit."""
    log.refresh_end()
    return log.listed(lambda: seek.latest(log)).position


_CURSOR_STATES = {  # state to (damage, message)
    "corrupt": (True, "both copies are damaged: it cannot be resumed"),
    "foreign": (True, "belongs to another log: it cannot be resumed"),
    "diverged": (True, "the log's history below it has changed: it cannot be resumed"),
    "ahead": (
        False,
        "is past the log's end; the next writer begins after it",
    ),
    "pruned": (False, "is before the first slab: its reader gets a gap"),
}


def _of_cursor(log: Log, found: Audit, name: str, lost_ends: list[Gap]) -> list[Finding]:
    """lost_ends: gets what the log has lost at its end, if the cursor shows that."""
    path = cursor_path(log.path, name)
    try:
        copies = read_copies(log.path, name, log.storage)
    except FileNotFoundError:  # deleted since the listing
        return []
    known = [copy for copy in copies if copy is not None]
    newest = max(known)[1] if known else None
    state = "corrupt" if newest is None else _state(log, found, newest)
    findings = []
    if known and None in copies:
        at = COPIES[copies.index(None)]
        what = f"{path}: copy at {at} is damaged; the other is intact"
        findings.append(Finding("cursor_copy", path, what, True))
    if state in _CURSOR_STATES:
        damage, what = _CURSOR_STATES[state]
        lost = None
        if state == "ahead" and newest is not None:
            lost = log.listed(partial(lost_end, log, newest))
        if lost is not None and newest is not None:
            damage, what = True, f"is past the log's end: {newest.lost_end_text(lost)}"
            lost_ends.append(lost)
        findings.append(Finding(f"cursor_{state}", path, f"{path}: {what}", damage))
    return findings


class Cursor(NamedTuple):
    """A cursor as `aolog.cursors` lists it. lag: up to the log's end at the time of the call.

    address: of the next record to read. ordinal: records of the log before it; None if unknown.
    protects: whether retention keeps the records after it. pruned: unread records that retention
    removed nevertheless, as the gap that its reader will report; None if there are none.
    """

    name: str
    address: int
    ordinal: int | None
    lag: Lag
    protects: bool
    pruned: Gap | None = None


def cursors(path: str | os.PathLike[str], *, storage: Storage | None = None) -> list[Cursor]:
    """The log's cursors by name, with their lag. Raises NotALog, CursorCorrupt, StorageError."""
    storage = storage or Storage()
    where = checked_path(path)
    with Log(where, storage) as log:
        log.require_slabs()
    listed = []
    for name in cursor_names(where, storage):
        try:
            position = read_position(where, name, storage)
        except NoSuchCursor:  # deleted since the listing
            continue
        with Reader(where, storage=storage) as reader:
            try:
                view_of(reader).resume_at(position)
                lag, pruned = reader.lag(), reader.pruned()
            except (CursorForeign, CursorDiverged):
                lag, pruned = Lag(None, 0, None), None
        address, ordinal, protects = position.address, position.ordinal, position.protects
        listed.append(Cursor(name, address, ordinal, lag, protects, pruned))
    return listed
