"""A reader's cursor: whose position it is, where reading resumes, and how it is committed.

If the log is not the one that the cursor was committed with, resuming raises an error and does not guess.
"""

from __future__ import annotations

from contextlib import suppress
from itertools import chain
from typing import TYPE_CHECKING

from aolog.errors import AddressPruned, CursorDiverged, CursorForeign, PermissionDenied
from aolog.format.cursor_copy import CursorPosition
from aolog.log.cursor_file import read_positions
from aolog.log.manifest import sync_roots
from aolog.queuefka.identity import base_in, identity_of, may_be_of
from aolog.read import seek
from aolog.read.scan import Place

if TYPE_CHECKING:
    from collections.abc import Callable

    from aolog.log.cursor_file import CursorFile
    from aolog.log.directory import Log
    from aolog.record import Gap
    from aolog.storage.file import File
    from aolog.storage.storage import Storage


def identity(log: Log, address: int) -> tuple[bytes, int]:
    """(topic UUID, epoch) that a position at `address` is committed with: those of its slab."""
    if not log.has_headers:
        return identity_of(log.bases[0], log.slab(0).file), 0
    after = max(log.index_of(address), 0) + 1
    for i in chain(reversed(range(after)), range(after, len(log.bases))):  # headers may be lost
        header = log.slab(i).header
        if header is not None:
            return header.topic_uuid, header.epoch
    return bytes(16), 0


def resume(log: Log, position: CursorPosition) -> Place:
    """Where reading resumes: at the first record after the cursor. Raises CursorForeign,
    CursorDiverged."""
    check_course(log, position)
    try:
        return seek.back_to(log, position.position)
    except AddressPruned:  # the scan reports the gap and its count from there
        return Place(*position.position, position.address, None)


def check_course(log: Log, position: CursorPosition) -> None:
    """Raises CursorForeign, CursorDiverged if the log has another history below the position, and
    FileNotFoundError if a slab is pruned meanwhile."""
    if not log.has_headers:
        base = base_in(position.topic_uuid)
        i = log.index_of(base)
        is_there = i >= 0 and log.bases[i] == base  # otherwise pruned: nothing is left to compare
        if is_there and not may_be_of(position.topic_uuid, log.slab(i).file):
            what = "the first frame differs from the one that the cursor was committed with"
            raise _foreign(log, what)
        return
    uuid = None
    for i in reversed(range(len(log.bases))):
        header = log.slab(i).header
        if header is None:
            continue
        uuid = uuid or header.topic_uuid
        if header.epoch <= position.epoch:
            break
        if header.base < position.address:
            history = f"has another history from {header.base} on (epoch {header.epoch})"
            raise _diverged(log, position, f"{history}: it was copied or restored")
    if uuid is not None and uuid != position.topic_uuid:
        raise _foreign(log, "the cursor belongs to another log")


def check_end(log: Log, position: CursorPosition) -> None:
    """Checks a position that was stored outside the log, so that a restore of the log did not restore
    it. Raises CursorDiverged if the log ends before it and no power cut can be the reason: then new
    records would get addresses, or have got addresses, that the cursor has passed."""
    slab = log.slab(len(log.bases) - 1)
    header = slab.header
    if header is None:
        return
    end = seek.latest(log).address
    if position.epoch <= header.epoch:
        cut_off = slab.seal() is None and header.boot_id != log.storage.system.boot_id()
        if position.address <= end or cut_off:
            return
    what = f"ends at {end} (epoch {header.epoch}): it is a copy, or was restored from an older one"
    raise _diverged(log, position, what)


def lost_end(log: Log, cursor: CursorPosition) -> Gap | None:
    """What the log has lost at its end, as a cursor of it past that shows. Raises FileNotFoundError if a slab
    is pruned meanwhile."""
    last = log.slab(len(log.bases) - 1)
    if last.lacks_header:  # that is a gap up to the end of the file
        return None
    end = seek.latest(log).position
    return cursor.lost_end(end, last.header, log.storage.system.boot_id())


def positions_past(path: str, address: int, storage: Storage) -> list[CursorPosition]:
    """Those of a log's cursors that are past an address; none if cursors may not be read."""
    try:
        found = [position for _, position in read_positions(path, storage)]
    except PermissionDenied:  # slabs may be readable alone
        return []
    return [each for each in found if isinstance(each, CursorPosition) and each.address > address]


def furthest_past_end(log: Log, address: int) -> tuple[Gap, CursorPosition] | None:
    """As `lost_end`, with the cursor: of those past an address the one that goes furthest. None of them may be
    past the end if a writer and their readers go on."""
    past = positions_past(log.path, address, log.storage)
    if past:  # what they have passed is there now, or lost
        log.refresh(force=True)
    if not log.bases or log.has_pending:  # a pending slab may be published elsewhere
        return None
    lost = []
    for position in past:
        with suppress(CursorForeign, CursorDiverged):
            check_course(log, position)
            if (gap := lost_end(log, position)) is not None:
                lost.append((gap, position))
    return max(lost, key=lambda each: (each[0].end, each[0].records_lost or 0), default=None)


def _diverged(log: Log, at: CursorPosition, what: str) -> CursorDiverged:
    return CursorDiverged(
        f"the cursor is at {at.address} of epoch {at.epoch}, and the log {what}",
        hint="compare the two, then set the cursor with `aolog cursor set`",
        path=log.path,
    )


def _foreign(log: Log, what: str) -> CursorForeign:
    hint = "remove it with `aolog cursor delete`, or restore its log"
    return CursorForeign(what, hint=hint, path=log.path)


def prepared(log: Log, cursor: CursorFile, position: CursorPosition) -> Callable[[], None]:
    """Returns the call that makes the position durable in the cursor.

    The log is durable up to a position before the cursor is: a cursor is never past what survives.
    A disk may be slow, so a commit has two steps: this one looks at the log, in the thread that reads
    it; the call waits for the disk, in any thread. Make one call at a time, in order, before `close`. It raises
    LogClosed if the cursor is closed, CursorLocked if it is the cursor's first commit, and
    StorageError. `prepared` raises StorageError.
    """
    published = list(log.published.values())
    last = _last_slab(log, position.address)

    def commit() -> None:
        if published:  # by a job that may have been killed before its manifest was durable
            sync_roots(log.path, published, log.storage)
        if last is not None:
            with last:
                last.datasync()
        cursor.commit(position)

    return commit


def _last_slab(log: Log, address: int) -> File | None:
    """The log's last slab, if the position is in it: the others are sealed and durable. None if the
    writer does not sync. Without headers that is not recorded, and it counts as synced. A file of its own: the
    reader may close the slab before the commit."""
    i = log.index_of(address)
    if i < 0 or i + 1 < len(log.bases):
        return None
    try:
        header = log.slab(i).header
        return None if header is not None and not header.synced else log.open_file(log.bases[i])
    except FileNotFoundError:  # pruned since it was listed
        return None
