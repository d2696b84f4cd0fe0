"""A local log and its archive as one directory: a `System` of storage.

A slab that is in both is opened where it is near. If the archive has more of it, the local log is an older
copy that was put back, and the archive's is opened. A slab that is not local any more is the archive's: retention
removes a slab after its archive refers to it. Everything else is the local directory's, cursors too, and
nothing is written to the archive.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from typing import TYPE_CHECKING, Any

from aolog.errors import CorruptionError, NotALog
from aolog.format.slab import HEADER_LEN, slab_base, slab_name
from aolog.storage.objects.system import FDS_BEGIN, object_system
from aolog.storage.objects.url import WithArchive
from aolog.storage.system import System

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aolog.storage.objects.system import Folder


class TieredSystem(System):
    """near: the system of the local log. Thread-safe, as that is."""

    def __init__(self, near: System, path: WithArchive) -> None:
        self._near, self._far = near, object_system()
        self._path = path
        self._roots: set[int] = set()  # descriptors of the log's directory
        for name in vars(System).keys() - vars(TieredSystem).keys():
            if not name.startswith("_"):
                setattr(self, name, getattr(near, name))

    def _archive(self) -> Folder:
        """Raises NotALog if it is not there any more, CorruptionError for the archive of another log."""
        path = self._path
        try:
            folder = self._far.folder(path.url)
        except FileNotFoundError:
            raise NotALog(
                "the archive does not exist", hint="correct the URL", path=path.url
            ) from None
        if folder.uuid != path.uuid:
            raise foreign(path.url, folder.uuid, path.uuid)
        return folder

    def open(  # type: ignore[override]  # a method here, the function itself there
        self, path: str, flags: int, mode: int = 0o777, *, dir_fd: int | None = None
    ) -> int:
        is_inside = dir_fd in self._roots and path != "."
        base = slab_base(path) if is_inside else None
        try:
            fd = self._near.open(path, flags, mode, dir_fd=dir_fd)
        except FileNotFoundError:
            if base is None or path not in self._archived_now(path):
                raise
            return self._open_far(path, flags)
        if base is not None and self._has_more(path, base, fd):
            self._near.close(fd)
            return self._open_far(path, flags)
        if dir_fd is None or (dir_fd in self._roots and path == "."):
            self._roots.add(fd)
        return fd

    def _open_far(self, name: str, flags: int) -> int:
        return self._far.open(f"{self._path.url}/{name}", flags)

    def _archived_now(self, name: str) -> Iterable[str]:
        """The archive's slabs. Asks the store again if this one is not known there: it was archived, and
        removed locally, since the last look."""
        folder = self._archive()
        found = folder.objects(fresh=False)
        if name not in found:
            folder.forget()
            found = folder.objects()
        return found

    def _has_more(self, name: str, base: int, fd: int) -> bool:
        """Whether the archive has more of a local slab. Raises CorruptionError if it has another slab."""
        there = self._archive().objects(fresh=False).get(name)
        if there is None or there.size <= self._near.fstat(fd).st_size:
            return False
        far = self._open_far(name, os.O_RDONLY)
        # A slab's header has a random salt.
        same = self._near.pread(fd, HEADER_LEN, 0) == self._far.pread(far, HEADER_LEN, 0)
        self._far.close(far)
        if not same:
            raise self._two_histories(base)
        return True

    def close(self, fd: int, /) -> None:
        self._roots.discard(fd)
        (self._far if fd >= FDS_BEGIN else self._near).close(fd)

    def pread(self, fd: int, size: int, offset: int, /) -> bytes:
        return (self._far if fd >= FDS_BEGIN else self._near).pread(fd, size, offset)

    # The far system's status has the fields that storage uses.
    def fstat(self, fd: int, /) -> Any:
        return (self._far if fd >= FDS_BEGIN else self._near).fstat(fd)

    def lstat(self, path: str, *, dir_fd: int | None = None) -> Any:  # type: ignore[override]  # as open
        try:
            return self._near.lstat(path, dir_fd=dir_fd)
        except FileNotFoundError:
            head, _, name = path.rpartition("/")
            is_inside = dir_fd in self._roots if not head else head == self._path
            if not is_inside or slab_base(name) is None or name not in self._archived_now(name):
                raise
        return self._far.lstat(f"{self._path.url}/{name}")

    def log_uuid(self, fd: int, /) -> bytes | None:
        return bytes.fromhex(self._path.uuid) if fd in self._roots else None

    def listdir(self, path: str | int, /) -> list[str]:
        names = self._near.listdir(path)
        if path not in self._roots:
            return names
        assert isinstance(path, int)
        return [*names, *self._only_archived(names, path)]

    def _only_archived(self, names: list[str], fd: int) -> list[str]:
        """The archive's slabs that are not local. The local ones were listed before: what was removed after
        that is in both, what was removed before that is in the archive."""
        folder = self._archive()
        bases = sorted(base for base in map(slab_base, names) if base is not None)
        if not bases or folder.end < bases[0]:
            folder.forget()  # a slab may have been archived, and removed, since the last look
        local, found = set(names), []
        for name, there in folder.objects().items():
            if (base := slab_base(name)) is None:
                continue
            if self._overlaps(base, base + there.size, bases, fd):
                raise self._two_histories(base)
            if name not in local:
                found.append(name)
        return found

    def _overlaps(self, begin: int, end: int, bases: list[int], fd: int) -> bool:
        """Whether an archived slab has addresses of another local one."""
        at = bisect_right(bases, begin)
        if at < len(bases) and end > bases[at]:
            return True
        if at == 0 or bases[at - 1] == begin:
            return False
        before = bases[at - 1]
        size = self._near.lstat(slab_name(before), dir_fd=fd).st_size
        return before + size > begin

    def _two_histories(self, base: int) -> CorruptionError:
        return CorruptionError(
            f"the archive {self._path.url} has another slab at address {base} than the log",
            hint="two copies of the log were written: read one of the two, not both together",
            path=self._path,
        )


def system_of(path: str, near: System) -> System:
    """The system of a URL, or of a local log with its archive. near: of local paths."""
    if isinstance(path, WithArchive):
        return TieredSystem(near, path)
    return object_system()


def foreign(url: str, found: str, wanted: str) -> CorruptionError:
    """The error for the archive of another log."""
    return CorruptionError(
        f"it is the archive of the log {found or '(none)'}, not of {wanted}",
        hint="name the archive of this log",
        path=url,
    )
