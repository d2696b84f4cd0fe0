"""Files in a log's directory that are not part of the log, and what recovery kept in aside/."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from aolog.log.cursor_file import cursor_names
from aolog.log.directory import list_slabs
from aolog.log.names import (
    ASIDE_DIRECTORY,
    CURSOR_DIRECTORY,
    CURSOR_SUFFIX,
    MANIFEST_NAME,
    NOTES_SUFFIX,
    PENDING_SUFFIX,
    RETENTION_LOCK,
    slab_base,
)
from aolog.storage.directory import Inside

if TYPE_CHECKING:
    from collections.abc import Collection

    from aolog.storage.storage import Storage

DESCRIPTION = {
    "temporary": "a temporary file",
    "pending": "a slab that no job has published",
    "notes": "the bridge's notes on a cursor that does not exist",
    "unknown": "not a file of a log",
}

_NAMES = {RETENTION_LOCK, MANIFEST_NAME, "lost+found"}  # beside slabs and directories


class Leftover(NamedTuple):
    """A file that is not part of the log. kind: "temporary", "pending", "notes" (the bridge's, on a
    cursor that does not exist), "aside" or "unknown"."""

    kind: str
    path: str
    bytes: int


def find_leftovers(path: str, storage: Storage) -> list[Leftover]:
    """All leftovers, by name. Raises StorageError."""
    found = []

    def look(where: str, ours: Collection[str], kind: str = "") -> None:
        for name in sorted(storage.list_names(where)):
            entry = storage.entry(Inside(where, name))
            if entry is not None and name not in ours and slab_base(name) is None:
                found.append(Leftover(kind or _kind(name), Inside(where, name), entry.size))

    directories = []
    for name in (CURSOR_DIRECTORY, ASIDE_DIRECTORY):
        entry = storage.entry(Inside(path, name))
        if entry is not None and entry.kind == "directory":
            directories.append(name)
    look(path, {*list_slabs(path, storage).published.values(), *_NAMES, *directories})
    if CURSOR_DIRECTORY in directories:
        cursors = cursor_names(path, storage)
        known = {f"{name}{end}" for name in cursors for end in (CURSOR_SUFFIX, NOTES_SUFFIX)}
        look(Inside(path, CURSOR_DIRECTORY), known)
    if ASIDE_DIRECTORY in directories:
        look(Inside(path, ASIDE_DIRECTORY), (), "aside")
    return found


def _kind(name: str) -> str:
    if name.endswith(".tmp"):
        return "temporary"
    if name.endswith(PENDING_SUFFIX):
        return "pending"
    return "notes" if name.endswith(NOTES_SUFFIX) else "unknown"
