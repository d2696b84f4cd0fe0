"""The system calls of a simulated process: arguments, results and errors are those of Linux.

Each call first checks whether the process was killed and whether a fault is planned, then changes the
disk under the machine's lock. system.py starts and ends processes.
"""

# mypy: disable-error-code="override"
# Some of os's functions take more kinds of arguments than storage passes.

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

from aolog.storage.system import LOCK_NB, System
from aolog.testing.disk import DirectoryNode, Node
from aolog.testing.faults import Call, Effect
from aolog.testing.inode import FileNode, fail
from aolog.testing.machine import (
    USER,
    Killed,
    Machine,
    OpenFile,
    SimulatedStatus,
    check_directory_rename,
    status_of,
)
from aolog.testing.outcomes import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from aolog.format.frame import Buffer


class SimulatedCalls(System):
    """The calls of one process on a machine. A subclass has `kill`."""

    def __init__(
        self,
        shared: Machine,
        faults: Callable[[Call], Effect | None] | None = None,
        before: Callable[[Call], None] | None = None,
    ) -> None:
        self._shared = shared
        self._disk = shared.disk
        self._lock = shared.lock
        self._files: dict[int, OpenFile] = {}
        self._next_fd = 3
        self._dead = False
        self._faults = faults
        self.calls = 0
        self.before = before

    def kill(self) -> object:
        """Kills the process."""
        raise NotImplementedError

    # --- a call ------------------------------------------------------------------------------------

    def _begin(self, name: str, path: str, size: int = 0) -> Effect | None:
        """Runs before every call. The caller carries out the effect."""
        if self._dead:
            raise Killed
        self.calls += 1
        return None if self._faults is None and self.before is None else self._ask(name, path, size)

    def _ask(self, name: str, path: str, size: int) -> Effect | None:
        while True:
            call = Call(self.calls, name, path, size)
            if self.before is not None:
                try:
                    self.before(call)
                except Killed:
                    self.kill()
                    raise
            effect = None if self._faults is None else self._faults(call)
            if effect is None or effect.errno != errno.EINTR:
                return effect

    def _checked(self, name: str, path: str) -> None:
        effect = self._begin(name, path)
        if effect is not None and effect.errno is not None:
            fail(effect.errno, path)

    def _opened(self, fd: int) -> OpenFile:
        found = self._files.get(fd)
        if found is None:
            if self._dead:
                raise Killed
            fail(errno.EBADF)
        return found

    def _below(self, path: str, dir_fd: int | None) -> str:
        """The absolute path."""
        if dir_fd is None or path.startswith("/"):
            return path
        directory = self._opened(dir_fd)
        if isinstance(directory.node, FileNode):
            fail(errno.ENOTDIR, path)
        if not directory.node.linked and directory.node.ino != ROOT:
            fail(errno.ENOENT, path)  # it was removed
        above = directory.path = self._disk.path_of(directory.node, directory.path)
        return above if path == "." else f"{above.rstrip('/')}/{path}"

    # --- files -------------------------------------------------------------------------------------

    def open(
        self, path: str, flags: int, mode: int = 0o777, /, *, dir_fd: int | None = None
    ) -> int:
        """os.open, with O_CREAT, O_EXCL, O_TRUNC and O_DIRECTORY."""
        del mode
        with self._lock:
            path = self._below(path, dir_fd)
            self._checked("open", path)
            node = self._find(path, flags)
            access = flags & os.O_ACCMODE
            if isinstance(node, DirectoryNode):
                if access != os.O_RDONLY or flags & os.O_CREAT:
                    fail(errno.EISDIR, path)
            elif flags & os.O_DIRECTORY:
                fail(errno.ENOTDIR, path)
            elif flags & os.O_TRUNC and len(node.cache):
                node.truncate(0)
                node.mtime_ns = self._disk.tick()
            fd, self._next_fd = self._next_fd, self._next_fd + 1
            self._files[fd] = OpenFile(node, path, access)
            node.opened += 1
            return fd

    def _find(self, path: str, flags: int) -> Node:
        if not flags & os.O_CREAT:
            return self._disk.node(path)
        directory, name = self._disk.parent(path)
        ino = directory.entries.get(name)
        if ino is None:
            return self._disk.new_file(directory, name)
        if flags & os.O_EXCL:
            fail(errno.EEXIST, path)
        return self._disk.nodes[ino]

    def close(self, fd: int, /) -> None:
        """os.close. Never has a fault. Does nothing in a killed process."""
        with self._lock:
            if not self._dead:
                self._opened(fd)
                self.calls += 1
                self._close(fd)

    def _close(self, fd: int) -> None:
        file = self._files.pop(fd)
        file.node.opened -= 1
        if file.locked:
            del self._shared.locks[file.node.ino]
            self._shared.freed.notify_all()
        if not file.node.opened and not file.node.linked:
            self._disk.collect()

    def pread(self, fd: int, size: int, offset: int, /) -> bytes:
        with self._lock:
            file = self._files.get(fd) or self._opened(fd)
            effect = self._begin("pread", file.path, size)
            if effect is not None:
                if effect.errno is not None:
                    fail(effect.errno)
                size = min(size, effect.short or size)
            node = file.node
            if isinstance(node, DirectoryNode):
                fail(errno.EISDIR)
            if not file.readable:
                fail(errno.EBADF)
            if offset < 0:
                fail(errno.EINVAL)
            data = node.cache[offset : offset + size]
            return data if isinstance(data, bytes) else bytes(data)

    def pwritev(self, fd: int, parts: Sequence[Buffer], offset: int, /) -> int:
        """os.pwritev. A disk that becomes full writes a part."""
        with self._lock:
            file = self._opened(fd)
            data = b"".join(parts)
            effect = self._begin("pwritev", file.path, len(data))
            node = file.node
            if not file.writable or isinstance(node, DirectoryNode):
                fail(errno.EBADF)
            if offset < 0:
                fail(errno.EINVAL)
            taken = data
            if effect is not None:
                taken = data[: 0 if effect.short is None and effect.errno else effect.short]
            if (room := self._disk.room(node, offset + len(taken))) is not None:
                taken = taken[: max(0, room - offset)]
            if taken:
                node.write(taken, offset)
                node.mtime_ns = self._disk.tick()
            if effect is not None and effect.errno is not None:
                fail(effect.errno)
            if data and not taken:
                fail(errno.ENOSPC)
            return len(taken)

    def ftruncate(self, fd: int, size: int, /) -> None:
        with self._lock:
            file = self._opened(fd)
            self._checked("ftruncate", file.path)
            node = file.node
            if not file.writable or isinstance(node, DirectoryNode) or size < 0:
                fail(errno.EINVAL)
            if self._disk.room(node, size) is not None:
                fail(errno.ENOSPC)
            node.truncate(size)
            node.mtime_ns = self._disk.tick()

    def fstat(self, fd: int, /) -> SimulatedStatus:
        """os.fstat, in part. Never has a fault."""
        with self._lock:
            return status_of((self._files.get(fd) or self._opened(fd)).node)

    # --- syncs and locks ---------------------------------------------------------------------------

    def fdatasync(self, fd: int, /) -> None:
        """os.fdatasync: makes the file's bytes and size durable, not its name."""
        self._sync("fdatasync", fd)

    def fsync(self, fd: int, /) -> None:
        """os.fsync: of a directory, makes its entries durable."""
        self._sync("fsync", fd)

    def _sync(self, name: str, fd: int) -> None:
        with self._lock:
            file = self._opened(fd)
            effect = self._begin(name, file.path)
            node = file.node
            if effect is not None and effect.errno is not None:
                if effect.lies:
                    if isinstance(node, DirectoryNode):
                        self._disk.sync_directory(node, lie=True)
                    else:
                        node.lie()
                fail(effect.errno)
            if isinstance(node, DirectoryNode):
                self._disk.sync_directory(node)
            elif not node.is_clean:
                node.sync()
                self._disk.version += 1

    def flock(self, fd: int, operation: int, /) -> None:
        """fcntl.flock, exclusive. The open file description holds it until it is closed."""
        with self._lock:
            file = self._opened(fd)
            self._checked("flock", file.path)
            locks, ino = self._shared.locks, file.node.ino
            while locks.get(ino, file) is not file:
                if operation & LOCK_NB:
                    fail(errno.EWOULDBLOCK)
                self._shared.freed.wait()
                if self._dead:
                    raise Killed
            locks[ino] = file
            file.locked = True

    # --- names ---------------------------------------------------------------------------------------

    def listdir(self, path: str | int, /) -> list[str]:
        with self._lock:
            file = self._opened(path) if isinstance(path, int) else None
            where = path if isinstance(path, str) else self._opened(path).path
            self._checked("listdir", where)
            node = self._disk.node(where) if file is None else file.node
            if not isinstance(node, DirectoryNode):
                fail(errno.ENOTDIR, where)
            return list(node.entries)

    def replace(
        self, old: str, new: str, /, *, src_dir_fd: int | None = None, dst_dir_fd: int | None = None
    ) -> None:
        with self._lock:
            old, new = self._below(old, src_dir_fd), self._below(new, dst_dir_fd)
            self._checked("replace", new)
            source, name = self._disk.parent(old)
            target, new_name = self._disk.parent(new)
            node = self._disk.node(old)
            ino = target.entries.get(new_name)
            there = None if ino is None else self._disk.nodes[ino]
            if isinstance(node, DirectoryNode):
                check_directory_rename(node, there, old, new)
            elif isinstance(there, DirectoryNode):
                above = old.startswith(new.rstrip("/") + "/")  # Linux checks that first
                fail(errno.ENOTEMPTY if above else errno.EISDIR, old)
            if node is not there:
                self._disk.rename(source, name, target, new_name)
                for file in self._files.values():  # faults and `before` see the new name
                    file.path = new if file.node is node else file.path

    def link(
        self, old: str, new: str, /, *, src_dir_fd: int | None = None, dst_dir_fd: int | None = None
    ) -> None:
        """os.link, on a file system without hard links."""
        del old, src_dir_fd
        with self._lock:
            new = self._below(new, dst_dir_fd)
            self._checked("link", new)
            fail(errno.EPERM, new)

    def unlink(self, path: str, /, *, dir_fd: int | None = None) -> None:
        with self._lock:
            path = self._below(path, dir_fd)
            self._checked("unlink", path)
            if isinstance(self._disk.node(path), DirectoryNode):
                fail(errno.EISDIR, path)
            self._disk.remove(*self._disk.parent(path))

    def mkdir(self, path: str, mode: int = 0o777, /, *, dir_fd: int | None = None) -> None:
        del mode
        with self._lock:
            path = self._below(path, dir_fd)
            self._checked("mkdir", path)
            directory, name = self._disk.parent(path)
            if name in directory.entries or not name:
                fail(errno.EEXIST, path)
            self._disk.new_directory(directory, name)

    def rmdir(self, path: str, /, *, dir_fd: int | None = None) -> None:
        with self._lock:
            path = self._below(path, dir_fd)
            self._checked("rmdir", path)
            node = self._disk.node(path)
            if not isinstance(node, DirectoryNode):
                fail(errno.ENOTDIR, path)
            if node.entries:
                fail(errno.ENOTEMPTY, path)
            self._disk.remove(*self._disk.parent(path))

    def realpath(self, path: str, /) -> str:
        """os.path.realpath: there are no symbolic links."""
        return path

    def lstat(self, path: str, /, *, dir_fd: int | None = None) -> SimulatedStatus:
        """os.lstat, in part."""
        with self._lock:
            path = self._below(path, dir_fd)
            self._begin("lstat", path)
            return status_of(self._disk.node(path))

    def leads_to(self, directory: int, name: str, inode: int, device: int, size: int, /) -> bool:
        """Whether the name leads to this file, of this size or more."""
        try:
            found = self.lstat(name, dir_fd=directory)
        except OSError:
            return False
        return found.st_ino == inode and found.st_dev == device and found.st_size >= size

    def euid(self) -> int:
        """The ordinary user that owns all files."""
        return USER

    def user_name(self, _uid: int, /) -> str | None:
        """None: users have no names here."""
        return None

    def fchmod(self, fd: int, mode: int, /) -> None:
        """Does nothing: files have no modes here."""

    def adopt(self, fd: int, other: int, /) -> None:
        """Copies the other's time of change; there are no owners and modes here."""
        with self._lock:
            self._opened(fd).node.mtime_ns = self._opened(other).node.mtime_ns

    def free_bytes(self, path: str, /) -> int:
        """The free part of the capacity; 2^60 without a capacity."""
        with self._lock:
            self._disk.node(path)
            capacity = self._disk.capacity
            return 1 << 60 if capacity is None else capacity - self._disk.used()

    def mounts(self, path: str, /) -> tuple[int, str]:
        """Not supported."""
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS), path)

    # --- the machine -----------------------------------------------------------------------------

    def generation(self, _fd: int, /) -> int:
        """0: inode numbers are never used again."""
        return 0

    def prefetch(self, _path: str, _begin: int, _end: int, /) -> None:
        """As the file systems': nothing."""

    def log_uuid(self, _fd: int, /) -> None:
        """A directory does not know it."""

    def boot_id(self) -> bytes:
        """16 bytes that change with every power cut and every seed."""
        text = f"{self._disk.seed}".rjust(8, "0")[-8:] + f"{self._disk.boot}".rjust(8, "0")[-8:]
        return text.encode()

    def random_bytes(self, size: int, /) -> bytes:
        """The same in each run of a seed."""
        with self._lock:
            return self._disk.random_bytes(size)
