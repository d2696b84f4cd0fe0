"""Looking a log over: every frame checked, every gap named, and the health of all else that is
in the directory: headers, seals, indexes, cursors, what was left over. Reads only.

One pass reads and hashes each byte once (audit.py); this module judges what was found. Three
kinds of findings are told apart: what lost records (gaps), damage that cost none because
another copy or the frames themselves say the same, and what is no damage but worth knowing.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from aolog.errors import AologError, CursorDiverged, CursorForeign, NoSuchCursor, counted
from aolog.format.slab import HEADER_COPIES, NO_PREDECESSOR, SlabHeader
from aolog.log.cursor_file import Cursor, cursor_names, read_copies, read_position
from aolog.log.directory import Log, list_slabs
from aolog.log.names import (
    ASIDE_DIRECTORY,
    CURSOR_DIRECTORY,
    MANIFEST_NAME,
    NOTES_SUFFIX,
    PENDING_SUFFIX,
    RETENTION_LOCK,
    cursor_path,
    slab_base,
)
from aolog.maintenance.audit import audit
from aolog.read import seek
from aolog.read.cursor import check_course
from aolog.read.reader import resume_at
from aolog.record import Gap, Lag
from aolog.storage.directory import Inside
from aolog.storage.storage import Storage

if TYPE_CHECKING:
    from collections.abc import Callable

    from aolog.log.cursor_file import Position
    from aolog.maintenance.audit import Audit, SlabAudit

__all__ = [
    "GAP_CAUSES",
    "CursorHealth",
    "Finding",
    "Leftover",
    "Report",
    "SlabHealth",
    "cursors",
    "verify",
]

SealState: TypeAlias = Literal["intact", "differs", "damaged", "none"]
_LEFT = {
    "temporary": "a temporary file",
    "pending": "a slab that no job has published",
    "notes": "the bridge's notes on a cursor that is not there",
    "unreadable": "cannot be looked into",
}
# Findings that say why a gap is there.
GAP_CAUSES = {"header_lost", "renamed", "foreign_slab"}
_NAMES = {RETENTION_LOCK, MANIFEST_NAME, "lost+found"}  # beside slabs and directories


class Finding(NamedTuple):
    """Something that is not as it should be, or worth knowing. damage: False where nothing is
    damaged. code: stable, for programs."""

    code: str
    path: str
    message: str
    damage: bool


class SlabHealth(NamedTuple):
    """A slab. records, frames: intact ones. copies: of the header, as in the file; in_seal: the
    third one; None in format 1, or without a seal. seal: "differs" if it is intact and says
    something else than the frames; "none" where the slab was never sealed."""

    base: int
    path: str
    format: int
    bytes: int
    records: int
    frames: int
    copies: tuple[bool, ...]
    in_seal: bool | None
    seal: SealState


class CursorHealth(NamedTuple):
    """A cursor. state: "ok", "ahead" of the log's end, "pruned", "corrupt" (both copies),
    "diverged" or "foreign". copies: which of those that were written are intact."""

    name: str
    state: str
    address: int | None
    copies: tuple[bool, ...]


class Leftover(NamedTuple):
    """A file that is no part of the log. kind: "temporary", "pending", "notes" (of the bridge, on a
    cursor that is not there), "aside", "unreadable" (a directory in aside/) or "unknown"."""

    kind: str
    path: str
    bytes: int


class Report(NamedTuple):
    """What `verify` found. ok: no gap and nothing damaged. bytes: of slab files. end: address
    behind the last intact frame. durable: address up to which a mark or a seal says that
    everything was synced; more may be. tail_bytes: behind `end`, not blank: an append that is going
    on, or a torn end that the next writer sets aside. problems: damage that costs no record, or
    (GAP_CAUSES) why records are lost.
    notes: what is no damage. findings: both, with codes."""

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
    notes: list[str] = []  # noqa: RUF012 -- a default that nobody changes
    findings: list[Finding] = []  # noqa: RUF012 -- the same
    health: list[SlabHealth] = []  # noqa: RUF012 -- the same
    cursors: list[CursorHealth] = []  # noqa: RUF012 -- the same
    leftovers: list[Leftover] = []  # noqa: RUF012 -- the same


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
        return judge(log, audit(log, progress=progress, resync=resync))
    finally:
        log.close()


def judge(log: Log, found: Audit) -> Report:
    """The report on what an audit found, and on what stands beside the slabs."""
    findings: list[Finding] = []
    health = []
    any_header = any(slab.header is not None for slab in found.slabs)
    for i, slab in enumerate(found.slabs):
        successor = found.slabs[i + 1].header if i + 1 < len(found.slabs) else None
        seal = seal_state(slab, successor)
        findings += _of_slab(slab, seal, any_header=any_header)
        copies = tuple(copy == slab.header and copy is not None for copy in slab.copies)
        in_seal = None if slab.seal_header is None else slab.seal_header == slab.header
        health.append(
            SlabHealth(
                slab.base,
                slab.path,
                slab.format,
                slab.size,
                slab.records,
                slab.frames,
                copies,
                in_seal,
                seal,
            )
        )
    standing = [_cursor(log, found, name) for name in cursor_names(log.path, log.storage)]
    for cursor in standing:
        findings += _of_cursor(log.path, cursor)
    leftovers = find_leftovers(log.path, log.storage)
    for left in leftovers:
        if left.kind != "aside":
            said = _LEFT.get(left.kind, "no file of a log's")
            findings.append(Finding(f"{left.kind}_file", left.path, f"{left.path}: {said}", False))
    if found.tail_bytes:
        message = (
            f"{counted(found.tail_bytes, 'byte')} behind the end: an append that is going on, or a torn end "
            "that the next writer sets aside"
        )
        findings.append(Finding("tail", found.slabs[-1].path, message, False))
    problems = [finding.message for finding in findings if finding.damage]
    durable = found.slabs[0].base if found.slabs else 0
    for slab in found.slabs:
        if slab.runs and slab.format == 2:
            durable = max(durable, slab.base + slab.durable)
    return Report(
        ok=not found.gaps and not problems,
        records=found.records,
        frames=found.frames,
        slabs=len(found.slabs),
        bytes=found.bytes,
        gaps=found.gaps,
        end=found.end,
        durable=min(durable, found.end) if found.end else durable,
        tail_bytes=found.tail_bytes,
        problems=problems,
        notes=[finding.message for finding in findings if not finding.damage],
        findings=findings,
        health=health,
        cursors=standing,
        leftovers=leftovers,
    )


# --- slabs ----------------------------------------------------------------------------------


def seal_state(slab: SlabAudit, successor: SlabHeader | None) -> SealState:
    """Whether the slab has a seal, or had one: a trailer says so, or a successor of the same
    epoch, before which a slab is always sealed."""
    if slab.differences or (slab.seal_at is not None and slab.ordinals_skip):
        return "differs"
    if slab.seal_at is not None:
        return "intact"
    if slab.header is None:
        return "none"
    if slab.trailer is not None:
        return "damaged"
    followed = successor is not None and (successor.predecessor_base, successor.epoch) == (
        slab.base,
        slab.header.epoch,
    )
    return "damaged" if followed else "none"


def _of_slab(slab: SlabAudit, seal: SealState, *, any_header: bool) -> list[Finding]:
    """Damage of a slab that costs no record, or that causes a reported gap. any_header: whether any
    slab of the log has a header; repair empties no slab of a log without one."""
    if slab.format == 1:
        return []
    found = []

    def tell(code: str, what: str, *, damage: bool = True) -> None:
        found.append(Finding(code, slab.path, f"{slab.path}: {what}", damage))

    whose = [c for c in slab.copies if isinstance(c, SlabHeader) and c.base != slab.base]
    if slab.foreign is not None:
        tell("foreign_slab", f"is of another log, {slab.foreign.hex()}; nothing in it is read")
    elif slab.header is None and whose:
        tell("renamed", f"is the slab of base {whose[0].base} under another name")
    elif slab.is_emptied and any_header:
        tell("emptied", "holds nothing; a gap tells what was lost", damage=False)
    elif slab.header is None:
        tell("header_lost", "no copy of the header is intact: nothing in it can be read")
    else:
        bad = [at for at, c in zip(HEADER_COPIES, slab.copies, strict=True) if c != slab.header]
        if bad:
            which = " and ".join(f"at {at}" for at in bad)
            left = "the seal's" if len(bad) == len(HEADER_COPIES) else "the other"
            tell("header_copy", f"header copy {which} is damaged; {left} is intact")
        if slab.seal_header is not None and slab.seal_header != slab.header:
            tell("seal_header", "the seal's copy of the header is another")
        if slab.ordinals_skip:
            tell("ordinals", "frames do not count their records one after another")
    if seal == "damaged":
        tell("seal", "the seal is damaged; its index is rebuilt when it is needed")
    elif seal == "differs":
        what = "; ".join(slab.differences) or "it was made of frames that do not count rightly"
        tell("seal_differs", f"the seal is intact, but {what}")
    return found


# --- cursors --------------------------------------------------------------------------------


def _cursor(log: Log, found: Audit, name: str) -> CursorHealth:
    try:
        copies = read_copies(log.path, name, log.storage)
    except FileNotFoundError:  # deleted since the listing
        return CursorHealth(name, "ok", None, ())
    intact = tuple(copy is not None for copy in copies)
    known = [copy for copy in copies if copy is not None]
    if not known:
        return CursorHealth(name, "corrupt", None, intact)
    position = max(known)[1]
    return CursorHealth(name, _state(log, found, position), position.address, intact)


def _state(log: Log, found: Audit, position: Position) -> str:
    """As a reader would find it."""
    try:
        log.listed(lambda: check_course(log, position))
    except CursorForeign:
        return "foreign"
    except CursorDiverged:
        return "diverged"
    if position.address > found.end and position.address > _end_now(log):
        return "ahead"
    first_header = found.slabs[0].header if found.slabs else None
    begins = first_header is not None and first_header.predecessor_base == NO_PREDECESSOR
    if found.slabs and position.address < found.slabs[0].base and not begins:
        return "pruned"
    return "ok"


def _end_now(log: Log) -> int:
    """Beside a writer more is there than was audited, and cursors may have passed it."""
    log.refresh()
    return log.listed(lambda: seek.latest(log)).address


_CURSOR_STATES = {
    "corrupt": (True, "both copies are damaged: it cannot be resumed"),
    "foreign": (True, "belongs to another log: it cannot be resumed"),
    "diverged": (True, "the log took another course below it: it cannot be resumed"),
    "ahead": (False, "stands behind the log's end; the next writer begins above it"),
    "pruned": (False, "stands before the first slab: its reader is told what it lost"),
}


def _of_cursor(log_path: str, cursor: CursorHealth) -> list[Finding]:
    path = cursor_path(log_path, cursor.name)
    found = []
    if cursor.state != "corrupt" and False in cursor.copies:
        which = cursor.copies.index(False) * (HEADER_COPIES[1] - HEADER_COPIES[0])
        what = f"{path}: copy at {which} is damaged; the other is intact"
        found.append(Finding("cursor_copy", path, what, True))
    if cursor.state in _CURSOR_STATES:
        damage, what = _CURSOR_STATES[cursor.state]
        found.append(Finding(f"cursor_{cursor.state}", path, f"{path}: {what}", damage))
    return found


# --- what else is there ---------------------------------------------------------------------


def find_leftovers(path: str, storage: Storage) -> list[Leftover]:
    """Files in a log's directory that are no part of it, and what recovery and repair kept."""
    found = []

    def tell(kind: str, where: Inside) -> None:
        entry = storage.entry(where)
        if entry is not None:
            found.append(Leftover(kind, where, entry.size))

    published = list_slabs(path, storage).published.values()
    for name in sorted(storage.list_names(path)):
        where = Inside(path, name)
        if name.endswith(".tmp"):
            tell("temporary", where)
        elif name.endswith(PENDING_SUFFIX) and name not in published:
            tell("pending", where)
        elif name == CURSOR_DIRECTORY:
            cursors = cursor_names(path, storage)
            known = {f"{cursor}{end}" for cursor in cursors for end in (".cursor", NOTES_SUFFIX)}
            for inner in sorted(set(storage.list_names(where)) - known):
                kind = "notes" if inner.endswith(NOTES_SUFFIX) else "unknown"
                tell("temporary" if inner.endswith(".tmp") else kind, where / inner)
        elif name == ASIDE_DIRECTORY and _is_directory(where, storage):
            for kind, below in _files_below(where, storage):
                tell(kind, below)
        elif slab_base(name) is None and name not in {*published, *_NAMES}:
            tell("unknown", where)
    return found


def _is_directory(path: Inside, storage: Storage) -> bool:
    """Or a link in the place of one, which cannot be read."""
    entry = storage.entry(path)
    return entry is not None and entry.kind in {"directory", "link"}


def _files_below(path: Inside, storage: Storage) -> list[tuple[str, Inside]]:
    """All files of a directory and of those in it, each with its kind: "aside", and "unreadable" of
    a directory of which nobody says what is in it."""
    try:
        names = sorted(storage.list_names(path))
    except AologError:
        return [("unreadable", path)]
    found = []
    for name in names:
        where = path / name
        entry = storage.entry(where)
        inside = entry is not None and entry.kind == "directory"
        found += _files_below(where, storage) if inside else [("aside", where)]
    return found


def cursors(path: str | os.PathLike[str], *, storage: Storage | None = None) -> list[Cursor]:
    """The log's cursors by name, with their lag. Raises NotALog, CursorCorrupt."""
    from aolog.read.reader import Reader

    storage = storage or Storage()
    where = os.fspath(path)
    log = Log(where, storage)
    try:
        log.require_slabs()
    finally:
        log.close()
    listed = []
    for name in cursor_names(where, storage):
        try:
            position = read_position(where, name, storage)
        except NoSuchCursor:  # deleted since the listing
            continue
        with Reader(where, storage=storage) as reader:
            try:
                resume_at(reader, position)
                lag, pruned = reader.lag(), reader.pruned()
            except (CursorForeign, CursorDiverged):
                lag, pruned = Lag(None, 0, None), None
        address, ordinal, protects = position.address, position.ordinal, position.protects
        listed.append(Cursor(name, address, ordinal, lag, protects, pruned))
    return listed
