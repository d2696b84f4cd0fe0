"""Taking a log for oneself: its lock, the proof that the directory is a log or may become one, and
what its file system does not keep.

For whoever adds slabs: a writer (rolling.py), and a job that publishes slabs which were written
before their place was known (publish/).
"""

from __future__ import annotations

from contextlib import closing, suppress
from typing import TYPE_CHECKING

from aolog.errors import LogLocked, NotALog, StorageError, UsageError
from aolog.format.slab import slab_base
from aolog.log.directory import ASIDE_DIRECTORY, CURSOR_DIRECTORY, MANIFEST_NAME, RETENTION_LOCK
from aolog.log.listing import PENDING_SUFFIX, UNBORN_SUFFIX
from aolog.notices import warn
from aolog.storage.files import DIRECTORY_MODE
from aolog.storage.mounts import limits_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aolog.log.directory import Log
    from aolog.storage.files import Directory, Inside, Storage

__all__ = ["give_modes", "lock_log", "refuse_foreign", "warn_of_limits"]

_OUR_NAMES = {
    CURSOR_DIRECTORY, ASIDE_DIRECTORY, RETENTION_LOCK, MANIFEST_NAME, f"{MANIFEST_NAME}.tmp",
    "lost+found",
}  # fmt: skip  # a set


def lock_log(path: str, storage: Storage, mode: int = DIRECTORY_MODE) -> Directory:
    """The log's directory, and the one writer's lock on it, held until it is closed. mode: if it is
    created. Raises LogLocked, PermissionDenied for root in another user's log, StorageError."""
    storage.make_directory(path, mode)
    directory = storage.open_directory(path)
    try:
        storage.refuse_root(directory)
        if not directory.try_lock():
            raise LogLocked(
                "another writer has the log open",
                hint="a log has one writer: close it, or write to another log",
                path=path,
            )
    except BaseException:
        directory.close()
        raise
    return directory


def refuse_foreign(log: Log, *, format_1: bool) -> None:
    """Raises NotALog if the directory holds something else, UsageError if its format is another;
    where nothing says which it has, that is the writer's."""
    if not log.bases:
        foreign = [
            name
            for name in log.storage.list_names(log.directory)
            if not name.startswith(".")
            and name not in _OUR_NAMES
            and not name.endswith((UNBORN_SUFFIX, PENDING_SUFFIX))
        ]
        if foreign:
            raise NotALog(
                f"holds other files ({foreign[0]!r}) and no slab",
                hint="name a directory of its own",
                path=log.path,
            )
    elif format_1 and not log.says_format:
        log.take_for_format_1()  # a power cut may take the first bytes of its first slab
    elif (log.format == 1) != format_1:
        its = "queuefka" if log.format == 1 else "aolog"
        raise UsageError(
            f"{log.path}: the log is of format {log.format}",
            hint=f'open it with format="{its}"',
        )


def give_modes(log: Log) -> None:
    """The files that are there get their directory's bits, as new ones do: so chmod of the directory
    shares all of the log. Looked for where the last slab's differ. What is another user's stays."""
    if not log.bases:
        return
    last, mode = log.open_file(log.bases[-1]), log.directory.mode()
    try:
        is_given = not (last.mode() ^ mode) & 0o666
    finally:
        last.close()
    if is_given:
        return
    names = [
        name
        for name in log.storage.list_names(log.directory)
        if name in _OUR_NAMES or slab_base(name.removesuffix(".tmp")) is not None
    ]
    _give_modes([log.directory / name for name in names], mode, log.storage)


def _give_modes(paths: Iterable[Inside], mode: int, storage: Storage) -> None:
    for path in paths:
        entry = storage.entry(path)
        with suppress(FileNotFoundError, StorageError):  # removed meanwhile, or not ours
            if entry is not None and entry.kind == "file":
                with closing(storage.open_read(path)) as file:
                    file.set_mode(mode & 0o666)
            elif entry is not None and entry.kind == "directory":
                with closing(storage.open_directory(path)) as directory:
                    directory.set_mode(mode)
                    inner = [directory / name for name in storage.list_names(directory)]
                    _give_modes(inner, mode, storage)


_warned: set[str] = set()  # mount points


def warn_of_limits(path: str, storage: Storage) -> None:
    """Tells once, where locks or syncs are asked for that the file system is known not to keep."""
    mount = storage.mount_of(path)
    if mount is None or mount.point in _warned:
        return
    for limit in limits_of(mount):
        _warned.add(mount.point)
        warn("%s is on %s (%s): %s", path, mount.point, mount.kind, limit.text)
