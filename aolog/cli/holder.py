"""Whether a path is a log, and who holds a lock there: asked so that nobody is disturbed.

The kernel lists the locks. Trying one would answer too, but a writer that opens in that moment
would be refused.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import NamedTuple

from aolog.log.directory import Log
from aolog.storage.storage import Storage

__all__ = ["Holder", "Holders", "require_log"]

_LOCKS = "/proc/locks"
_PROBE = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK  # a pipe hangs nobody


def require_log(log: str) -> str:
    """The path of the log's first slab. Raises NotALog, NewerFormat: what is unknown is not
    touched, though names alone would do."""
    with Log(log, Storage()) as listed:
        listed.require_slabs()
        listed.slab(len(listed.bases) - 1)
        return listed.slab_path(listed.bases[0])


class Holder(NamedTuple):
    """Whether somebody holds a lock, None if that cannot be told; and which process, if it has a
    number here."""

    held: bool | None
    pid: int | None


class Holders:
    """The flocks of the machine at one moment.

    probe: a file that nobody locks. It is locked, shared, for that moment: only where the kernel
    shows that lock under the file's own numbers can the absence of another be believed (overlay
    file systems and btrfs have other numbers there).
    """

    def __init__(self, probe: str) -> None:
        self._pids: dict[tuple[int, int], int] = {}
        self.known = False
        try:
            fd = os.open(probe, _PROBE)
        except OSError:
            return
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
            self._pids = _flocks(Path(_LOCKS).read_text(encoding="ascii"))
            self.known = self._pids.get(_numbers(probe)) == os.getpid()
        except (OSError, ValueError):
            pass
        finally:
            os.close(fd)

    def of(self, path: str) -> Holder:
        """Of the path's lock."""
        try:
            pid = self._pids.get(_numbers(path))
        except OSError:
            return Holder(None, None)
        if pid is not None:
            return Holder(True, pid if pid > 0 else None)
        return Holder(False if self.known else None, None)


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
