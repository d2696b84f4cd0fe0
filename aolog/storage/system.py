"""The system calls that storage uses, and nothing else.

`System` lists the calls of `os` and `fcntl` that `File` and `Storage` use, with their meaning, results
and errors (`OSError` with its errno; Python repeats interrupted calls). It has no policy: whole writes,
error translation, temporary names and the order of syncs belong to storage, so that they run unchanged
on the simulation in `aolog.testing`.
"""

from __future__ import annotations

import fcntl
import functools
import os
import stat
import struct
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aolog.format.frame import Buffer

LOCK_EX, LOCK_NB, LOCK_UN = fcntl.LOCK_EX, fcntl.LOCK_NB, fcntl.LOCK_UN


# FS_IOC_GETVERSION as most machines encode it: _IOR('v', 1, long), although it returns an int.
_GENERATION = 2 << 30 | struct.calcsize("l") << 16 | ord("v") << 8 | 1


# macOS: its fsync leaves the data in the device's cache, and it has no fdatasync.
_FULL_SYNC: int | None = getattr(fcntl, "F_FULLFSYNC", None)


def _full_sync(fd: int, /) -> None:
    """A file's or directory's bytes are on the device on return, not only in its cache. Fails on network
    file systems."""
    assert _FULL_SYNC is not None
    fcntl.fcntl(fd, _FULL_SYNC)


class Status(Protocol):
    """The result of `fstat`, with the names of `os.stat_result`."""

    @property
    def st_mode(self) -> int: ...
    @property
    def st_ino(self) -> int: ...
    @property
    def st_size(self) -> int: ...
    @property
    def st_mtime_ns(self) -> int: ...
    @property
    def st_uid(self) -> int: ...
    @property
    def st_nlink(self) -> int: ...


class System(Protocol):
    """System calls, each as the function of the same name in `os` or `fcntl`."""

    def open(
        self, path: str, flags: int, mode: int = 0o777, /, *, dir_fd: int | None = None
    ) -> int: ...
    def close(self, fd: int, /) -> None: ...
    def pread(self, fd: int, size: int, offset: int, /) -> bytes: ...
    def pwritev(self, fd: int, parts: Sequence[Buffer], offset: int, /) -> int: ...
    def fdatasync(self, fd: int, /) -> None: ...
    def fsync(self, fd: int, /) -> None: ...
    def ftruncate(self, fd: int, size: int, /) -> None: ...
    def fstat(self, fd: int, /) -> Status: ...
    def flock(self, fd: int, operation: int, /) -> None: ...
    def listdir(self, path: str | int, /) -> list[str]: ...
    def replace(
        self,
        old: str,
        new: str,
        /,
        *,
        src_dir_fd: int | None = None,
        dst_dir_fd: int | None = None,
    ) -> None: ...
    def link(
        self, old: str, new: str, /, *, src_dir_fd: int | None = None, dst_dir_fd: int | None = None
    ) -> None: ...
    def unlink(self, path: str, /, *, dir_fd: int | None = None) -> None: ...
    def mkdir(self, path: str, mode: int = 0o777, /, *, dir_fd: int | None = None) -> None: ...
    def rmdir(self, path: str, /, *, dir_fd: int | None = None) -> None: ...
    def lexists(self, path: str, /) -> bool: ...
    def isdir(self, path: str, /) -> bool: ...
    def lstat(self, path: str, /, *, dir_fd: int | None = None) -> Status: ...
    def realpath(self, path: str, /) -> str: ...
    def fchmod(self, fd: int, mode: int, /) -> None: ...

    def adopt(self, fd: int, other: int, /) -> None:
        """Copies mode, times and, if permitted, the owner from the other file."""

    def euid(self) -> int:
        """The user whose permissions the process has."""

    def user_name(self, uid: int, /) -> str | None:
        """The user's name; None if there is none."""

    def free_bytes(self, path: str, /) -> int:
        """Free bytes, without the reserve for root."""

    def mounts(self, path: str, /) -> tuple[int, str]:
        """(number of the path's mount, Linux's mountinfo). Raises OSError, KeyError or ValueError if the
        system does not report them."""

    def generation(self, fd: int, /) -> int:
        """32 bits that differ between successive files with the same inode number; 0 if the file system
        does not report them."""

    def boot_id(self) -> bytes:
        """16 bytes that differ after each boot: a boot loses the page cache."""

    def random_bytes(self, size: int, /) -> bytes:
        """Unpredictable bytes."""


class RealSystem:
    """The operating system."""

    open = staticmethod(os.open)
    close = staticmethod(os.close)
    pread = staticmethod(os.pread)
    pwritev = staticmethod(os.pwritev)
    fdatasync = staticmethod(os.fdatasync if _FULL_SYNC is None else _full_sync)
    fsync = staticmethod(os.fsync if _FULL_SYNC is None else _full_sync)
    ftruncate = staticmethod(os.ftruncate)
    fstat = staticmethod(os.fstat)
    flock = staticmethod(fcntl.flock)
    replace = staticmethod(os.replace)
    unlink = staticmethod(os.unlink)
    mkdir = staticmethod(os.mkdir)
    rmdir = staticmethod(os.rmdir)
    lexists = staticmethod(os.path.lexists)
    isdir = staticmethod(os.path.isdir)
    lstat = staticmethod(os.lstat)
    euid = staticmethod(os.geteuid)
    fchmod = staticmethod(os.fchmod)

    def link(
        self, old: str, new: str, *, src_dir_fd: int | None = None, dst_dir_fd: int | None = None
    ) -> None:
        os.link(old, new, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd, follow_symlinks=False)

    def listdir(self, path: str | int) -> list[str]:
        return os.listdir(path)

    def user_name(self, uid: int) -> str | None:
        import pwd

        try:
            return pwd.getpwuid(uid).pw_name
        except KeyError:
            return None

    def realpath(self, path: str) -> str:
        return os.path.realpath(path)

    def adopt(self, fd: int, other: int) -> None:
        theirs, ours = os.fstat(other), os.fstat(fd)
        if (theirs.st_uid, theirs.st_gid) != (ours.st_uid, ours.st_gid):
            with suppress(PermissionError):  # only root may give a file away
                os.fchown(fd, theirs.st_uid, theirs.st_gid)
        os.fchmod(fd, stat.S_IMODE(theirs.st_mode))
        os.utime(fd, ns=(theirs.st_atime_ns, theirs.st_mtime_ns))

    def free_bytes(self, path: str) -> int:
        found = os.statvfs(path)
        return found.f_bavail * found.f_frsize

    def mounts(self, path: str) -> tuple[int, str]:
        fd = os.open(path, getattr(os, "O_PATH", os.O_RDONLY) | os.O_CLOEXEC)
        try:
            about = _text(f"/proc/self/fdinfo/{fd}")
        finally:
            os.close(fd)
        fields = dict(line.split(":", 1) for line in about.splitlines())
        return int(fields["mnt_id"]), _text("/proc/self/mountinfo")

    def generation(self, fd: int) -> int:
        """Reported by ext4, XFS, btrfs and f2fs, among others."""
        if sys.platform != "linux":  # the number may be another request there
            return 0
        try:
            answer = fcntl.ioctl(fd, _GENERATION, bytes(8))
        except OSError:  # tmpfs, overlay
            return 0
        return int.from_bytes(answer[:4], sys.byteorder)

    def boot_id(self) -> bytes:
        return _boot_id()

    def random_bytes(self, size: int) -> bytes:
        return os.urandom(size)


@functools.cache
def _boot_id() -> bytes:
    try:
        return bytes.fromhex(_text("/proc/sys/kernel/random/boot_id").strip().replace("-", ""))
    except (OSError, ValueError):
        return os.urandom(16)  # not Linux: each process counts as another boot


def _text(path: str) -> str:
    with open(path, errors="surrogateescape") as file:  # noqa: PTH123 -- pathlib is not imported here
        return file.read()


REAL: System = RealSystem()
