"""The locks of a log. Each is an exclusive flock, and closing the file or directory releases it.

    writer's lock    the log's directory    one writer; a repair; a publication
    root's lock      the root's directory   one publication; a view of many logs (publications.py)
    retention lock   LOG/retention.lock     one process that prunes
    cursor's lock    the cursor's file      one reader that commits, or a command that changes it

The root's lock of a root that is itself a log is the writer's lock of that log. `warn_of_limits` names a
file system on which locks do not hold.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aolog.errors import CursorLocked, LogLocked, warn
from aolog.log.names import RETENTION_LOCK, cursor_path
from aolog.storage.directory import Inside
from aolog.storage.mounts import limits_of
from aolog.storage.storage import DIRECTORY_MODE

if TYPE_CHECKING:
    from aolog.storage.directory import Directory
    from aolog.storage.file import File
    from aolog.storage.storage import Storage


def lock_log(path: str, storage: Storage, mode: int = DIRECTORY_MODE) -> Directory:
    """Takes the writer's lock of a log. Creates its directory if it does not exist, with this mode.
    Raises LogLocked, PermissionDenied for root in another user's log, StorageError."""
    storage.make_directory(path, mode)
    with storage.open_directory(path).closed_on_error() as directory:
        storage.refuse_root(directory)
        if not directory.try_lock():
            raise LogLocked(
                "another writer has the log open",
                hint="a log has one writer: close it, or write to another log",
                path=path,
            )
    return directory


def lock_directory(path: str, storage: Storage) -> Directory:
    """Waits for the lock of a root, or of a log's directory of cursors, in which readers create
    cursors one at a time. Raises StorageError."""
    with storage.open_directory(path).closed_on_error() as directory:
        directory.lock()
    return directory


def lock_retention(log_path: str | Directory, storage: Storage) -> File:
    """Waits for the retention lock of a log. Raises StorageError."""
    with storage.open_lock(Inside(log_path, RETENTION_LOCK)).closed_on_error() as file:
        file.lock()
    return file


def lock_cursor(log_path: str, name: str, storage: Storage) -> File:
    """Takes the lock of a cursor's file, open for reading and writing. Raises FileNotFoundError if
    there is no such cursor, CursorLocked, StorageError."""
    path = cursor_path(log_path, name)
    with storage.open_write(path).closed_on_error() as file:
        if not file.try_lock():
            raise CursorLocked(
                f"cursor {name!r} is in use by another reader",
                hint="wait for it to end, or stop it; another name would read all records again",
                path=log_path,
            )
        if not storage.leads_to(path, file):
            raise FileNotFoundError(path)  # deleted or replaced since it was opened
    return file


_warned: set[str] = set()  # mount points that a warning named


def warn_of_limits(path: str, storage: Storage) -> None:
    """Warns, once a mount, if the file system is known not to keep its locks or syncs."""
    mount = storage.mount_of(path)
    if mount is None or mount.point in _warned:
        return
    for text in limits_of(mount).values():
        _warned.add(mount.point)
        warn("%s is on %s (%s): %s", path, mount.point, mount.kind, text)
