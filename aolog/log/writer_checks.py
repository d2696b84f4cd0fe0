"""Checks before a log is written: is the directory a log, or may it become one; its files' modes; and
the guarantees that its file system lacks.

For a writer, and for a job that publishes slabs. The caller holds the writer's lock (lock.py).
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from aolog.errors import NotALog, StorageError, UsageError, warn
from aolog.log.names import (
    ASIDE_DIRECTORY,
    CURSOR_DIRECTORY,
    MANIFEST_NAME,
    RETENTION_LOCK,
    slab_base,
)
from aolog.storage.mounts import limits_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aolog.log.directory import Log
    from aolog.storage.directory import Inside
    from aolog.storage.storage import Storage

_OUR_NAMES = {
    CURSOR_DIRECTORY, ASIDE_DIRECTORY, RETENTION_LOCK, MANIFEST_NAME, f"{MANIFEST_NAME}.tmp",
    "lost+found",
}  # fmt: skip  # a set


def refuse_foreign(log: Log, *, format_1: bool) -> None:
    """Raises NotALog if the directory has other files and no slab, UsageError if the log has the other
    format. If nothing shows the log's format, it is the writer's."""
    if not log.bases:
        foreign = [
            name for name in log.others if not name.startswith(".") and name not in _OUR_NAMES
        ]
        if foreign:
            raise NotALog(
                f"holds other files ({foreign[0]!r}) and no slab",
                hint="name an empty directory, or one that does not exist",
                path=log.path,
            )
    elif format_1 and not log.says_format:
        log.take_for_format_1()  # a power cut may destroy the first bytes of its first slab
    elif (log.format == 1) != format_1:
        its = "queuefka" if log.format == 1 else "aolog"
        raise UsageError(
            f"{log.path}: the log is of format {log.format}",
            hint=f'open it with format="{its}"',
        )


def give_modes(log: Log) -> None:
    """Gives existing files their directory's permissions, as new files get them: chmod of the
    directory shares the whole log. Does it only if the last slab's permissions differ. Files of
    other users keep theirs."""
    if not log.bases:
        return
    mode = log.directory.mode()
    with log.open_file(log.bases[-1]) as last:
        if not (last.mode() ^ mode) & 0o666:
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
        with suppress(FileNotFoundError, StorageError):  # removed meanwhile, or another user's
            if entry is not None and entry.kind == "file":
                with storage.open_read(path) as file:
                    file.set_mode(mode & 0o666)
            elif entry is not None and entry.kind == "directory":
                with storage.open_directory(path) as directory:
                    directory.set_mode(mode)
                    inner = [directory / name for name in storage.list_names(directory)]
                    _give_modes(inner, mode, storage)


_warned: set[str] = set()  # mount points that a warning named


def warn_of_limits(path: str, storage: Storage) -> None:
    """Warns, once a mount, if the file system is known not to keep its locks or syncs."""
    mount = storage.mount_of(path)
    if mount is None or mount.point in _warned:
        return
    for limit in limits_of(mount):
        _warned.add(mount.point)
        warn("%s is on %s (%s): %s", path, mount.point, mount.kind, limit.text)
