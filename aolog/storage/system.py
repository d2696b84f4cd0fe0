"""The system calls that storage uses, and nothing else.

`System` has the calls of `os` and `fcntl` that `File` and `Storage` use, each with the name, the result
and the errors of its function there (`OSError` with its errno; Python repeats interrupted calls). It has
no policy: whole writes, error translation, temporary names and the order of syncs belong to storage, so
that they run unchanged on the simulation in `aolog.testing`, which replaces every call.
"""

from __future__ import annotations

import fcntl
import functools
import os
import stat
import struct
import sys
from contextlib import suppress

from aolog.format.native.speed import compiled

LOCK_EX, LOCK_NB = fcntl.LOCK_EX, fcntl.LOCK_NB


# FS_IOC_GETVERSION as most machines encode it: _IOR('v', 1, long), although it returns an int.
_GENERATION = 2 << 30 | struct.calcsize("l") << 16 | ord("v") << 8 | 1

# macOS: its fsync leaves the data in the device's cache, and it has no fdatasync.
_FULL_SYNC: int | None = getattr(fcntl, "F_FULLFSYNC", None)


def _full_sync(fd: int, /) -> None:
    """A file's or directory's bytes are on the device on return, not only in its cache. Fails on network
    file systems."""
    assert _FULL_SYNC is not None
    fcntl.fcntl(fd, _FULL_SYNC)


def python_leads_to(directory: int, name: str, inode: int, device: int, size: int, /) -> bool:
    """Whether the name in an open directory leads to this file, of this size or more; links are not
    followed. False also if that cannot be found out. The compiled half takes half the time, and what it
    does not ask for costs the next write of the file nothing: see _speed.c."""
    try:
        found = os.lstat(name, dir_fd=directory)
    except OSError:
        return False
    return found.st_ino == inode and found.st_dev == device and found.st_size >= size


class System:
    """The operating system's calls. The simulation derives from it and replaces each (a test holds this)."""

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
    link = staticmethod(functools.partial(os.link, follow_symlinks=False))
    unlink = staticmethod(os.unlink)
    mkdir = staticmethod(os.mkdir)
    rmdir = staticmethod(os.rmdir)
    lstat = staticmethod(os.lstat)
    leads_to = staticmethod(getattr(compiled, "leads_to", python_leads_to))
    fchmod = staticmethod(os.fchmod)
    euid = staticmethod(os.geteuid)

    def listdir(self, path: str | int, /) -> list[str]:
        return os.listdir(path)

    def realpath(self, path: str, /) -> str:
        return os.path.realpath(path)

    def adopt(self, fd: int, other: int, /) -> None:
        """Copies mode, times and, if permitted, the owner from the other file."""
        theirs, ours = os.fstat(other), os.fstat(fd)
        if (theirs.st_uid, theirs.st_gid) != (ours.st_uid, ours.st_gid):
            with suppress(PermissionError):  # only root may give a file away
                os.fchown(fd, theirs.st_uid, theirs.st_gid)
        os.fchmod(fd, stat.S_IMODE(theirs.st_mode))
        os.utime(fd, ns=(theirs.st_atime_ns, theirs.st_mtime_ns))

    def user_name(self, uid: int, /) -> str | None:
        """The user's name; None if there is none."""
        import pwd

        try:
            return pwd.getpwuid(uid).pw_name
        except KeyError:
            return None

    def free_bytes(self, path: str, /) -> int:
        """Free bytes, without the reserve for root."""
        found = os.statvfs(path)
        return found.f_bavail * found.f_frsize

    def mounts(self, path: str, /) -> tuple[int, str]:
        """(number of the path's mount, Linux's mountinfo). Raises OSError, KeyError or ValueError if the
        system does not report them."""
        fd = os.open(path, getattr(os, "O_PATH", os.O_RDONLY) | os.O_CLOEXEC)
        try:
            about = _text(f"/proc/self/fdinfo/{fd}")
        finally:
            os.close(fd)
        fields = dict(line.split(":", 1) for line in about.splitlines())
        return int(fields["mnt_id"]), _text("/proc/self/mountinfo")

    def generation(self, fd: int, /) -> int:
        """32 bits that differ between successive files with the same inode number; 0 if the file system
        does not report them. ext4, XFS, btrfs and f2fs do, among others."""
        if sys.platform != "linux":  # the number may be another request there
            return 0
        try:
            answer = fcntl.ioctl(fd, _GENERATION, bytes(8))
        except OSError:  # tmpfs, overlay
            return 0
        return int.from_bytes(answer[:4], sys.byteorder)

    def log_uuid(self, fd: int, /) -> bytes | None:
        """The UUID of the log in an open directory; None if only its slabs show it, as in a file system."""
        del fd
        return None

    def prefetch(self, path: str, begin: int, end: int, /) -> None:
        """The addresses [begin, end) of the log at the path will be scanned. Returns at once. Nothing in a file
        system, which reads ahead by itself."""
        del path, begin, end

    def boot_id(self) -> bytes:
        """16 bytes that differ after each boot: a boot loses the page cache."""
        return _boot_id()

    def random_bytes(self, size: int, /) -> bytes:
        """Unpredictable bytes."""
        return os.urandom(size)


@functools.cache
def _boot_id() -> bytes:
    try:
        return bytes.fromhex(_text("/proc/sys/kernel/random/boot_id").strip().replace("-", ""))
    except (OSError, ValueError):
        return os.urandom(16)  # no /proc: each process counts as another boot


def _text(path: str) -> str:
    with open(path, errors="surrogateescape") as file:  # noqa: PTH123 -- pathlib is not imported here
        return file.read()


REAL = System()
