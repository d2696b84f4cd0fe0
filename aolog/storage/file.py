"""An open file: read, write, sync, lock, and whether its name still leads to it. And the one place that
turns OSError into our errors.

No space becomes `StorageFull`, no permission becomes `PermissionDenied`, anything else becomes
`StorageFailed`; a failed sync becomes `SyncFailed`. Short writes and interrupted calls are
completed here. Each docstring says what is durable on return. The calls themselves go to a
`System`: the operating system, or a simulation (aolog.testing).
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, Self

from aolog.errors import (
    PermissionDenied,
    StorageError,
    StorageFailed,
    StorageFull,
    SyncFailed,
    not_copied,
)
from aolog.storage.system import LOCK_EX, LOCK_NB, REAL, System

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from aolog.format.frame import Buffer

_NO_ROOM = {errno.ENOSPC, errno.EDQUOT}
_NO_PERMISSION = {errno.EACCES, errno.EPERM, errno.EROFS}
PERMISSIONS = 0o777

_ONCE_MAX = 1 << 30  # bytes a call: macOS refuses 2^31 and more
_PARTS_ONCE_MAX = 512  # buffers a call; IOV_MAX is 1024
_SMALL_BYTES = 4096  # copying a buffer of up to this size takes less time than a call
_PIECE_BYTES = 1 << 20  # bytes a step when a file is copied or searched
_ZEROS = bytes(_PIECE_BYTES)


@contextmanager
def as_storage_error(
    path: str, what: str, *, but: tuple[type[OSError], ...] = (), syncs: bool = False
) -> Iterator[None]:
    """Turns an OSError in its block into our error, with the path and the failed operation.

    but: errors that pass unchanged. syncs: the operation is a sync. Only an error with an errno is the
    system's: another one passes, such as the TimeoutError of a signal handler.
    """
    try:
        yield
    except OSError as error:
        if isinstance(error, but):
            raise
        raise _ours(error, path, what, syncs=syncs) from error


def refuse_others(error: OSError) -> None:
    """Raises an OSError again that is not the system's: it has no errno."""
    if error.errno is None:
        raise error


def _ours(error: OSError, path: str, what: str, *, syncs: bool = False) -> StorageError:
    """As as_storage_error; `try` and this take less time at each read, write and stat."""
    refuse_others(error)
    assert error.errno is not None
    kind: type[StorageError] = StorageFailed
    hint = "see the system's log; intact records stay readable"
    if syncs:  # for any reason, a full disk too: what was not synced is unreliable now
        kind, hint = SyncFailed, "check the device, then reopen"
    elif error.errno in _NO_ROOM:
        kind, hint = StorageFull, "free some space and try again"
    elif error.errno in _NO_PERMISSION:
        kind = PermissionDenied
        hint = "check the owner and mode of the file and its directory"
    return kind(f"{what}: {os.strerror(error.errno)}", hint=hint, path=path, errno=error.errno)


class Stat(NamedTuple):
    """A file's size, times and inode. Times may stand still: a file system may keep whole seconds only,
    or no times after 2038."""

    size: int
    mtime_ns: int  # of the last change of the content; tools may set it
    changed_ns: int  # of the last change of the content or of the inode; no tool sets it
    inode: int


class File:
    """An open file. The caller passes each position, and the file keeps none: any thread may read
    while one writes. Close it with `close` or `with`."""

    fd = -1  # until it is set: an interrupt may come before

    def __init__(self, path: str, fd: int, system: System = REAL) -> None:
        self.path = path
        self._system = system
        self.fd = fd

    def pread(self, size: int, offset: int) -> bytes:
        """Up to `size` bytes at `offset`; fewer only at the end of the file."""
        try:
            data = self._system.pread(self.fd, min(size, _ONCE_MAX), offset)
            if len(data) == size or not data:
                return data
            pieces = [data]
            while (got := sum(map(len, pieces))) < size:
                piece = self._system.pread(self.fd, min(size - got, _ONCE_MAX), offset + got)
                if not piece:
                    break
                pieces.append(piece)
        except OSError as error:
            raise _ours(error, self.path, "read") from error
        return b"".join(pieces) if len(pieces) > 1 else data

    def pieces(self, begin: int, end: int) -> Iterator[tuple[int, bytes]]:
        """The bytes in [begin, end), a MiB at a time, each piece with its offset."""
        for at in range(begin, end, _PIECE_BYTES):
            yield at, self.pread(min(_PIECE_BYTES, end - at), at)

    def is_blank(self, begin: int, end: int) -> bool:
        """Whether [begin, end) holds only zeros."""
        return all(piece.count(0) == len(piece) for _, piece in self.pieces(begin, end))

    def pwrite_all(self, parts: Sequence[Buffer], offset: int) -> None:
        """Writes all parts one after the other at `offset`; they are in the page cache on return.

        After an error any of the bytes may be written: repeat the same call.
        """
        left = sum(map(len, parts))
        if len(parts) > _PARTS_ONCE_MAX and left <= len(parts) * _SMALL_BYTES:
            parts = [b"".join(parts)]  # many small frames: one copy costs less than many calls
        try:
            while left:
                once = parts if len(parts) <= _PARTS_ONCE_MAX else parts[:_PARTS_ONCE_MAX]
                if left > _ONCE_MAX and sum(map(len, once)) > _ONCE_MAX:
                    once = [memoryview(once[0])[:_ONCE_MAX]]
                written = self._system.pwritev(self.fd, once, offset)
                left -= written
                if left:
                    parts, offset = _after(parts, written), offset + written
        except OSError as error:
            raise _ours(error, self.path, "write") from error

    @property
    def system(self) -> System:
        """The system on which it is open."""
        return self._system

    @property
    def is_plain(self) -> bool:
        """Whether its calls are the system's own: nothing simulates or counts them."""
        return type(self) is File and self._system is REAL

    def fill_zeros(self, size: int) -> None:
        """Writes zeros up to `size`, so that a later sync has no extents to convert."""
        at = self.stat().size
        while at < size:
            length = min(len(_ZEROS), size - at)
            self.pwrite_all([_ZEROS[:length]], at)
            at += length

    def datasync(self) -> None:
        """fdatasync: content and length are on the device on return. After an error nothing written
        since the last success is reliable: do not repeat the call. Raises SyncFailed."""
        try:
            self._system.fdatasync(self.fd)
        except OSError as error:
            raise self.sync_failed(error) from error

    def sync_failed(self, error: OSError) -> StorageError:
        """The error of a `datasync` that met this one."""
        return _ours(error, self.path, "fdatasync", syncs=True)

    def truncate(self, size: int) -> None:
        """The file ends at `size`; in the page cache on return."""
        with as_storage_error(self.path, "truncate"):
            self._system.ftruncate(self.fd, size)

    def stat(self) -> Stat:
        """Size, times and inode."""
        try:
            found = self._system.fstat(self.fd)
        except OSError as error:
            raise _ours(error, self.path, "stat") from error
        return Stat(found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino)

    def end(self, limit: int | None) -> int:
        """The file's size, or `limit` if that is less."""
        size = self.stat().size
        return size if limit is None else min(size, limit)

    def mode(self) -> int:
        """Its permissions."""
        with as_storage_error(self.path, "stat"):
            return stat.S_IMODE(self._system.fstat(self.fd).st_mode)

    def set_mode(self, mode: int) -> None:
        """Sets its permissions, if the process owns it and the file system has permissions. A
        directory keeps its setgid bit, which gives new entries the directory's group."""
        found = self.mode()
        if not (found ^ mode) & PERMISSIONS:
            return
        with as_storage_error(self.path, "change mode"):
            try:
                self._system.fchmod(self.fd, mode & PERMISSIONS | found & stat.S_ISGID)
            except OSError as error:
                if error.errno not in {errno.EPERM, errno.EROFS, errno.ENOTSUP, errno.ENOSYS}:
                    raise

    def identity(self) -> int:
        """A number that identifies the file as long as it exists: its inode, XOR the inode's
        generation in the upper half. A new file often gets the inode of a removed one."""
        return self.stat().inode ^ self._system.generation(self.fd) << 32

    def try_lock(self) -> bool:
        """Takes an exclusive flock without waiting. False: another file handle holds it. `close`
        releases it."""
        with as_storage_error(self.path, "flock"):
            try:
                self._system.flock(self.fd, LOCK_EX | LOCK_NB)
            except BlockingIOError:
                return False
        return True

    def lock(self) -> None:
        """Waits for an exclusive flock. `close` releases it."""
        with as_storage_error(self.path, "flock"):
            self._system.flock(self.fd, LOCK_EX)

    def close(self) -> None:
        """Idempotent: after an error too, nothing is left to close. Does not unlock explicitly: a close in
        a forked child would drop the parent's lock too. Raises StorageError."""
        fd, self.fd = self.fd, -1
        if fd >= 0:
            try:
                self._system.close(fd)
            except OSError as error:
                raise _ours(error, self.path, "close") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    __reduce__ = not_copied("pass its path, and open it again")

    def __del__(self) -> None:
        self.close()  # a reader that is dropped without `close` leaks no descriptor and no lock

    @contextmanager
    def closed_on_error(self) -> Iterator[Self]:
        """Closes the file if the block raises."""
        try:
            yield self
        except BaseException:
            self.close()
            raise

    def adopt(self, other: File) -> None:
        """Copies owner, mode and time of change from another file: the same users can use it."""
        with as_storage_error(self.path, "change owner, mode and time"):
            self._system.adopt(self.fd, other.fd)


class Displaced(NamedTuple):
    """What another program did to an open file."""

    text: str  # the end of a sentence that begins with the file's name
    name_is_free: bool = False  # only the file was removed, so another one may take its place


class Presence:
    """Whether an open file is still the one that its name leads to, in an open directory. is_in_place: called
    with a size, whether it is, and has this size or more; for what is wrong see `check`.

    Other programs remove, replace and cut files that are open here: `rm`, logrotate's copytruncate, a
    restore. Writes and syncs of such a file succeed nevertheless, so its writer has to look. An inode's
    number is not given away while the file is open, so device and inode identify it. The path of the
    directory does not matter: a log that is moved keeps its files.
    """

    def __init__(self, file: File, directory: File, name: str, system: System) -> None:
        self._file = file
        self._directory = directory
        self._name = name
        self._system = system
        with as_storage_error(file.path, "stat"):
            found = system.fstat(file.fd)
        self._identity = found.st_ino, found.st_dev
        self.where = directory.fd, name, *self._identity
        self.is_in_place: Callable[[int], bool] = partial(system.leads_to, *self.where)

    def check(self, size: int = 0) -> Displaced | None:
        """What happened to the file; None if it is in its place and has at least this size. Raises
        StorageError if that cannot be found out."""
        if self.is_in_place(size):
            return None
        with as_storage_error(self._file.path, "stat"):
            try:
                found = self._system.lstat(self._name, dir_fd=self._directory.fd)
            except FileNotFoundError:
                if self._system.fstat(self._directory.fd).st_nlink:
                    return Displaced("was removed", name_is_free=True)
                return Displaced("was removed with its directory")
        if (found.st_ino, found.st_dev) != self._identity:
            return Displaced("was replaced by another file")
        if found.st_size < size:
            return Displaced(f"was cut to {found.st_size} bytes")
        return None


def _after(parts: Sequence[Buffer], written: int) -> list[memoryview]:
    """The parts without their first `written` bytes."""
    views = []
    for part in parts:
        if written < len(part):
            views.append(memoryview(part)[written:])
        written = max(0, written - len(part))
    return views
