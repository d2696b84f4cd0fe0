"""What the file clients do with files, where it takes more than one call.

A file appears under its final name whole and durable, or not at all. Nothing is overwritten. Links are not
followed.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
import signal
import stat
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from aolog.storage.storage import Storage

_SET_LEASE, _SET_SIGNAL, _READ, _UNLOCK = 1024, 10, 0, 2  # F_SETLEASE, F_SETSIG, F_RDLCK, F_UNLCK
_TRIES = 1_000


class Seen(NamedTuple):
    """A file's state; two that are equal mean that nobody wrote in between."""

    inode: int
    bytes: int
    modified_ns: int


def list_names(directory: Path) -> list[str]:
    """Names of a directory's entries, the oldest first; hidden ones are left out."""
    found = []
    with os.scandir(directory) as entries:
        for entry in entries:
            if not entry.name.startswith("."):
                with contextlib.suppress(FileNotFoundError):  # somebody removed it
                    found.append((entry.stat(follow_symlinks=False).st_mtime_ns, entry.name))
    return [name for _, name in sorted(found)]


def see(path: Path) -> Seen | None:
    """None if it is not a regular file. Raises OSError."""
    found = path.lstat()
    if not stat.S_ISREG(found.st_mode):
        return None
    return Seen(found.st_ino, found.st_size, found.st_mtime_ns)


def is_open_for_writing(path: Path) -> bool:
    """Whether a process has the file open for writing, by Linux's leases. False also where the system
    does not tell: for another user's file, and on some file systems. Raises OSError."""
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        # A writer that comes while we hold the lease breaks it by a signal; SIGIO would end us.
        fcntl.fcntl(fd, _SET_SIGNAL, signal.SIGURG)
        fcntl.fcntl(fd, _SET_LEASE, _READ)
    except OSError as error:
        return error.errno == errno.EAGAIN
    else:
        fcntl.fcntl(fd, _SET_LEASE, _UNLOCK)
        return False
    finally:
        os.close(fd)


def read(path: Path, bytes_max: int) -> bytes:
    """At most so many bytes of a regular file. Raises OSError."""
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    with os.fdopen(fd, "rb") as file:
        return file.read(bytes_max)


def free_name(directory: Path, name_of: Callable[[int], str]) -> str:
    """The first name of name_of(0), name_of(1), … that is free."""
    for i in range(_TRIES):
        if not os.path.lexists(directory / name_of(i)):
            return name_of(i)
    raise FileExistsError(errno.EEXIST, "too many files of this name", str(directory / name_of(0)))


def move(path: Path, directory: Path, name: str) -> Path:
    """Moves a file, durably, also to another file system. Where the name is taken, it gets a
    number. Its new path. Raises OSError."""
    free = free_name(directory, lambda i: name if i == 0 else f"{name}.{i}")
    target = directory / free
    try:
        path.rename(target)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        part = directory / f".{free}.part"
        shutil.copy2(path, part, follow_symlinks=False)
        with part.open("rb") as file:
            os.fsync(file.fileno())
        part.rename(target)
        path.unlink()
    for changed in (directory, path.parent):
        Storage().sync_directory(str(changed))
    return target


def write(path: Path, data: bytes) -> None:
    """Writes a new file, or replaces one; durable on return, its name when the directory is synced."""
    part = path.with_name(f".{path.name}.new")
    with part.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    part.rename(path)


def append(path: Path, data: bytes) -> None:
    """Appends to a file, durably. Makes it where there is none."""
    with path.open("ab") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def size_of(path: Path) -> int:
    """0 if there is no file."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def truncate(path: Path, size: int) -> None:
    """Cuts a file, durably."""
    with path.open("r+b") as file:
        file.truncate(size)
        os.fsync(file.fileno())
