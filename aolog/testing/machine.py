"""What the processes of one simulated machine share: the disk, locks, open files; and errors as Linux
raises them."""

from __future__ import annotations

import errno
import os
import stat
import threading
from typing import NamedTuple

from aolog.testing.disk import BLOCK, DirectoryNode, Disk, Node
from aolog.testing.inode import FileNode, fail
from aolog.testing.outcomes import ROOT

USER = 1000
_FILE_MODE, _DIRECTORY_MODE = stat.S_IFREG | 0o644, stat.S_IFDIR | 0o755


class Killed(BaseException):
    """The process that makes the call was killed. No `except Exception` catches it."""


class SimulatedStatus(NamedTuple):
    """The fields of fstat that the simulation has."""

    st_mode: int
    st_ino: int
    st_dev: int
    st_size: int
    st_mtime_ns: int
    st_uid: int
    st_nlink: int
    st_ctime_ns: int


class OpenFile:
    """An open file description."""

    __slots__ = ("locked", "node", "path", "readable", "writable")

    def __init__(self, node: Node, path: str, access: int) -> None:
        self.node = node
        self.path = path
        self.readable = access != os.O_WRONLY
        self.writable = access != os.O_RDONLY
        self.locked = False


class Machine:
    """freed: notified when a flock is released."""

    def __init__(self, disk: Disk) -> None:
        self.disk = disk
        self.lock = threading.RLock()
        self.freed = threading.Condition(self.lock)
        self.locks: dict[int, OpenFile] = {}  # by inode


def status_of(node: Node) -> SimulatedStatus:
    """The status of a file or directory."""
    if isinstance(node, FileNode):
        size, mode = len(node.cache), _FILE_MODE
    else:
        size, mode = BLOCK, _DIRECTORY_MODE
    links = 1 if node.ino == ROOT else node.linked
    return SimulatedStatus(mode, node.ino, 1, size, node.mtime_ns, USER, links, node.mtime_ns)


def check_directory_rename(node: DirectoryNode, there: Node | None, old: str, new: str) -> None:
    """Raises OSError where Linux refuses to rename a directory."""
    if new.rstrip("/").startswith(old.rstrip("/") + "/"):
        fail(errno.EINVAL, old)
    if there is not None and not isinstance(there, DirectoryNode):
        fail(errno.ENOTDIR, old)
    if there is not None and there is not node and there.entries:
        fail(errno.ENOTEMPTY, old)
