"""A new log from what is intact in another, and a map from the old addresses to the new ones.

Records, their keys, headers, timestamps and topics are appended anew; the new log has its own
UUID, so cursors and the bridge's stamps of the old one do not apply to it. The map says where
each record went, and where each cursor would stand.

The map is lines of JSON, in order of the old addresses:

    {"aolog_map": 1, "from": PATH, "to": PATH}
    {"old": [begin, end], "new": [begin, end]}          the record at begin + i went to begin + i
    {"old": [begin, end], "gap": REASON, "records_lost": N or null}
    {"cursor": NAME, "old": ADDRESS, "new": ADDRESS}    of the first record that it has not passed
    {"records": N, "xxh3": HEX}                         the last: of all bytes before this line

The new log is built as INTO.unfinished and renamed when it is complete, verified and durable,
after its map. A copy that was killed is begun again.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import xxhash

from aolog.checks import RECORD_BYTES_MAX
from aolog.errors import AologError, LockedError, StorageFailed, StorageFull, UsageError
from aolog.slab import slab_base

if TYPE_CHECKING:
    from collections.abc import Callable

    from aolog.log import Log
    from aolog.record import Gap
    from aolog.repairing import Repaired
    from aolog.storage import Storage

__all__ = ["MAP_SUFFIX", "SALVAGE_SUFFIX", "copy_fresh"]

MAP_SUFFIX = ".map.jsonl"
SALVAGE_SUFFIX = ".salvage.jsonl"
_UNFINISHED_SUFFIX = ".unfinished"


class _Map:
    """Lines as they come, written to a file in pieces; runs of records become one line."""

    _PIECE_BYTES = 1 << 20

    def __init__(self, path: str, storage: Storage) -> None:
        """Raises LockedError where another copy writes it, or has just been completed."""
        self._file = storage.open_lock(path)
        if not self._file.try_lock() or not storage.leads_to(path, self._file):
            self._file.close()
            raise LockedError(
                "another copy is being made",
                hint="wait until it is complete, or name another place",
                path=path,
            )
        self._file.truncate(0)  # of one that was killed
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

    def record(self, old: int, new: int) -> None:
        """A record went from here to there."""
        self.records += 1
        run = self._run
        if run is not None and run[1] == old and run[2] + run[1] - run[0] == new:
            run[1] += 1
            return
        self.end_run()
        self._run = [old, old + 1, new]

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
    from aolog.audit import audit
    from aolog.repairing import Repaired
    from aolog.salvage import write_salvage
    from aolog.verifying import verify

    # As shells complete it, or with dots: what stands beside is named after it.
    while into.endswith(("/", "/.")):
        into = into.removesuffix(".").rstrip("/")
    if not into:
        raise UsageError("the new log has no name", hint="name a directory that is not there")
    unfinished = into + _UNFINISHED_SUFFIX
    begun = storage.exists(unfinished)  # by a copy that was killed: what is beside it is its own
    for path in (into, into + MAP_SUFFIX, into + SALVAGE_SUFFIX):
        if storage.exists(path) and (path == into or not begun):
            raise UsageError(f"{path}: is there already", hint="name a place of its own")
    if _is_within(into, log.path):
        raise UsageError(f"{into}: lies in the log itself", hint="name a place beside it")
    half = None
    if progress is not None:
        told_to = progress
        half = lambda done, total: told_to(done // 2, total)  # noqa: E731 -- named by its use
    found = audit(log, progress=half, resync=resync)
    parent = str(Path(into).absolute().parent)
    while not storage.exists(parent):
        parent = str(Path(parent).parent)
    storage.open_directory(parent).close()  # refused before anything is done, dry run or not
    free = storage.free_bytes(parent)
    if free < found.bytes:
        raise StorageFull(
            f"up to {found.bytes} bytes are needed for the new log, {free} are free",
            hint="free some; nothing was changed",
            path=into,
            needed=found.bytes,
            free=free,
        )
    told = Repaired(
        dry_run=dry_run,
        records=found.records,
        gaps=found.gaps,
        slabs=[],
        cursors=[],
        needed_bytes=found.bytes,
        aside=None,
        salvaged=0,
        salvage_path=None,
        left=[],
        into=into,
        map_path=into + MAP_SUFFIX,
    )
    if dry_run:
        return told
    temporary_map = into + MAP_SUFFIX + ".tmp"
    storage.make_directory(unfinished)
    mapped = _Map(temporary_map, storage)  # locked until all has its name
    try:
        _clear(unfinished, storage)
        mapped.line({"aolog_map": 1, "from": log.path, "to": into})
        cursors = _copy(log, unfinished, mapped, resync=resync, storage=storage)
        mapped.finish()
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
        storage.sync_directory(str(Path(into).absolute().parent))
    finally:
        mapped.close()
    if progress is not None:
        progress(found.bytes, found.bytes)
    return told._replace(
        records=mapped.records,
        cursors=cursors,
        salvaged=salvaged,
        salvage_path=into + SALVAGE_SUFFIX if salvaged else None,
    )


def _is_within(path: str, log_path: str) -> bool:
    return str(Path(path).absolute()).startswith(str(Path(log_path).absolute()) + "/")


def _clear(path: str, storage: Storage) -> None:
    """What a copy that was killed left: slabs, and nothing else is touched."""
    if not storage.exists(path):
        return
    for name in storage.list_names(path):
        if slab_base(name.removesuffix(".tmp")) is not None:
            storage.unlink(f"{path}/{name}")


def _copy(log: Log, to: str, mapped: _Map, *, resync: bool, storage: Storage) -> list[str]:
    """Appends every record; the cursors that the map has."""
    from aolog.reader import Reader
    from aolog.writer import Writer

    cursors = _cursors(log, storage)
    placed: dict[str, int] = {}
    format_1 = log.format == 1
    gaps: list[Gap] = []
    with Reader(log.path, on_gap=gaps.append, resync=resync, storage=storage) as reader:
        topic = None if format_1 else reader.topic
        writer = Writer(
            to,
            format="queuefka" if format_1 else "aolog",
            topic=topic,
            sync="never",
            max_record_bytes=RECORD_BYTES_MAX,
            storage=storage,
        )
        waiting = sorted(((address, name) for name, address in cursors.items()), reverse=True)
        with writer:
            for record in reader:
                while gaps:
                    _tell_gap(mapped, gaps.pop(0))
                new = writer.append(
                    record.value,
                    key=record.key,
                    headers=record.headers,
                    timestamp=record.timestamp,
                    topic=record.topic,
                )
                mapped.record(record.address, new)
                while waiting and waiting[-1][0] <= record.address:
                    placed[waiting.pop()[1]] = new
            for gap in gaps:
                _tell_gap(mapped, gap)
            end = writer.sync()
    for name, address in sorted(cursors.items()):
        mapped.line({"cursor": name, "old": address, "new": placed.get(name, end)})
    return sorted(cursors)


def _tell_gap(mapped: _Map, gap: Gap) -> None:
    mapped.line({"old": [gap.begin, gap.end], "gap": gap.reason, "records_lost": gap.records_lost})


def _cursors(log: Log, storage: Storage) -> dict[str, int]:
    from aolog.cursor import cursor_names, read_position

    found = {}
    for name in cursor_names(log.path, storage):
        try:
            found[name] = read_position(log.path, name, storage).address
        except AologError:  # damaged: it says nothing
            continue
    return found
