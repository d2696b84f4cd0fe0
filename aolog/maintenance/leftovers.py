"""Files in a log's directory that are not part of the log, and what recovery kept in aside/."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from aolog.errors import AologError
from aolog.log.cursor_file import cursor_names
from aolog.log.directory import list_slabs
from aolog.log.names import (
    ASIDE_DIRECTORY,
    CURSOR_DIRECTORY,
    MANIFEST_NAME,
    NOTES_SUFFIX,
    PENDING_SUFFIX,
    RETENTION_LOCK,
    slab_base,
)
from aolog.storage.directory import Inside

if TYPE_CHECKING:
    from aolog.storage.storage import Storage

DESCRIPTION = {
    "temporary": "a temporary file",
    "pending": "a slab that no job has published",
    "notes": "the bridge's notes on a cursor that does not exist",
    "unreadable": "cannot be listed",
    "unknown": "not a file of a log",
}
_NAMES = {RETENTION_LOCK, MANIFEST_NAME, "lost+found"}  # beside slabs and directories


class Leftover(NamedTuple):
    """A file that is not part of the log. kind: "temporary", "pending", "notes" (the bridge's, on a
    cursor that does not exist), "aside", "unreadable" (a directory in aside/) or "unknown"."""

    kind: str
    path: str
    bytes: int


def find_leftovers(path: str, storage: Storage) -> list[Leftover]:
    """All leftovers, by name. Raises StorageError."""
    found = []

    def add(kind: str, where: Inside) -> None:
        entry = storage.entry(where)
        if entry is not None:
            found.append(Leftover(kind, where, entry.size))

    published = list_slabs(path, storage).published.values()
    for name in sorted(storage.list_names(path)):
        where = Inside(path, name)
        if name.endswith(".tmp"):
            add("temporary", where)
        elif name.endswith(PENDING_SUFFIX) and name not in published:
            add("pending", where)
        elif name == CURSOR_DIRECTORY:
            cursors = cursor_names(path, storage)
            known = {f"{cursor}{end}" for cursor in cursors for end in (".cursor", NOTES_SUFFIX)}
            for inner in sorted(set(storage.list_names(where)) - known):
                kind = "notes" if inner.endswith(NOTES_SUFFIX) else "unknown"
                add("temporary" if inner.endswith(".tmp") else kind, where / inner)
        elif name == ASIDE_DIRECTORY and _kind(where, storage) in {"directory", "link"}:
            for kind, below in _files_below(where, storage):  # a link is unreadable
                add(kind, below)
        elif slab_base(name) is None and name not in {*published, *_NAMES}:
            add("unknown", where)
    return found


def _kind(path: Inside, storage: Storage) -> str | None:
    entry = storage.entry(path)
    return None if entry is None else entry.kind


def _files_below(path: Inside, storage: Storage) -> list[tuple[str, Inside]]:
    """(kind, path) of all files below a directory; a directory that cannot be listed is one entry."""
    try:
        names = sorted(storage.list_names(path))
    except AologError:
        return [("unreadable", path)]
    found = []
    for name in names:
        where = path / name
        inside = _kind(where, storage) == "directory"
        found += _files_below(where, storage) if inside else [("aside", where)]
    return found
