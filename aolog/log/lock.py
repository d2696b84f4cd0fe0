"""The locks of a log. Each is an exclusive flock, and closing the file or directory releases it.

    writer's lock    the log's directory    one writer; a repair; a publication
    root's lock      the root's directory   one publication; a view of many logs (publish/many_logs.py)
    retention lock   LOG/retention.lock     one process that prunes
    cursor's lock    the cursor's file      one reader that commits, or a command that changes it: see cursor_file.py

The root's lock of a root that is itself a log is the writer's lock of that log.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aolog.errors import LogLocked
from aolog.format.names import RETENTION_LOCK
from aolog.storage.directory import Inside
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
