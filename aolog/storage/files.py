"""What is done with files: everything else takes a `Storage` and asks it.

Errors of the operating system become this project's, with the path in them: no room is
`StorageFull`, no permission `PermissionDenied`, anything else `StorageFailed`. Short writes and
interrupted calls are finished here. Durability on return is in each docstring. The calls
themselves are a `System`'s: the operating system's, or a simulation's (aolog.testing).

Directories are held open: flock is taken on a directory's own descriptor, so that there is
nothing to delete, and so that closing another file of the process does not drop it (as it would
a POSIX record lock).

Nothing inside a log is opened through a link (inside.py), and root changes no log of another user's:
what root makes there its owner could not open, and what the owner puts there root should not trust.
A file in a log has its directory's bits for reading and writing, a directory in it has its mode.
"""

from __future__ import annotations

import errno
import os
import shlex
import stat
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, NamedTuple, NoReturn

from aolog.errors import (
    NotALog,
    PermissionDenied,
    StorageError,
    StorageFailed,
    StorageFull,
    SyncFailed,
    UsageError,
)
from aolog.storage.inside import Inside, beside
from aolog.storage.mounts import Mount, parse_mount
from aolog.storage.system import LOCK_EX, LOCK_NB, REAL, System

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from aolog.format.frame import Buffer

__all__ = ["Directory", "Entry", "File", "Inside", "Stat", "Storage", "absolute", "parent_of"]

_NO_ROOM = {errno.ENOSPC, errno.EDQUOT}
_NO_PERMISSION = {errno.EACCES, errno.EPERM, errno.EROFS}
_ROOT = 0
_PERMISSIONS = 0o777
_READ_WRITE = 0o666
DIRECTORY_MODE = 0o700  # of a log that is made, unless told otherwise
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC

READ_ONCE_MAX = 1 << 30  # bytes a call: Linux reads and writes no more than 2^31-4096 at once
_PARTS_ONCE_MAX = 512  # buffers a call; IOV_MAX is 1024
_SMALL_BYTES = 4096  # a buffer up to this is copied in less time than a call takes
_PIECE_BYTES = 1 << 20  # of a file that is copied or looked through
_ZEROS = bytes(_PIECE_BYTES)


def parent_of(path: str) -> str:
    """The directory of a path that has no slash at its end. (Path takes 20 times as long.)"""
    head, slash, _ = path.rpartition("/")
    return head or slash or "."


def translate(error: OSError, path: str, what: str) -> StorageError:
    """Our error for the operating system's."""
    kind: type[StorageError] = StorageFailed
    hint = "see the system's log; intact records stay readable"
    if error.errno in _NO_ROOM:
        kind, hint = StorageFull, "free some space and try again"
    elif error.errno in _NO_PERMISSION:
        kind, hint = PermissionDenied, "check the owner and mode of the file and its directory"
    reason = f"{what}: {os.strerror(error.errno)}" if error.errno else f"{what}: {error}"
    return kind(reason, hint=hint, path=path, errno=error.errno)


def _sync_failed(error: OSError, path: str, what: str) -> SyncFailed:
    """Whatever the reason, no room included: what was to be synced can't be believed any more."""
    reason = f"{what}: {os.strerror(error.errno or 0)}"
    return SyncFailed(reason, hint="check the device, then reopen", path=path, errno=error.errno)


def absolute(path: str | os.PathLike[str]) -> str:
    """The path from the root on, whatever directory the process changes to. `..` stays: what it
    means is up to links. (As pathlib's, which would take a sixth of importing all this.) Raises
    UsageError for a relative path where the working directory was removed, and for a URL, of which
    pathlib leaves one slash: it would name a directory `s3:`."""
    if isinstance(path, Inside) and isinstance(path.base, str):
        return Inside(absolute(path.base), *path.names, mode=path.mode)
    text = os.fspath(path)
    if not text.startswith("/"):
        scheme, colon, _ = text.partition(":/")
        if colon and len(scheme) > 1 and scheme.isascii() and scheme.isalnum():
            raise UsageError(
                f"{path}: a URL is no directory",
                hint=f"name a directory of a local file system; write ./{text} if this is one",
            )
        try:
            text = f"{os.getcwd()}/{text}"  # noqa: PTH109 -- light, as above
        except FileNotFoundError:
            raise UsageError(
                f"{text}: the working directory was removed", hint="give an absolute path"
            ) from None
    return "/" + "/".join(name for name in text.split("/") if name not in {"", "."})


def _inside(path: str) -> Inside:
    return path if isinstance(path, Inside) else beside(path)


class Entry(NamedTuple):
    """What stands under a name. kind: "file", "directory", "link" or "other"."""

    kind: str
    size: int


def _behind(parts: Sequence[Buffer], written: int) -> list[memoryview]:
    """What is left of the parts."""
    views = []
    for part in parts:
        if written < len(part):
            views.append(memoryview(part)[written:])
        written = max(0, written - len(part))
    return views


def _at_once(parts: Sequence[Buffer]) -> list[memoryview]:
    """As many of the parts as one call takes."""
    views = _behind(parts, 0)[:_PARTS_ONCE_MAX]
    return views if sum(map(len, views)) <= READ_ONCE_MAX else [views[0][:READ_ONCE_MAX]]


class Stat(NamedTuple):
    """What tells two states of a file apart."""

    size: int
    mtime_ns: int
    inode: int


class File:
    """An open file. Positions are passed, never kept: any thread may read while one writes."""

    def __init__(self, path: str, fd: int, system: System = REAL) -> None:
        self.path = path
        self.fd = fd
        self._system = system

    def _fail(self, error: OSError, what: str) -> NoReturn:
        raise translate(error, self.path, what) from error

    def pread(self, size: int, offset: int) -> bytes:
        """Up to `size` bytes at `offset`; fewer only at the file's end."""
        try:
            data = self._system.pread(self.fd, min(size, READ_ONCE_MAX), offset)
            if len(data) == size or not data:
                return data
            pieces = [data]
            while (got := sum(map(len, pieces))) < size:
                piece = self._system.pread(self.fd, min(size - got, READ_ONCE_MAX), offset + got)
                if not piece:
                    break
                pieces.append(piece)
        except OSError as error:
            self._fail(error, "read")
        return b"".join(pieces) if len(pieces) > 1 else data

    def pieces(self, begin: int, end: int) -> Iterator[tuple[int, bytes]]:
        """What stands in [begin, end), a MiB at a time, each with its offset."""
        for at in range(begin, end, _PIECE_BYTES):
            yield at, self.pread(min(_PIECE_BYTES, end - at), at)

    def is_blank(self, begin: int, end: int) -> bool:
        """Whether only zeros stand in [begin, end)."""
        return all(piece.count(0) == len(piece) for _, piece in self.pieces(begin, end))

    def pwrite_all(self, parts: Sequence[Buffer], offset: int) -> None:
        """All of the parts, one after the other, at `offset`; in the page cache on return.

        After an error any of the bytes may be there: write the same again at the same offset.
        """
        left = sum(map(len, parts))
        if len(parts) > _PARTS_ONCE_MAX and left <= len(parts) * _SMALL_BYTES:
            parts = [b"".join(parts)]  # many small frames: a copy is cheaper than calls
        try:
            while left:
                whole = len(parts) <= _PARTS_ONCE_MAX and left <= READ_ONCE_MAX
                once = parts if whole else _at_once(parts)
                written = self._system.pwritev(self.fd, once, offset)
                left -= written
                if left:
                    parts, offset = _behind(parts, written), offset + written
        except OSError as error:
            self._fail(error, "write")

    def fill_zeros(self, size: int) -> None:
        """Zeros up to `size`, really written, so that a later sync has no extents to convert."""
        at = self.stat().size
        while at < size:
            length = min(len(_ZEROS), size - at)
            self.pwrite_all([_ZEROS[:length]], at)
            at += length

    def datasync(self) -> None:
        """fdatasync: contents and length are on the device on return. On an error nothing that
        was written since the last success can be believed: do not call it again and go on.
        Raises SyncFailed."""
        try:
            self._system.fdatasync(self.fd)
        except OSError as error:
            raise _sync_failed(error, self.path, "fdatasync") from error

    def truncate(self, size: int) -> None:
        """The file ends at `size`; in the page cache on return."""
        try:
            self._system.ftruncate(self.fd, size)
        except OSError as error:
            self._fail(error, "truncate")

    def stat(self) -> Stat:
        """Size, time of the last change and inode."""
        try:
            found = self._system.fstat(self.fd)
        except OSError as error:
            self._fail(error, "stat")
        return Stat(found.st_size, found.st_mtime_ns, found.st_ino)

    def mode(self) -> int:
        """Its permissions."""
        try:
            return stat.S_IMODE(self._system.fstat(self.fd).st_mode)
        except OSError as error:
            self._fail(error, "stat")

    def set_mode(self, mode: int) -> None:
        """Its permissions, if it is ours and the file system has any. A directory keeps what makes
        its entries belong to its group."""
        found = self.mode()
        if (found ^ mode) & _PERMISSIONS:
            try:
                self._system.fchmod(self.fd, mode & _PERMISSIONS | found & stat.S_ISGID)
            except OSError as error:
                if error.errno not in {errno.EPERM, errno.EROFS, errno.ENOTSUP, errno.ENOSYS}:
                    self._fail(error, "change mode")

    def identity(self) -> int:
        """Of the file, as long as it is there: its inode, and in the upper half by exclusive or the
        inode's generation. A file that is removed and put back often gets the same inode."""
        return self.stat().inode ^ self._system.generation(self.fd) << 32

    def try_lock(self) -> bool:
        """Takes an exclusive flock without waiting; whether it was free. Held until close."""
        try:
            self._system.flock(self.fd, LOCK_EX | LOCK_NB)
        except BlockingIOError:
            return False
        except OSError as error:
            self._fail(error, "flock")
        return True

    def lock(self) -> None:
        """Waits for an exclusive flock. Held until close."""
        try:
            self._system.flock(self.fd, LOCK_EX)
        except OSError as error:
            self._fail(error, "flock")

    def close(self) -> None:
        """Idempotent. Never unlocks explicitly: a forked child's close leaves the parent's."""
        fd, self.fd = self.fd, -1
        if fd >= 0:
            self._system.close(fd)

    def __del__(self) -> None:
        self.close()  # whoever drops a reader without closing it leaks no descriptor and no lock

    def adopt(self, other: File) -> None:
        """Owner, mode and time of change become the other's: who could use that can use this."""
        try:
            self._system.adopt(self.fd, other.fd)
        except OSError as error:
            self._fail(error, "change owner, mode and time")


class Directory(File):
    """An open directory: the unit that is locked, and whose entries need a sync of their own."""

    def __truediv__(self, name: str) -> Inside:
        """What is in it under a name."""
        return Inside(self, name)

    def sync(self) -> None:
        """fsync: new, renamed and removed entries are on the device on return."""
        try:
            self._system.fsync(self.fd)
        except OSError as error:
            raise _sync_failed(error, self.path, "fsync of the directory") from error


class Storage:
    """Files and directories of a system, the operating system's unless told otherwise."""

    system: System = REAL

    def __init__(self, system: System = REAL) -> None:
        self.system = system

    # --- directories, whose paths are the user's ------------------------------------------------

    def list_names(self, path: str | Directory) -> list[str]:
        """Names in a directory, unsorted. Raises NotALog if it is none."""
        try:
            if isinstance(path, Directory):
                return self._names(path)
            if not isinstance(path, Inside):
                return self.system.listdir(path)
        except (FileNotFoundError, NotADirectoryError) as error:
            raise self._no_directory(error, path) from error
        except OSError as error:
            raise translate(error, str(path), "list") from error
        directory = self.open_directory(path)
        try:
            return self.list_names(directory)
        finally:
            directory.close()

    def _names(self, directory: Directory) -> list[str]:
        found = self.system.listdir(directory.fd)
        if not found and not self.system.fstat(directory.fd).st_nlink:
            raise FileNotFoundError  # removed since it was opened
        return found

    def real_path(self, path: str) -> str:
        """Where an absolute path leads, without symbolic links."""
        return self.system.realpath(path)

    def open_directory(self, path: str | Directory) -> Directory:
        """One that is open is opened a second time, wherever its path leads by now. Raises NotALog
        if there is none."""
        where = path.path if isinstance(path, Directory) else path
        try:
            if isinstance(path, Directory):
                return self._directory(where, self.system.open(".", _DIRECTORY, dir_fd=path.fd))
            if isinstance(path, Inside):
                with self._entered(path) as (above, name):
                    return self._open_below(above, name)
            return self._directory(where, self.system.open(path, _DIRECTORY))
        except (FileNotFoundError, NotADirectoryError) as error:
            raise self._no_directory(error, where) from error
        except OSError as error:
            raise translate(error, where, "open") from error

    def _directory(self, path: str, fd: int) -> Directory:
        return Directory(path, fd, self.system)

    def make_directory(self, path: str, mode: int | None = None) -> None:
        """Creates the directory if it is not there, and its parents if its path is the user's;
        durable on return. mode: of what is created, whatever the umask; unless given, of the
        directory that it is in if that is a log's, else DIRECTORY_MODE."""
        if isinstance(path, Inside):
            self._make(path, mode)
            return
        missing: list[str] = []
        at = absolute(path)
        while not self.system.lexists(at):
            missing.append(at)
            at = parent_of(at)
        if missing and not self.system.isdir(at):
            raise self._no_directory(NotADirectoryError(), at)
        if (parent := parent_of(at)) != at:
            self._sync_what_is_there(parent)
        for child in reversed(missing):
            self._make(beside(child), mode)

    def _make(self, path: Inside, mode: int | None) -> None:
        try:
            with self._entered(path, change=True) as (above, name):
                if mode is None:
                    mode = above.mode() if path.in_log else DIRECTORY_MODE
                try:
                    self.system.mkdir(name, mode & _PERMISSIONS, dir_fd=above.fd)
                except FileExistsError:
                    self._open_below(above, name).close()
                    self._sync_what_is_there(above)
                else:
                    made = self._open_below(above, name)
                    try:
                        made.set_mode(mode)
                    finally:
                        made.close()
                    if path.in_log and isinstance(path.base, str):  # the log's own entry
                        self._sync_what_is_there(parent_of(absolute(path.base)))
                    above.sync()
        except NotADirectoryError as error:
            if not path.in_log:
                raise self._no_directory(error, path) from error
            raise StorageFailed(
                "is no directory", hint="take it out of the log", path=path
            ) from None
        except OSError as error:
            raise translate(error, path, "create directory") from error

    def _sync_what_is_there(self, path: str | Directory) -> None:
        """Whoever created an entry may have been killed before it was durable. Not we did where we
        may not read, or where nothing is ever created: a read-only image has no fsync (EINVAL)."""
        try:
            self.sync_directory(path)
        except PermissionDenied:
            return
        except SyncFailed as error:
            if error.details.get("errno") != errno.EINVAL:
                raise

    def sync_directory(self, path: str | Directory) -> None:
        """The directory's entries are on the device on return."""
        if isinstance(path, Directory):
            path.sync()
            return
        directory = self.open_directory(path)
        try:
            directory.sync()
        finally:
            directory.close()

    # --- what is inside ---------------------------------------------------------------------------

    @contextmanager
    def _entered(self, path: str, *, change: bool = False) -> Iterator[tuple[Directory, str]]:
        """The directory that the last name of a path is in, open, and that name. change: something
        will be made, changed or removed there. Raises OSError, and StorageError for a link and for
        another user's log."""
        at = _inside(path)
        opened: Directory | None = None
        if isinstance(at.base, str):
            opened = self._directory(at.base, self.system.open(at.base, _DIRECTORY))
        here = opened or at.base
        assert isinstance(here, Directory)
        try:
            for name in at.names[:-1]:
                below = self._open_below(here, name)
                if opened is not None:
                    opened.close()
                here = opened = below
            if change and at.in_log:
                self.refuse_root(here)
            yield here, at.names[-1]
        finally:
            if opened is not None:
                opened.close()

    def _open_below(self, above: Directory, name: str) -> Directory:
        """Raises OSError, and StorageFailed for a link."""
        where = f"{above.path}/{name}"
        return self._directory(where, self._open_at(above, name, _DIRECTORY, where))

    def _open_at(self, above: Directory, name: str, flags: int, path: str, mode: int = 0) -> int:
        """Through no link. path: for words. Raises OSError, and StorageFailed for a link."""
        try:
            return self.system.open(name, flags | os.O_NOFOLLOW, mode, dir_fd=above.fd)
        except OSError as error:
            if error.errno not in {errno.ELOOP, errno.ENOTDIR} or not stat.S_ISLNK(
                self.system.lstat(name, dir_fd=above.fd).st_mode
            ):
                raise
        raise StorageFailed(
            "is a symbolic link, and nothing inside a log is opened through a link",
            hint="put in its place what it leads to, or remove it",
            path=path,
        )

    def refuse_root(self, directory: Directory) -> None:
        """Raises PermissionDenied where the process is root's and the directory another user's."""
        if self.system.euid() != _ROOT:
            return
        owner = self.system.fstat(directory.fd).st_uid
        if owner == _ROOT:
            return
        name = self.system.user_name(owner) or f"#{owner}"
        raise PermissionDenied(
            f"belongs to {name}, and root does not change another user's log",
            hint=f"run the command as its owner: `sudo -u {shlex.quote(name)} ...`, or, in a service's "
            f"unit, User={name.removeprefix('#')}",
            path=directory.path,
            owner=owner,
        )

    def open_read(self, path: Inside) -> File:
        """Raises FileNotFoundError: whoever lists and then opens may come too late."""
        return self._open(path, os.O_RDONLY)

    def open_write(self, path: Inside) -> File:
        """An existing file, for reading and writing. Raises FileNotFoundError."""
        return self._open(path, os.O_RDWR)

    def open_lock(self, path: Inside) -> File:
        """A file that exists only to be locked; created if it is not there."""
        return self._open(path, os.O_RDWR | os.O_CREAT)

    def create(self, path: Inside) -> File:
        """An empty file, for reading and writing; what was there under the name is gone."""
        return self._open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC)

    def _open(self, path: Inside, flags: int) -> File:
        # a pipe hangs nobody
        how = flags | os.O_CLOEXEC | os.O_NONBLOCK
        where = _inside(path)
        mode = where.mode or 0
        try:
            with self._entered(where, change=flags != os.O_RDONLY) as (above, name):
                if flags & os.O_CREAT and where.in_log:
                    mode = above.mode() & _READ_WRITE
                file = File(path, self._open_at(above, name, how, path, mode), self.system)
        except OSError as error:
            if isinstance(error, FileNotFoundError) and not flags & os.O_CREAT:
                raise
            raise translate(error, path, "open") from error
        try:
            found = self.system.fstat(file.fd).st_mode
            if not stat.S_ISREG(found):
                raise StorageFailed("is no regular file", hint="take it out of the log", path=path)
            if flags & os.O_CREAT and (found ^ mode) & _PERMISSIONS:
                file.set_mode(mode)
        except OSError as error:
            file.close()
            raise translate(error, path, "stat") from error
        except StorageError:
            file.close()
            raise
        return file

    def rename(self, old: Inside, new: Inside) -> None:
        """Atomic; durable after the directory's sync."""
        try:
            with (
                self._entered(old, change=True) as (source, name),
                self._entered(new, change=True) as (target, new_name),
            ):
                self.system.replace(name, new_name, src_dir_fd=source.fd, dst_dir_fd=target.fd)
        except OSError as error:
            raise translate(error, new, "rename") from error

    def unlink(self, path: Inside) -> None:
        """Durable after the directory's sync. A file that is not there is no error."""
        try:
            with self._entered(path, change=True) as (above, name):
                self.system.unlink(name, dir_fd=above.fd)
        except FileNotFoundError:
            return
        except OSError as error:
            raise translate(error, path, "remove") from error

    def remove_directory(self, path: Inside) -> None:
        """An empty one; durable after its directory's sync. One that is not there is no error."""
        try:
            with self._entered(path, change=True) as (above, name):
                self.system.rmdir(name, dir_fd=above.fd)
        except FileNotFoundError:
            return
        except OSError as error:
            raise translate(error, path, "remove") from error

    def write_file(self, path: Inside, parts: Iterable[Buffer]) -> None:
        """A whole file under its name or not at all: temporary, synced, renamed, durable."""
        with ExitStack() as held:
            try:
                above, name = held.enter_context(self._entered(path))
            except OSError as error:
                raise translate(error, path, "open") from error
            whole = Inside(above, name, mode=_inside(path).mode)
            temporary = whole + ".tmp"
            file = self.create(temporary)
            try:
                at = 0
                for part in parts:
                    file.pwrite_all([part], at)
                    at += len(part)
                file.datasync()
            except StorageError:
                self.unlink(temporary)  # on a full disk it would keep what room there is
                raise
            finally:
                file.close()
            self.rename(temporary, whole)
            self.sync_directory(above)

    def exists(self, path: str) -> bool:
        """Whether there is anything under the name."""
        if not isinstance(path, Inside):
            return self.system.lexists(path)
        try:
            with self._entered(path) as (above, name):
                self.system.lstat(name, dir_fd=above.fd)
        except OSError:
            return False
        return True

    def mount_of(self, path: str) -> Mount | None:
        """The mount that a file or directory is on; None where the system does not say. By the
        kernel's own number for it: names may be hidden by others, and device numbers differ on
        btrfs."""
        try:
            number, listed = self.system.mounts(path)
            return parse_mount(listed, number)
        except (OSError, KeyError, ValueError):  # it does not say
            return None

    def entry(self, path: str) -> Entry | None:
        """What is under the name, links not followed; None if nothing is."""
        try:
            if isinstance(path, Inside):
                with self._entered(path) as (above, name):
                    found = self.system.lstat(name, dir_fd=above.fd)
            else:
                found = self.system.lstat(path)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise translate(error, path, "stat") from error
        kinds = {stat.S_IFREG: "file", stat.S_IFDIR: "directory", stat.S_IFLNK: "link"}
        return Entry(kinds.get(stat.S_IFMT(found.st_mode), "other"), found.st_size)

    def leads_to(self, path: Inside, file: File) -> bool:
        """Whether the name is still that of the open file: it may be removed, or another's."""
        inode = file.stat().inode
        try:
            there = self.open_read(path)
        except FileNotFoundError:
            return False
        try:
            return there.stat().inode == inode
        finally:
            there.close()

    # --- the machine --------------------------------------------------------------------------------

    def free_bytes(self, path: str) -> int:
        """Room on the file system of a directory, for who may not use the reserve."""
        try:
            return self.system.free_bytes(path)
        except OSError as error:
            raise translate(error, path, "statvfs") from error

    def boot_id(self) -> bytes:
        """16 bytes that differ after every boot: whether the page cache was lost in between."""
        return self.system.boot_id()

    def random_bytes(self, size: int) -> bytes:
        """What nobody can guess."""
        return self.system.random_bytes(size)

    def _no_directory(self, error: OSError, path: str | Directory) -> NotALog:
        if isinstance(path, Directory):
            return NotALog("was removed", hint="open it again where it is", path=path.path)
        there = self.system.lexists(path)
        reason = "is a file, not a directory" if there else "no such directory"
        if not isinstance(error, FileNotFoundError) and not there:
            reason = "a part of the path is a file"
        return NotALog(reason, hint="name the directory of a log", path=path)
