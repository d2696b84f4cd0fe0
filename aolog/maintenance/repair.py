"""A clean copy of a damaged log, at the same addresses, and a backup of a log beside its writer.
Reading a damaged log never needs it.

The copy has the log's records, gaps, cursors and manifest, and a list of the gaps (baseline.py), each
file with its original's owner, mode and times (copy.py says what each file holds). Nothing is ever
written into the log, and none of its locks is taken: readers and a writer may go on, and the copy then
holds what the log held when the repair began, or a little more. `aside/`, pending slabs and files that
are not part of a log are not copied.

The copy is built as INTO.unfinished, read back and compared with the log, made durable, and renamed to
INTO. So INTO is either absent or complete. A repair that fails removes INTO.unfinished. A repair that is
killed leaves it; the next repair to INTO then raises UsageError.

A backup is made in the same way. What differs: a sealed slab without damage gets a second name instead
of a copy if INTO is on the same file system; and the cursors are those from before the slabs were read,
so that none is after the backup's end. The bridge's notes on cursors are not part of a backup.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from aolog.errors import (
    HeaderLost,
    LockedError,
    StorageError,
    StorageFailed,
    StorageFull,
    UsageError,
)
from aolog.format.names import CURSOR_DIRECTORY, KNOWN_GAPS_NAME, MANIFEST_NAME
from aolog.format.slab import slab_name
from aolog.log.cursor_file import cursor_names, cursor_path, position_in
from aolog.log.directory import Log
from aolog.log.manifest import manifest_content
from aolog.maintenance.audit import audit
from aolog.maintenance.baseline import CAUSES, known_gaps_content, own_baseline
from aolog.maintenance.copy import copied_bytes, copy_cursors, copy_file, copy_slabs
from aolog.maintenance.verify import judge
from aolog.queuefka.format1 import without
from aolog.storage.directory import beside
from aolog.storage.storage import Storage, absolute, checked_path, parent_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from aolog.format.cursor_copy import CursorPosition
    from aolog.maintenance.audit import Audit, SlabAudit
    from aolog.maintenance.report import Report
    from aolog.record import Gap
    from aolog.storage.directory import Directory, Inside

_UNFINISHED_SUFFIX = ".unfinished"
_SPARE_BYTES = 1 << 20  # for directories, cursors, the manifest
_UUID_BYTES = 16


class Repaired(NamedTuple):
    """The result of `repair`. into: the copy's path. topic_uuid: the copy's, in hex; None in a log of queuefka.
    records: as a reader of the copy gets them. gaps: as `verify` reports them of the copy, also what a
    cursor past the end shows to be lost there. cursors: the copied ones. needed_bytes: free space that
    the copy needs. left: damage that the copy still has, besides gaps."""

    into: str
    dry_run: bool
    topic_uuid: str | None
    records: int
    gaps: list[Gap]
    cursors: list[str]
    needed_bytes: int
    left: list[str]


def repair(
    path: str | os.PathLike[str],
    into: str | os.PathLike[str],
    *,
    new_uuid: bool = False,
    dry_run: bool = False,
    progress: Callable[[int, int], None] | None = None,
    storage: Storage | None = None,
) -> Repaired:
    """Makes a clean copy of the log in a new directory `into`, durable on return. Never changes the log.

    Records have the same addresses, cursors the same positions, and a reader of the copy gets the same
    gaps. new_uuid: gives the copy an identity of its own, for a copy that is used beside the log; its
    cursors name the new UUID. dry_run: reads the log and writes nothing. progress: called with (bytes
    done, bytes in all).

    Raises UsageError if `into` exists, StorageFull with the bytes needed, HeaderLost if no slab has
    an intact header, LockedError, NotALog, NewerFormat, StorageError.
    """
    with Log(checked_path(path), storage or Storage()) as log:
        return _copied(log, checked_path(into), progress, new_uuid=new_uuid, dry_run=dry_run)


def backup(
    path: str | os.PathLike[str],
    into: str | os.PathLike[str],
    *,
    new_uuid: bool = False,
    progress: Callable[[int, int], None] | None = None,
    storage: Storage | None = None,
) -> Repaired:
    """Copies the log to a new directory `into`, durable on return; the writer and readers go on. It
    ends where the log ended when the backup began, or a little later.

    The backup is a log: read it where it is, or restore it by renaming or copying its directory. Links
    protect from deletion and pruning, not from the loss of the disk: for that, name a directory of
    another file system. new_uuid: makes a clone, another log that may be used beside the first one;
    nothing is linked then. progress: as for `repair`. Raises what `repair` raises.
    """
    with Log(checked_path(path), storage or Storage()) as log:
        return _copied(log, checked_path(into), progress, new_uuid=new_uuid, is_backup=True)


def _copied(
    log: Log,
    into: str,
    progress: Callable[[int, int], None] | None,
    *,
    new_uuid: bool,
    dry_run: bool = False,
    is_backup: bool = False,
) -> Repaired:
    storage = log.storage
    log.require_slabs()
    place = _free_place(into, log)
    # Before the slabs are listed: the copy has all slabs of each transaction in its manifest.
    manifest = manifest_content(log.path, storage)
    positions = _positions(log) if is_backup else None
    log.refresh(force=True)
    found = audit(log, progress=_half(progress, 0))
    old = _uuid(log, found)
    if old is None and new_uuid:
        raise UsageError(f"the log {without('UUID')}", hint="leave out --new-uuid")
    needed = copied_bytes(found) + _SPARE_BYTES
    if not is_backup:  # links take no space; how many slabs can be linked shows when it is done
        _require_room(needed, place, storage)
    uuid = storage.system.random_bytes(_UUID_BYTES) if new_uuid else None
    before = judge(log, found)
    after, cursors = before, cursor_names(log.path, storage)
    if not dry_run:
        after, cursors = _make(
            log, found, place, manifest, old=old, uuid=uuid, positions=positions,
            progress=_half(progress, 1),
        )  # fmt: skip  # passed on as they are
    elif progress is not None:
        progress(found.bytes, found.bytes)
    named = uuid or old
    return Repaired(
        into=place,
        dry_run=dry_run,
        topic_uuid=None if named is None else named.hex(),
        records=after.records,
        gaps=after.gaps,
        cursors=cursors,
        needed_bytes=needed,
        left=_left(before),
    )


def _free_place(into: str, log: Log) -> Inside:
    """The path of the copy. Raises UsageError if it exists or is inside the log."""
    while into.endswith(("/", "/.")):  # added by a shell's completion
        into = into.removesuffix(".").rstrip("/")
    if not into:
        raise UsageError("the copy has no name", hint="name a directory that does not exist")
    place = beside(into)
    real_path = log.storage.system.realpath
    above, inner = real_path(absolute(log.path)), real_path(absolute(into))
    if inner.startswith(f"{above}/"):
        raise UsageError(f"{into}: is inside the log", hint="name a directory beside the log")
    if log.storage.exists(place):
        raise UsageError(f"{into}: exists already", hint="name a directory that does not exist")
    return place


def _uuid(log: Log, found: Audit) -> bytes | None:
    """The log's UUID; None without headers. Raises HeaderLost if no slab has an intact header of its own."""
    if not log.has_headers:
        return None
    for slab in found.slabs:
        if slab.header is not None:
            return slab.header.topic_uuid
    for slab in found.slabs:
        if slab.true_base is not None:
            raise HeaderLost(
                f"it is the slab of base {slab.true_base} under another name, and no slab of the log has "
                "its own name and an intact header",
                hint=f"rename it to {slab_name(slab.true_base)}, then try again",
                path=slab.path,
            )
    raise HeaderLost(
        "no slab has an intact header: nothing in the log can be read",
        hint="print the remains of its frames with `aolog salvage`, then move the directory aside",
        path=log.path,
    )


def _positions(log: Log) -> dict[str, CursorPosition | None]:
    """The cursors with their positions; None for one without an intact copy."""
    found: dict[str, CursorPosition | None] = {}
    for name in cursor_names(log.path, log.storage):
        try:
            with log.storage.open_read(cursor_path(log.path, name)) as file:
                found[name] = position_in(file)
        except FileNotFoundError:  # deleted since the listing
            continue
    return found


def _require_room(needed: int, place: Inside, storage: Storage) -> None:
    parent = parent_of(absolute(place))
    while not storage.exists(parent):
        parent = parent_of(parent)
    storage.open_directory(parent).close()  # raises if a file is in the path
    free = storage.free_bytes(parent)
    if free < needed:
        raise StorageFull(
            f"the copy needs {needed} bytes, {free} are free",
            hint="free some space, or name another file system; nothing was changed",
            path=place,
            needed=needed,
            free=free,
        )


def _half(
    progress: Callable[[int, int], None] | None, half: int
) -> Callable[[int, int], None] | None:
    """Progress of one half of the work: the log is read first, then the copy."""
    if progress is None:
        return None
    return lambda done, total: progress((done + half * total) // 2, total)


def _left(before: Report) -> list[str]:
    """Damage that the copy has too, besides gaps and their causes: mostly of cursors."""
    mended = CAUSES | {"header_copy", "seal_header", "cursor_copy"}
    return [found.message for found in before.findings if found.damage and found.code not in mended]


# --- making the copy ------------------------------------------------------------------------


def _make(
    log: Log,
    found: Audit,
    place: Inside,
    manifest: bytes | None,
    *,
    old: bytes | None,
    uuid: bytes | None,
    positions: dict[str, CursorPosition | None] | None,
    progress: Callable[[int, int], None] | None,
) -> tuple[Report, list[str]]:
    """Makes the copy; returns the report on it and the names of its cursors."""
    storage, unfinished = log.storage, place + _UNFINISHED_SUFFIX
    storage.make_directory(parent_of(absolute(place)))
    storage.make_directory(unfinished)
    with storage.open_directory(unfinished) as directory:
        _require_alone(directory, storage)
        try:
            uuids = {"old_uuid": old, "new_uuid": uuid}
            first = copy_slabs(log, found.slabs, directory, **uuids, links=positions is not None)
            if manifest is not None:
                with storage.open_read(log.directory / MANIFEST_NAME) as original:
                    copy_file(original, directory / MANIFEST_NAME, storage, [manifest])
            cursors = copy_cursors(log, directory, first_base=first, **uuids, positions=positions)
            with Log(unfinished, storage) as copy:
                if not copy.bases:
                    raise StorageFailed(
                        "all slabs were pruned while they were copied",
                        hint="run the repair again",
                        path=log.path,
                    )
                made = audit(copy, progress=progress)
                _require_alike(log.path, found, made)
                after = judge(copy, made)
                known = _known(log, after, is_backup=positions is not None)
            if known is not None:
                with storage.open_read(directory / slab_name(first)) as slab:  # for owner and mode
                    copy_file(slab, directory / KNOWN_GAPS_NAME, storage, [known])
            directory.adopt(log.directory)
            directory.sync()
            if storage.exists(place):
                raise UsageError(
                    f"{place}: exists already", hint="another process created it meanwhile"
                )
            storage.rename(unfinished, place)
        except BaseException:
            _remove(unfinished, storage)
            raise
    storage.sync_directory(parent_of(absolute(place)))
    return after, cursors


def _require_alone(directory: Directory, storage: Storage) -> None:
    """Locks the directory until it is closed. Raises LockedError, UsageError."""
    if not directory.try_lock():
        raise LockedError(
            "another repair is writing this copy",
            hint="wait until it is complete, or name another directory",
            path=directory.path,
        )
    if storage.list_names(directory):
        raise UsageError(
            f"{directory.path}: left by a repair that was killed",
            hint="remove it, then run the repair again",
        )


def _require_alike(path: str, before: Audit, after: Audit) -> None:
    """Raises StorageFailed if the copy differs from the log. Slabs that were pruned meanwhile may be
    absent; the last slab may have more records."""
    first = after.slabs[0].base
    slabs = [slab for slab in before.slabs if slab.base >= first]
    same = (
        [_summary(slab) for slab in slabs[:-1]] == [_summary(slab) for slab in after.slabs[:-1]]
        and slabs[-1].base == after.slabs[-1].base
        and slabs[-1].records <= after.slabs[-1].records
        and _gaps_from(before, first) == _gaps_from(after, first)
    )
    if not same:
        raise StorageFailed(
            "the copy differs from the log",
            hint="check the device and try again; the log was not changed",
            path=path,
        )


def _known(log: Log, after: Report, *, is_backup: bool) -> bytes | None:
    """The content of the copy's known-gaps.json; None if nothing is known. A backup accepts no gap that
    the log itself does not."""
    gaps = after.gaps
    causes = [found for found in after.findings if found.code in CAUSES]
    if is_backup:
        own = own_baseline(log)
        gaps = [gap for gap in gaps if own.covers(gap)]
        causes = [found for found in causes if own.explains(found)]
    return known_gaps_content(gaps, causes) if gaps or causes else None


def _summary(slab: SlabAudit) -> tuple[int, ...]:
    """Equal for equal intact frames: a frame's header has the hash of its body."""
    return slab.base, slab.records, slab.frames, slab.headers_hash


def _gaps_from(found: Audit, first: int) -> list[Gap]:
    return [gap for gap in found.gaps if gap.begin >= first]


def _remove(unfinished: Inside, storage: Storage) -> None:
    """Removes an incomplete copy, which would keep the space of a full disk."""
    if not storage.exists(unfinished):  # renamed: the copy is complete
        return
    with suppress(StorageError):
        for directory in (unfinished / CURSOR_DIRECTORY, unfinished):
            for name in storage.list_names(directory) if storage.exists(directory) else ():
                storage.unlink(directory / name)
            storage.remove_directory(directory)
