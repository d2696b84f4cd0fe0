"""Opening a log for append: inspect the last slab, decide what to do, and do it.

`_inspect` reads, recovery_cases.py decides, cut_tail.py changes. A process may be killed in each step;
the next opening repeats it with the same outcome. The next slab is created by the caller (next_slab.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from aolog.errors import AologError, HeaderLost, NotALog, TopicMismatch, UsageError, counted, warn
from aolog.format.frame import padding
from aolog.format.names import CURSOR_DIRECTORY, NOT_FOREIGN
from aolog.format.slab import SlabHeader, slab_name
from aolog.log.cursor_file import read_positions
from aolog.log.identity import cursor_uuids
from aolog.log.log_format import LogFormat
from aolog.log.manifest import sync_roots
from aolog.queuefka.recovery import is_unfinished
from aolog.record import Position
from aolog.write.cut_tail import cut_tail
from aolog.write.next_slab import REACH_SPARE
from aolog.write.recovery_cases import FOUND, Case, LastSlab, decide

if TYPE_CHECKING:
    from aolog.format.cursor_copy import CursorPosition
    from aolog.log.directory import Log
    from aolog.log.slab_file import Slab

_STEP_BYTES = 1 << 20  # read at once, when the end of a tail is searched backwards
_Known = tuple["SlabHeader", int, int]  # a slab's header, records and their greatest timestamp

# How far a new epoch may begin above what is known: two copies of one log meet only where their
# appends together come near this, and 2^63 has room for half a million such openings.
_JUMP_MAX = 1 << 44


class Opening(NamedTuple):
    """How a log was found and what was done: `Writer.opening`."""

    case: str  # the row of recovery's table
    epoch: int  # in which the writer appends; 0 without headers
    next_base: int  # address at which its first slab begins
    cut_bytes: int = 0  # of the torn tail
    aside_path: str | None = None  # of their copy


def roll_forward(log: Log) -> None:
    """Renames published slabs from their pending names; durable on return. The caller holds the
    writer's lock. Idempotent; the process may be killed at any point. The manifest lists them until
    the next publication. Raises StorageError."""
    storage = log.storage
    # First, so that a power cut cannot undo the publication in the other logs.
    sync_roots(log.path, log.published.values(), storage)
    for base, name in sorted(log.published.items()):
        storage.rename(log.directory / name, log.directory / slab_name(base))
    storage.sync_directory(log.directory)
    log.refresh(force=True)


def _cursor_positions(log: Log) -> list[CursorPosition]:
    """The positions of the cursors. A damaged cursor is skipped: its position is unknown."""
    found = []
    for name, position in read_positions(log.path, log.storage):
        if isinstance(position, AologError):
            warn("cursor %s is skipped: %s", name, position)
        else:
            found.append(position)
    return found


def _inspect(log: Log) -> tuple[LastSlab | None, int, _Known | None]:
    """Three things: the last slab; the offset after its last byte that is not zero, at least the end of its
    frames; its header, records and greatest timestamp. None: there is no slab, or no header. Syncs the slab
    first, so that power loss cannot remove bytes on which the decision rests."""
    if not log.bases:
        return None, 0, None
    slab = log.slab(len(log.bases) - 1)
    slab.file.datasync()
    stat = slab.file.stat()
    header = slab.header
    end, records, greatest_us = slab.end()
    if not slab.has_headers:
        unfinished = end < stat.size and is_unfinished(slab.file, end, stat.size)
        last = LastSlab(slab.base, stat.size, end, reach=0, queuefka=True, unfinished=unfinished)
        return last, stat.size, None
    tail_end = end if header is None else _tail_end(slab, end, stat.size)
    same_boot = header is not None and header.boot_id == log.storage.system.boot_id()
    if same_boot and (marked := max(slab.marked(), slab.data_begin)) < end:
        _write_again(log, slab, marked, end)
    last = LastSlab(
        base=slab.base,
        size=stat.size,
        end_of_frames=end,
        reach=header.reach if header else REACH_SPARE * 2,
        has_header=header is not None,
        foreign=slab.foreign is not None,
        has_predecessor=len(log.bases) > 1,
        sealed=slab.is_sealed,
        blank=tail_end == end,
        # Earlier releases wrote the inode alone.
        same_file=header is not None and header.inode in {slab.file.identity(), stat.inode},
        same_boot=same_boot,
    )
    return last, tail_end, None if header is None else (header, records, greatest_us)


def _write_again(log: Log, slab: Slab, begin: int, end: int) -> None:
    """Writes the same bytes at the same place; they are durable on return. After a failed sync of
    another process, the system may consider pages clean that are not on the device, and no later
    sync writes them. Everything before the last mark is durable and is not written again.

    Rebello et al., Can Applications Recover from fsync Failures?, USENIX ATC 2020.
    """
    with log.storage.open_write(log.slab_path(slab.base)) as file:
        for at, piece in slab.file.pieces(begin, end):
            file.pwrite_all([piece], at)
        file.datasync()


def _tail_end(slab: Slab, begin: int, end: int) -> int:
    """After the last byte in [begin, end) that is not zero; `begin` if all are zero."""
    for at in reversed(range(begin, end, _STEP_BYTES)):  # backwards
        piece = slab.file.pread(min(_STEP_BYTES, end - at), at).rstrip(b"\0")
        if piece:
            return at + len(piece)
    return begin


def refuse_foreign(log: Log, *, has_headers: bool) -> None:
    """Raises NotALog if the directory has other files and no slab, UsageError if the log has the other
    format. If nothing shows the log's format, it is the writer's."""
    if not log.bases:
        foreign = [
            name for name in log.others if not name.startswith(".") and name not in NOT_FOREIGN
        ]
        if foreign:
            raise NotALog(
                f"holds other files ({foreign[0]!r}) and no slab",
                hint="name an empty directory, or one that does not exist",
                path=log.path,
            )
    elif not has_headers and log.known_format.shown is None:
        log.known_format = LogFormat(
            None, guess=False
        )  # a power cut may destroy the first bytes of its first slab
    elif log.has_headers is not has_headers:
        number, its = (2, "aolog") if log.has_headers else (1, "queuefka")
        raise UsageError(
            f"{log.path}: the log is of format {number}", hint=f'open it with format="{its}"'
        )


def open_for_append(
    log: Log, *, has_headers: bool = True, topic: str | None = None
) -> tuple[Opening, SlabHeader, int | None]:
    """Recovers the log. The caller holds the writer's lock.

    The second value is what the next slab's header says of the slabs before it (next_slab.py). The
    third value is the offset at which the last slab is continued, otherwise None. Raises,
    before it changes anything: what `refuse_foreign` raises, HeaderLost if the log's identity is lost,
    IdentityUnclear if its slabs and cursors contradict each other, and TopicMismatch.
    """
    refuse_foreign(log, has_headers=has_headers)
    if log.bases and log.has_headers:
        log.identity.decide(to_write=True)
    last, tail_end, found = _inspect(log)
    random_bytes = log.storage.system.random_bytes
    cursors = _cursor_positions(log)
    decision = decide(
        last,
        cursors=[cursor.address for cursor in cursors],
        jump=lambda: int.from_bytes(random_bytes(8), "little") % _JUMP_MAX // 8 * 8,
    )
    if last is None:
        _refuse_cursors(log)
        fresh = _first_header(random_bytes(16), 0, epoch=1, topic=topic)
        return Opening(decision.case.value, 1, 0), fresh, None
    if decision.case is Case.ONLY_LOST:
        raise HeaderLost(
            "the only slab has no intact header of its own name",
            hint="`aolog verify` says why: rename a slab that has another's name; otherwise move the "
            "directory aside and begin a new log. Nothing was changed",
            path=log.slab_path(last.base),
        )
    end = last.end_of_frames
    if last.queuefka:
        aside, cut = cut_tail(log, decision, last, tail_end)
        offset = None
        if decision.next_base is None:
            offset = last.size if decision.cut_at is None else decision.cut_at
        next_base = last.base if offset is not None else decision.next_base or 0
        opening = Opening(decision.case.value, 0, next_base, cut, aside)
        return _report(log, opening), _first_header(bytes(16), next_base, epoch=0), offset
    assert decision.next_base is not None
    known, records, greatest_us = found or _last_known(log, foreign=last.foreign)
    if topic is not None and topic != known.topic:
        raise TopicMismatch(
            f"the log's topic is {known.topic!r}, not {topic!r}"
            if known.topic is not None
            else f"the log was created without a topic, and cannot get {topic!r} now",
            hint="leave it out, name it to the bridge, or give records topics of their own",
            path=log.path,
        )
    aside, cut = cut_tail(log, decision, last, tail_end)
    epoch = known.epoch + decision.new_epoch
    next_base = decision.next_base
    if not last.sealed:  # bytes after a seal were never records
        next_base = max(next_base, last.base + end + cut + padding(end + cut))
    following = known._replace(
        base=next_base,
        base_ordinal=known.base_ordinal + records,
        epoch=epoch,
        predecessor_base=last.base,
        predecessor_end=last.base + end,
        predecessor_cut=0 if last.sealed else cut,
        greatest_before_us=max(known.greatest_before_us, greatest_us),
        ordinal_unsure=known.ordinal_unsure or not last.has_header,
    )
    lost_text = None
    if last.has_header:
        following, lost_text = _with_loss(log, following, known, cursors)
    opening = Opening(decision.case.value, epoch, next_base, cut, aside)
    return _report(log, opening, lost_text), following, None


def _with_loss(
    log: Log, following: SlabHeader, known: SlabHeader, cursors: list[CursorPosition]
) -> tuple[SlabHeader, str | None]:
    """The header with what the log has lost at its end, if a cursor shows that: readers find a gap up to
    there; and the loss in words. known: the last slab's header. A cursor of another log or another history
    shows nothing."""
    mine = [c for c in cursors if c.topic_uuid == known.topic_uuid and c.epoch >= known.epoch]
    # Of cursors at one address one that knows its ordinal.
    furthest = max(mine, key=lambda cursor: (cursor.address, cursor.ordinal or 0), default=None)
    end, cut = following.predecessor_end, following.predecessor_cut
    found_end = Position(end, following.base_ordinal)
    lost = furthest and furthest.lost_end(found_end, known, log.storage.system.boot_id())
    if furthest is None or lost is None:
        return following, None
    with_loss = following._replace(
        base_ordinal=following.base_ordinal + (lost.records_lost or 0),
        predecessor_end=lost.end,
        predecessor_cut=max(0, end + cut - lost.end),
        ordinal_unsure=following.ordinal_unsure or lost.records_lost is None,
    )
    return with_loss, furthest.lost_end_text(lost)


def _first_header(uuid: bytes, base: int, epoch: int, topic: str | None = None) -> SlabHeader:
    return SlabHeader(
        topic_uuid=uuid, base=base, base_ordinal=0, salt=0, epoch=epoch, created_us=0, topic=topic
    )


def _last_known(log: Log, *, foreign: bool) -> _Known:
    """What is known of the last slab with a header; the log's last slab has none. foreign: whether that
    slab is another log's. Raises HeaderLost if no slab has a header."""
    for i in reversed(range(len(log.bases) - 1)):
        slab = log.slab(i)
        if slab.header is not None:
            _, records, greatest_us = slab.end()
            return slab.header, records, greatest_us
    reason = "no slab's header is intact"
    hint = "move the directory aside and begin a new log; nothing was changed"
    if foreign:
        reason = "the last slab is of another log, and of another format"
        hint = "move the slab elsewhere; nothing was changed"
    raise HeaderLost(reason, hint=hint, path=log.path)


def _refuse_cursors(log: Log) -> None:
    """Raises HeaderLost if there are cursors and no slab: the cursors belong to another log than the
    one that would begin here."""
    name = next((name for name, _ in cursor_uuids(log.path, log.storage)), None)
    if name is not None:
        raise HeaderLost(
            f"all slabs are gone, and cursor {name!r} belongs to the log that they formed",
            hint=f"bring the slabs back, or remove {CURSOR_DIRECTORY}/ to begin a new log",
            path=log.path,
        )


def _report(log: Log, opening: Opening, lost_text: str | None = None) -> Opening:
    """lost_text: what the log has lost at its end, which its last writer may have closed."""
    for base in log.identity.foreign_bases:
        warn("%s: is of another log; readers report a gap in its place", log.slab_path(base))
    if opening.case not in {Case.SEALED.value, Case.QUEUEFKA.value}:
        if opening.cut_bytes:
            cut = f"{counted(opening.cut_bytes, 'byte')} {'was' if opening.cut_bytes == 1 else 'were'}"
            cut += f" cut, kept in {opening.aside_path}"
        else:
            cut = "nothing was cut"
        warn(
            "%s: %s: addresses go on at %d%s; %s [%s]",
            log.path,
            lost_text or FOUND[Case(opening.case)],
            opening.next_base,
            f", in epoch {opening.epoch}" if opening.epoch else "",
            cut,
            opening.case,
        )
    return opening
