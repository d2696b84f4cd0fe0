"""Logs that together are one archive, each filled by a process of its own on this machine.

A partition may move from one process to another, and so from one log to another. Two rules keep each
record in the archive once:

- Only a process that holds a partition's claim appends its records. A claim is a lock on a file below
  ROOT/.pull/, which the kernel releases when its process ends, and not before. So a process that
  was stopped for an hour still holds its claims, and one that was killed does not. Kafka's group
  protocol only proposes who reads what.
- The holder begins after the last record of the partition in any log of the archive.

Kafka's committed offsets cannot do this: they are not written together with a log, and a member that was
thrown out may append after it. The price is that the processes share a file system with locks.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

from aolog.errors import UsageError
from bridge.pull.origin import Source
from bridge.pull.positions import read_positions
from bridge.supervise.discovery import find_logs

if TYPE_CHECKING:
    from collections.abc import Iterable

CLAIMS = ".pull"
UNITS_FILE = "units.json"
_ID_FILE = "archive-id"
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
        self._claims: dict[Source, int] = {}

    def note(self) -> str:
        """What a group commits with its offsets: the archive's id, which the first call makes."""
        file = Path(self._root, CLAIMS, _ID_FILE)
        if not file.exists():
            write_once(file, uuid4().hex)
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

    def claim(self, source: Source) -> bool:
        """Whether the partition is ours now; False while another process holds it."""
        if source in self._claims:
            return True
        directory = Path(self._root, CLAIMS)
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        name = source.prefix.decode().strip("/").replace("/", ".")
        fd = os.open(directory / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            return False
        self._claims[source] = fd
        return True

    def release(self, source: Source) -> None:
        """Another process may claim the partition. Its records must be durable."""
        fd = self._claims.pop(source, None)
        if fd is not None:
            os.close(fd)

    def close(self) -> None:
        """Releases every claim."""
        for source in list(self._claims):
            self.release(source)

    def next_offsets(self, sources: Iterable[Source]) -> dict[Source, int]:
        """The offset after the last record of each of these claimed partitions in any log of the
        archive; partitions without a record are left out. What other logs hold of them is durable
        on return: their process may have been killed before it synced."""
        wanted, found = set(sources), dict[Source, int]()
        paths = {os.path.realpath(path) for path in find_logs(self._root).values()}
        for path in paths | {os.path.realpath(self._path)}:
            mine = path == os.path.realpath(self._path)
            for source, position in read_positions(path).items():
                if source in wanted and position > found.get(source, -1):
                    found[source] = position
                    if not mine:
                        sync_last_slab(path)
        return found


def write_once(file: Path, text: str) -> None:
    """Whole or absent, and the first one stays."""
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = file.with_name(f"{file.name}.{os.getpid()}")
    draft.write_text(text, encoding="utf-8")
    with contextlib.suppress(FileExistsError):
        file.hardlink_to(draft)
    draft.unlink()


def sync_last_slab(path: str) -> None:
    """Makes all of a log durable: earlier slabs were synced when they were sealed."""
    slabs = sorted(Path(path).glob("*.slab"))
    for name in [*slabs[-1:], Path(path)]:
        fd = os.open(name, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
