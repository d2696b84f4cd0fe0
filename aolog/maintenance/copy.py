"""A new log from what is intact in another, and a map from the old addresses to the new ones.

Frames go to it as they are, compressed or not, each as large as it was; the new log has its own
UUID, so cursors and the bridge's stamps of the old one do not apply to it. The map says where
each record went, and where each cursor would stand.

The map is lines of JSON, in order of the old addresses:

    {"aolog_map": 1, "from": PATH, "to": PATH}
    {"old": [begin, end], "new": [begin, end]}          the record at begin + i went to begin + i
    {"old": [begin, end], "gap": REASON, "records_lost": N or null}
    {"cursor": NAME, "old": ADDRESS, "new": ADDRESS}    of the first record that it has not passed
    {"records": N, "xxh3": HEX}                         the last: of all bytes before this line

The new log is built as INTO.unfinished and renamed when it is complete, verified and durable,
after its map. A copy that cannot be completed is removed; one that was killed is begun again.
INTO.unfinished.lock is locked from before anything is made until all has its name: it is never
renamed, as the rest is, and the copy's directory is locked by its writer. It is empty; one that
somebody who was killed left is in nobody's way.
"""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import xxhash

from aolog.errors import (
    AologError,
    LockedError,
    StorageError,
    StorageFailed,
    StorageFull,
    UsageError,
)
from aolog.format.compression import compression_of
from aolog.format.frame import CODEC_SHIFT
from aolog.format.slab import DATA_BEGIN, slab_base
from aolog.maintenance.audit import audit, least_of
from aolog.read import seek
from aolog.read.batch import RecordFrame
from aolog.read.scan import Scan
from aolog.storage.files import absolute, parent_of
from aolog.storage.inside import beside
from aolog.write.validate import RECORD_BYTES_MAX

if TYPE_CHECKING:
    from collections.abc import Callable

    from aolog.format.columns import Columns
    from aolog.format.frame import Frame
    from aolog.log.directory import Log, Slab
    from aolog.maintenance.audit import Audit
    from aolog.maintenance.repair import Repaired
    from aolog.record import Gap
    from aolog.storage.files import File, Inside, Storage
    from aolog.write.writer import Writer

__all__ = ["MAP_SUFFIX", "SALVAGE_SUFFIX", "copy_fresh"]

MAP_SUFFIX = ".map.jsonl"
SALVAGE_SUFFIX = ".salvage.jsonl"
_UNFINISHED_SUFFIX = ".unfinished"
_LOCK_SUFFIX = ".unfinished.lock"
_SEAL_BYTES = 16 << 10  # with its index; larger ones are of the old log's slabs, and counted there


class _Map:
    """Lines as they come, written to a file in pieces; runs of records become one line."""

    _PIECE_BYTES = 1 << 20

    def __init__(self, path: Inside, storage: Storage) -> None:
        """Begun anew: the lines of a copy that was killed are gone."""
        self._file = storage.create(path)
        self._at = 0
        self._pieces: list[bytes] = []
        self._size = 0
        self._hash = xxhash.xxh3_64()
        self._run: list[int] | None = None  # old begin, old end, new begin
        self.records = 0

    def line(self, value: object) -> None:
        """A line of its own."""
        self.end_run()
        self._write(json.dumps(value).encode() + b"\n")

    def records_went(self, old: int, new: int, count: int) -> None:
        """So many records went from here to there."""
        self.records += count
        run = self._run
        if run is not None and run[1] == old and run[2] + run[1] - run[0] == new:
            run[1] += count
            return
        self.end_run()
        self._run = [old, old + count, new]

    def end_run(self) -> None:
        """What comes next is no continuation."""
        if self._run is not None:
            begin, end, new = self._run
            self._run = None
            line = {"old": [begin, end], "new": [new, new + end - begin]}
            self._write(json.dumps(line).encode() + b"\n")

    def _write(self, data: bytes) -> None:
        self._hash.update(data)
        self._pieces.append(data)
        self._size += len(data)
        if self._size >= self._PIECE_BYTES:
            self._drain()

    def _drain(self) -> None:
        self._file.pwrite_all(self._pieces, self._at)
        self._at += self._size
        self._pieces, self._size = [], 0

    def finish(self) -> None:
        """The last line; all is durable on return."""
        self.end_run()
        last = {"records": self.records, "xxh3": self._hash.hexdigest()}
        self._write(json.dumps(last).encode() + b"\n")
        self._drain()
        self._file.datasync()

    def close(self) -> None:
        """Idempotent."""
        self._file.close()


def copy_fresh(
    log: Log,
    into: str,
    *,
    dry_run: bool,
    resync: bool,
    progress: Callable[[int, int], None] | None,
    storage: Storage,
) -> Repaired:
    """See `aolog.repair`. Reads the log as any reader does; takes no lock of it."""
    from aolog.maintenance.repair import Repaired

    # As shells complete it, or with dots: what stands beside is named after it.
    while into.endswith(("/", "/.")):
        into = into.removesuffix(".").rstrip("/")
    if not into:
        raise UsageError("the new log has no name", hint="name a directory that is not there")
    mode = log.mode_of_copy()
    place = beside(into, mode & 0o666)
    _refuse_what_is_there(place, storage)
    if _is_within(into, log.path):
        raise UsageError(f"{into}: lies in the log itself", hint="name a place beside it")
    half = None
    if progress is not None:
        told_to = progress
        half = lambda done, total: told_to(done // 2, total)  # noqa: E731 -- named by its use
    found = audit(log, progress=half, resync=resync)
    parent = parent_of(absolute(into))
    while not storage.exists(parent):
        parent = str(Path(parent).parent)
    storage.open_directory(parent).close()  # refused before anything is done, dry run or not
    needed, free = _needed_bytes(found), storage.free_bytes(parent)
    if free < needed:
        raise StorageFull(
            f"up to {needed} bytes are needed for the new log and its map, {free} are free",
            hint="free some; nothing was changed",
            path=into,
            needed=needed,
            free=free,
        )
    told = Repaired(
        dry_run=dry_run,
        records=found.records,
        gaps=found.gaps,
        slabs=[],
        cursors=[],
        needed_bytes=needed,
        aside=None,
        salvaged=0,
        salvage_path=None,
        left=[],
        into=into,
        map_path=into + MAP_SUFFIX,
    )
    if dry_run:
        return told
    records, cursors, salvaged = _make(log, found, place, mode, resync=resync)
    if progress is not None:
        progress(found.bytes, found.bytes)
    return told._replace(
        records=records,
        cursors=cursors,
        salvaged=salvaged,
        salvage_path=into + SALVAGE_SUFFIX if salvaged else None,
    )


def _make(
    log: Log, found: Audit, into: Inside, mode: int, *, resync: bool
) -> tuple[int, list[str], int]:
    """The new log, durable on return: its records, the cursors that the map has, and what was
    salvaged."""
    storage, parent = log.storage, str(Path(into).absolute().parent)
    storage.make_directory(parent, mode)
    lock = _lock(into, storage)
    try:
        _refuse_what_is_there(into, storage)  # another may have been completed during the audit
        try:
            made = _build(log, found, into, mode, resync=resync)
        except BaseException:
            _remove_unfinished(into, storage)
            raise
    finally:
        with suppress(StorageError):  # while it is locked: afterwards it may be another's
            storage.unlink(into + _LOCK_SUFFIX)
        lock.close()
    storage.sync_directory(parent)
    return made


def _build(
    log: Log, found: Audit, into: Inside, mode: int, *, resync: bool
) -> tuple[int, list[str], int]:
    """As `_make`, under the lock; all has its name on return."""
    from aolog.maintenance.salvage import write_salvage
    from aolog.maintenance.verify import verify

    storage = log.storage
    unfinished, temporary_map = into + _UNFINISHED_SUFFIX, into + MAP_SUFFIX + ".tmp"
    storage.make_directory(unfinished, mode)
    _clear(unfinished, storage)
    mapped = _Map(temporary_map, storage)
    try:
        mapped.line({"aolog_map": 1, "from": log.path, "to": into})
        cursors = _copy(log, found, unfinished, mapped, resync=resync)
        mapped.finish()
    finally:
        mapped.close()
    report = verify(unfinished, storage=storage)
    if not report.ok or report.records != mapped.records:
        raise StorageFailed(
            f"the new log does not hold what was copied: {report.problems or report.gaps}",
            hint="check the device, and try again",
            path=unfinished,
        )
    salvaged = write_salvage(into + SALVAGE_SUFFIX, log.path, found.slabs, storage)
    storage.rename(temporary_map, into + MAP_SUFFIX)
    storage.rename(unfinished, into)
    return mapped.records, cursors, salvaged


def _refuse_what_is_there(into: Inside, storage: Storage) -> None:
    """Raises UsageError where the place is taken, but for what a copy that was killed left."""
    begun = storage.exists(into + _UNFINISHED_SUFFIX)  # what is beside it is its own
    for path in (into, into + MAP_SUFFIX, into + SALVAGE_SUFFIX):
        if storage.exists(path) and (path == into or not begun):
            raise UsageError(f"{path}: is there already", hint="name a place of its own")


def _lock(into: Inside, storage: Storage) -> File:
    """Held until it is closed. Raises LockedError where another copy is being made there, or was
    just now."""
    lock = storage.open_lock(into + _LOCK_SUFFIX)
    if not lock.try_lock() or not storage.leads_to(into + _LOCK_SUFFIX, lock):
        lock.close()
        raise LockedError(
            "another copy is being made",
            hint="wait until it is complete, or name another place",
            path=into,
        )
    return lock


def _is_within(path: str, log_path: str) -> bool:
    return str(Path(path).absolute()).startswith(str(Path(log_path).absolute()) + "/")


def _clear(path: Inside, storage: Storage) -> None:
    """What a copy that was killed left: slabs, and nothing else is touched."""
    if not storage.exists(path):
        return
    for name in storage.list_names(path):
        if slab_base(name.removesuffix(".tmp")) is not None:
            storage.unlink(path / name)


def _remove_unfinished(into: Inside, storage: Storage) -> None:
    """What a copy made that cannot be completed: on a full disk it would keep what room there is.
    Its directory goes last: by that the rest is known for its own."""
    unfinished = into + _UNFINISHED_SUFFIX
    if not storage.exists(unfinished):  # it has its name: it is complete
        return
    with suppress(StorageError):  # it is begun again, as one that was killed
        for suffix in (MAP_SUFFIX, SALVAGE_SUFFIX):
            storage.unlink(into + suffix)
            storage.unlink(into + suffix + ".tmp")
        _clear(unfinished, storage)
        storage.remove_directory(unfinished)


def _needed_bytes(found: Audit) -> int:
    """Room for the frames, each as large as it is, for slabs around them, and for the map: a line a
    frame, at most, and one a gap."""
    from aolog.maintenance.repair import SPARE_BYTES
    from aolog.write.writer import SLAB_BYTES

    frames = sum(end - begin for slab in found.slabs for begin, end in slab.runs)
    slabs = frames // SLAB_BYTES + 1
    line = len('{"old": [, ], "new": [, ]}\n') + 4 * len(str(found.end))
    lines = found.frames + 2 * len(found.gaps)
    return frames + slabs * (DATA_BEGIN + _SEAL_BYTES) + lines * line + SPARE_BYTES


def _copy(log: Log, found: Audit, to: str, mapped: _Map, *, resync: bool) -> list[str]:
    """Appends every frame; the cursors that the map has."""
    cursors = _cursors(log, log.storage)
    waiting = sorted(((address, name) for name, address in cursors.items()), reverse=True)
    placed: dict[str, int] = {}
    writer = _writer(log, found, to)
    try:
        frames: dict[int, Frame] = {}

        def show(slab: Slab, frame: Frame, columns: Columns | None) -> None:
            if columns is not None:
                frames[slab.base + frame.offset] = frame

        scan = Scan(log, log.listed(lambda: seek.earliest(log)), resync=resync, audit=show)
        try:
            while (came := scan.next()) is not None:
                if not isinstance(came, RecordFrame):
                    _tell_gap(mapped, came)
                    continue
                new = _append(writer, came, frames.pop(came.address))
                count = came.columns.records
                mapped.records_went(came.address, new, count)
                while waiting and waiting[-1][0] < came.address + count:
                    address, name = waiting.pop()
                    placed[name] = new + max(0, address - came.address)
        finally:
            scan.close()
        end = writer.sync()
        writer.close()
    except BaseException:
        writer.give_up()
        raise
    for name, address in sorted(cursors.items()):
        mapped.line({"cursor": name, "old": address, "new": placed.get(name, end)})
    return sorted(cursors)


def _writer(log: Log, found: Audit, to: str) -> Writer:
    from aolog.write.writer import Writer

    format_1 = log.format == 1
    headers = [slab.header for slab in found.slabs if slab.header is not None]
    return Writer(
        to,
        format="queuefka" if format_1 else "aolog",
        topic=headers[-1].topic if headers else None,
        sync="never",
        max_record_bytes=RECORD_BYTES_MAX,
        compression=compression_of(max((slab.codec for slab in found.slabs), default=0)),
        storage=log.storage,
    )


def _append(writer: Writer, came: RecordFrame, frame: Frame) -> int:
    """Where the first of its records is now."""
    from aolog.write.writer import append_body

    if came.timestamp_us is None:  # format 1: a record
        return writer.append(next(iter(came.values())))
    head = frame.header
    return append_body(
        writer,
        head.records,
        head.columns,
        head.flags >> CODEC_SHIFT,
        [frame.body],
        head.timestamp_us,
        least_of(head, came.columns),
    )


def _tell_gap(mapped: _Map, gap: Gap) -> None:
    mapped.line({"old": [gap.begin, gap.end], "gap": gap.reason, "records_lost": gap.records_lost})


def _cursors(log: Log, storage: Storage) -> dict[str, int]:
    from aolog.log.cursor_file import cursor_names, read_position

    found = {}
    for name in cursor_names(log.path, storage):
        try:
            found[name] = read_position(log.path, name, storage).address
        except AologError:  # damaged: it says nothing
            continue
    return found
