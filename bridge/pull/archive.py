"""Logs that together are one archive, each filled by a process of its own on this machine.

A partition may move from one process to another, and so from one log to another. Two rules keep each
record in the archive once:

- Only a process that holds a partition's claim appends its records. A claim is a lock on a file below
  ROOT/.pull/, which the kernel releases when its process ends, and not before. So a process that
  was stopped for an hour still holds its claims, and one that was killed does not. Kafka's group
  protocol only proposes which process reads what.
- The holder begins after the last record of the partition in any log of the archive.

Kafka's committed offsets cannot do this: they are not written together with a log, and a member that was
thrown out may append after it. The price is that the processes share a file system with locks.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from uuid import uuid4

from aolog.errors import MALFORMED, UsageError
from aolog.log.directory import Log
from aolog.log.lock import lock_directory
from aolog.storage.directory import Inside
from aolog.storage.file import File
from aolog.storage.storage import Storage
from bridge.operate.unit_events import CLAIMS, UNITS_FILE
from bridge.pull.origin import Source
from bridge.pull.positions import read_positions
from bridge.supervise.discovery import find_logs

_ID_FILE = "archive-id"
_STARTS_FILE = "latest.json"
_NOTE = "aolog-archive:"


class Archive:
    """The logs below a root, seen from the process of one of them. One thread. Holds a file for
    each claim until it is released, or the process ends. Raises UsageError for an archive of units."""

    def __init__(self, root: str, path: str) -> None:
        if Path(root, CLAIMS, UNITS_FILE).exists():
            raise UsageError(
                f"{root} is filled by units",
                hint="use --units, or give the pull an archive of its own",
            )
        self._root, self._path = root, path
        self._claims: dict[Source, File] = {}
        self._starts: dict[str, int] = {}

    def note(self) -> str:
        """What a group commits with its offsets: the archive's id, which the first call makes."""
        file = Path(self._root, CLAIMS, _ID_FILE)
        if not file.exists():
            write_once(self._root, _ID_FILE, uuid4().hex)
        return _NOTE + file.read_text(encoding="utf-8")

    def check_notes(self, group: str, notes: Iterable[str]) -> None:
        """Raises UsageError if the group has committed offsets of another archive. Makes no id."""
        file = Path(self._root, CLAIMS, _ID_FILE)
        ours = self.note() if file.exists() else None
        if any(note.startswith(_NOTE) and note != ours for note in notes):
            raise UsageError(
                f"group {group!r} fills another archive than {self._root}",
                hint="use another --group, or the --root that it began with",
            )

    def begin_at(self, ends: Mapping[Source, int]) -> None:
        """Partitions without a record begin at these offsets; or at those of an earlier call, by any
        process of the archive. Others begin at their first record. Durable on return."""
        offsets = {source.file_name: end for source, end in ends.items()}
        write_once(self._root, _STARTS_FILE, json.dumps(offsets))
        file = Path(self._root, CLAIMS, _STARTS_FILE)
        without = "partitions without records begin at their ends"
        self._starts = _read_starts(file, without)

    def start_of(self, source: Source) -> int | None:
        """Where a partition without a record begins; None: at its first record."""
        return self._starts.get(source.file_name)

    def claim(self, source: Source) -> bool:
        """Whether the partition is ours now; False while another process holds it."""
        if source not in self._claims:
            file = lock_claim(self._root, source.file_name)
            if file is None:
                return False
            self._claims[source] = file
        return True

    def release(self, source: Source) -> None:
        """Another process may claim the partition. Its records must be durable."""
        if source in self._claims:
            self._claims.pop(source).close()

    def close(self) -> None:
        """Releases every claim."""
        while self._claims:
            self._claims.popitem()[1].close()

    def next_offsets(self, sources: Iterable[Source]) -> dict[Source, int]:
        """The offset after the last record of each of these claimed partitions in any log of the
        archive; partitions without a record are left out. What other logs hold of them is durable
        on return: their process may have been killed before it synced."""
        wanted, found = set(sources), dict[Source, int]()
        mine = os.path.realpath(self._path)
        for path in {mine, *map(os.path.realpath, find_logs(self._root).values())}:
            for source, position in read_positions(path).items():
                if source in wanted and position > found.get(source, -1):
                    found[source] = position
                    if path != mine:
                        sync_last_slab(path)
        return found


def lock_claim(root: str, name: str) -> File | None:
    """The file of a claim, locked until it is closed; None if another process holds it, or removed it."""
    directory, storage = f"{root}/{CLAIMS}", Storage()
    if not storage.exists(directory):  # creating it syncs the root: not for each claim
        storage.make_directory(directory)
    path = Inside(directory, name, in_log=False)
    file = storage.open_lock(path)
    if file.try_lock() and storage.leads_to(path, file):
        return file
    file.close()
    return None


def write_once(root: str, name: str, text: str) -> None:
    """A file beside the claims, whole and durable, or absent; the first one stays."""
    directory, storage = f"{root}/{CLAIMS}", Storage()
    storage.make_directory(directory)
    file = Inside(directory, name, in_log=False)
    with lock_directory(directory, storage):
        if not storage.exists(file):
            storage.write_file(file, [text.encode()])


def lowest_starts(root: str, name: str, starts: Mapping[str, int]) -> dict[str, int]:
    """The lowest that any process has given, by key: a file beside the claims, durable on return."""
    directory, storage = f"{root}/{CLAIMS}", Storage()
    file = Inside(directory, name, in_log=False)
    with lock_directory(directory, storage):
        told: dict[str, int] = {}
        if storage.exists(file):
            without = "losses before the next start are not reported"
            told = _read_starts(Path(directory, name), without)
        lowest = told | {key: min(at, told.get(key, at)) for key, at in starts.items()}
        if lowest != told:
            storage.write_file(file, [json.dumps(lowest).encode()])
    return lowest


def _read_starts(file: Path, without: str) -> dict[str, int]:
    """without: what happens if the file is removed."""
    try:
        told = json.loads(file.read_text(encoding="utf-8"))
        return {str(name): int(offset) for name, offset in told.items()}
    except MALFORMED as error:
        raise UsageError(
            f"{file} does not say where the archive began: {error}",
            hint=f"bring it back from a copy; without it, {without}",
        ) from None


def sync_last_slab(path: str) -> None:
    """Makes all of a log durable: earlier slabs were synced when they were sealed."""
    with Log(path, Storage()) as log:
        with log.open_file(log.bases[-1]) as file:
            file.datasync()
        log.directory.sync()
