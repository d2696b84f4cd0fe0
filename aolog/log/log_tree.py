"""Which directories are logs: those with a slab, under its own name or published under a pending one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aolog.errors import NotALog
from aolog.format.names import PENDING_SUFFIX
from aolog.format.slab import slab_base
from aolog.log.manifest import resolve

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from aolog.storage.storage import Storage


def holds_slabs(path: str, names: Iterable[str], storage: Storage) -> bool:
    """Whether a directory with these names is a log. Raises CorruptionError, StorageError."""
    pending = []
    for name in names:
        if slab_base(name) is not None:
            return True
        if name.endswith(PENDING_SUFFIX):
            pending.append(name)
    return bool(pending and resolve(path, pending, storage))


def is_log(path: str, storage: Storage) -> bool:
    """Whether the path is a log. Raises CorruptionError, StorageError."""
    return storage.exists(path) and holds_slabs(path, storage.list_names(path), storage)


def walk_logs(root: str, storage: Storage) -> Iterator[tuple[str, list[str], bool]]:
    """The directory and those below it, except inside a log, without following symbolic links: the path
    of each, its names, and whether it is a log. Raises what listing the first one raises."""
    todo = [root]
    while todo:
        path = todo.pop()
        try:
            names = storage.list_names(path)
        except (FileNotFoundError, NotADirectoryError, NotALog):
            if path == root:
                raise
            continue  # deleted since
        found = holds_slabs(path, names, storage)
        yield path, names, found
        for name in () if found else names:
            if name.endswith(PENDING_SUFFIX):
                continue  # a file: a job may leave thousands
            entry = storage.entry(f"{path}/{name}")
            if entry is not None and entry.kind == "directory":
                todo.append(f"{path}/{name}")
