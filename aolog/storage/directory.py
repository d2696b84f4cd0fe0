"""An open directory, and `Inside`: a path inside a log, of which no part may be a link.

A log's own path is the user's and may lead through symbolic links. Files inside the log may come
from anybody with write permission there. So storage opens the directory at which an `Inside`
begins, and each name below it relative to the descriptor of the one before, with O_NOFOLLOW: there
is no time between a check and its use.

Storage takes an `Inside` for everything that it opens, creates, renames or removes in a log, and
mypy rejects a plain string there. An `Inside` is a string, for messages and comparisons; results
of string methods and f-strings are plain strings again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Self

from aolog.errors import UsageError
from aolog.storage.file import File, as_storage_error, refuse_others


class Directory(File):
    """An open directory. Its flock is the lock of the log or the root: there is no lock file to
    delete, and closing another file of the process does not drop it, as it would drop a POSIX
    record lock. New and removed entries need a sync of the directory."""

    def __truediv__(self, name: str) -> Inside:
        """The path of an entry."""
        return Inside(self, name)

    def is_elsewhere(self) -> bool:
        """Whether its path leads to another directory by now; False if it leads nowhere."""
        try:
            there = self._system.lstat(f"{self.path}/.")  # follows a link
        except OSError as error:
            refuse_others(error)
            return False
        with as_storage_error(self.path, "stat"):
            here = self._system.fstat(self.fd)
        return (there.st_ino, there.st_dev) != (here.st_ino, here.st_dev)

    def log_uuid(self) -> bytes | None:
        """The UUID of the log in it, if more than its slabs show it: an archive's manifest does."""
        return self._system.log_uuid(self.fd)

    def sync(self) -> None:
        """fsync: new, renamed and removed entries are on the device on return. Raises SyncFailed."""
        with as_storage_error(self.path, "fsync of the directory", syncs=True):
            self._system.fsync(self.fd)


class Inside(str):
    """A path inside a log.

        Inside(log_path, "cursors", "c.cursor")
        directory / "aside" / "repair-0001"

    base: the path of a directory, or an open directory; an open one is used even if its path leads
    elsewhere now. names: below the base. in_log: whether it is in a log, which may be another user's;
    False for a path that the user named.
    """

    __slots__ = ("base", "in_log", "names")

    base: str | Directory
    names: tuple[str, ...]
    in_log: bool

    def __new__(cls, base: str | Directory, *names: str, in_log: bool = True) -> Self:
        """Takes one name or more."""
        assert names
        assert all(name and "/" not in name and name not in {".", ".."} for name in names), names
        above = base if isinstance(base, str) else base.path
        is_plain = above == "." and not in_log
        text = "/".join(names if is_plain else (above.rstrip("/"), *names))
        self = super().__new__(cls, text)
        self.base, self.names, self.in_log = base, names, in_log
        return self

    def __truediv__(self, name: str) -> Inside:
        """The path of an entry of this directory."""
        return Inside(self.base, *self.names, name, in_log=self.in_log)

    def __add__(self, suffix: str) -> Inside:
        """The path in the same directory whose last name has this suffix."""
        *above, name = self.names
        return Inside(self.base, *above, name + suffix, in_log=self.in_log)

    def __reduce__(self) -> tuple[Callable[[str], str], tuple[str]]:
        """Pickles as a plain string, for messages: another process has no such descriptor."""
        return str, (str(self),)


def beside(path: str) -> Inside:
    """A file that the user named, in a directory whose path may lead through links. Raises UsageError
    if the path names no file."""
    head, slash, name = path.rstrip("/").rpartition("/")
    if name in {"", ".", ".."}:
        raise UsageError(f"{path!r} names no file")
    return Inside(head or slash or ".", name, in_log=False)
