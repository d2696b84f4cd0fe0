"""Shows which process holds a log's or a cursor's lock, without taking the lock.

The kernel lists all locks in /proc/locks. Trying a lock would also answer, but a writer that opens the
log at that moment would be refused.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import NamedTuple

from aolog.log.directory import Log
from aolog.storage.storage import Storage

_LOCKS = "/proc/locks"
_PROBE = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK  # does not wait at a pipe


def require_log(log: str) -> str:
    """The path of the log's first slab. Raises NotALog, NewerFormat."""
    with Log(log, Storage()) as listed:
        listed.require_slabs()
        listed.slab(len(listed.bases) - 1)
        return listed.slab_path(listed.bases[0])


class Holder(NamedTuple):
    """held: None if unknown. pid: the process, if it is visible here."""

    held: bool | None
    pid: int | None


class Holders:
    """The flocks of this machine at one moment.

    probe: a file that no process locks. It gets a shared lock for a moment: only if the kernel lists
    that lock under the file's own numbers, a missing entry proves that there is no lock. (overlayfs
    and btrfs use other numbers.)
    """

    def __init__(self, probe: str) -> None:
        self._pids: dict[tuple[int, int], int] = {}
        self._known = False
        try:
            fd = os.open(probe, _PROBE)
        except OSError:
            return
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
            self._pids = _flocks(Path(_LOCKS).read_text(encoding="ascii"))
            self._known = self._pids.get(_numbers(probe)) == os.getpid()
        except (OSError, ValueError):
            pass
        finally:
            os.close(fd)

    def of(self, path: str) -> Holder:
        """The holder of the path's lock."""
        try:
            pid = self._pids.get(_numbers(path))
        except OSError:
            return Holder(None, None)
        if pid is not None:
            return Holder(True, pid if pid > 0 else None)
        return Holder(False if self._known else None, None)


def _numbers(path: str) -> tuple[int, int]:
    found = os.lstat(path)
    return found.st_dev, found.st_ino


def _flocks(text: str) -> dict[tuple[int, int], int]:
    """(device, inode) to process, from lines such as
    `1: FLOCK  ADVISORY  WRITE 4622 fe:00:10045240 0 EOF`."""
    found = {}
    for line in text.splitlines():
        fields = line.split()
        if len(fields) >= 6 and fields[1] == "FLOCK":
            major, minor, inode = fields[5].split(":")
            device = os.makedev(int(major, 16), int(minor, 16))
            found[device, int(inode)] = int(fields[4])
    return found
