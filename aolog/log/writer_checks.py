"""Checks before a log is written: is the directory a log, or may it become one; and
the guarantees that its file system lacks.

For a writer, and for a job that publishes slabs. The caller holds the writer's lock (lock.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aolog.errors import NotALog, UsageError, warn
from aolog.log.names import (
    ASIDE_DIRECTORY,
    CURSOR_DIRECTORY,
    KNOWN_GAPS_NAME,
    MANIFEST_NAME,
    RETENTION_LOCK,
)
from aolog.storage.mounts import limits_of

if TYPE_CHECKING:
    from aolog.log.directory import Log
    from aolog.storage.storage import Storage

_OUR_NAMES = {
    CURSOR_DIRECTORY, ASIDE_DIRECTORY, RETENTION_LOCK, KNOWN_GAPS_NAME, MANIFEST_NAME,
    f"{MANIFEST_NAME}.tmp", "lost+found",
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


_warned: set[str] = set()  # mount points that a warning named


def warn_of_limits(path: str, storage: Storage) -> None:
    """Warns, once a mount, if the file system is known not to keep its locks or syncs."""
    mount = storage.mount_of(path)
    if mount is None or mount.point in _warned:
        return
    for text in limits_of(mount).values():
        _warned.add(mount.point)
        warn("%s is on %s (%s): %s", path, mount.point, mount.kind, text)
