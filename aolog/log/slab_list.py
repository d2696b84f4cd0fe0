"""`SlabList`: the slabs of a log by their names, and their files.

Published slabs may have pending names (FORMAT.md, *Manifest*). A log without such names, which is nearly every
log, costs one listing and nothing more. Reads only.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from contextlib import suppress
from typing import TYPE_CHECKING, Self, TypeVar

from aolog.errors import AologError, CorruptionError, NotALog, StorageFailed
from aolog.format.names import PENDING_SUFFIX, UNBORN_SUFFIX
from aolog.format.slab import slab_base, slab_name
from aolog.log.log_tree import is_log
from aolog.log.manifest import resolve
from aolog.storage.listing import Listing

if TYPE_CHECKING:
    from collections.abc import Callable

    from aolog.storage.directory import Directory, Inside
    from aolog.storage.file import File
    from aolog.storage.storage import Storage

_T = TypeVar("_T")

_LOOKS_BELOW_MAX = 1_000  # names to look at in a directory that is not a log, to find a log in it
_LOOKS_MAX = 100  # listings before `listed` stops trying, while slabs keep being removed


def slab_bases(path: str, storage: Storage) -> list[int]:
    """The bases of a log's slabs, sorted. Raises NotALog, CorruptionError, StorageError."""
    with SlabList(path, storage) as found:
        return found.bases


class SlabList:
    """The listing of a log. directory: open as long as this is; all files of the log are opened relative
    to it. Not thread-safe."""

    def __init__(self, path: str | Directory, storage: Storage) -> None:
        self.path = path if isinstance(path, str) else path.path
        self._is_named = isinstance(path, str)
        self.storage = storage
        self.bases: list[int] = []
        self.unborn: list[str] = []  # slabs that a dead writer began; they have temporary names
        self.others: list[str] = []  # names of all other files
        self.published: dict[int, str] = {}  # by base: published slabs with pending names
        self.has_pending = False  # whether the directory has pending slabs, published or not
        self._listing = Listing(-1, 0, 0.0, 0)  # as if of another directory: nothing is listed yet
        self.directory = storage.open_directory(path)
        self.refresh()

    def close(self) -> None:
        """Idempotent."""
        self.directory.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def refresh(self, *, force: bool = False) -> bool:
        """Lists the directory again if its time changed. Returns whether the slabs changed."""
        changed_ns = self.directory.stat().changed_ns
        same = self._listing.has_time(changed_ns) and not self.has_pending
        if same and not force:  # publishing a pending slab does not change this directory
            return False
        begun = changed_ns, time.time_ns(), time.monotonic()
        bases, names = self._list()
        if bases != self.bases and self._is_named and not self.storage.exists(self.path):
            raise NotALog("it was moved", hint="open it where it is now", path=self.path)
        self._listing = Listing(*begun, names)  # last: after an exception the next call lists again
        if bases == self.bases:
            return False
        self.bases = bases
        return True

    def _list(self) -> tuple[list[int], int]:
        """(bases of all slabs, sorted; number of names). A slab renamed during the listing may be missing
        from it: looks at those that were pending. Raises NotALog, CorruptionError, StorageError."""
        while True:
            bases: list[int] = []
            unborn: list[str] = []
            pending: list[str] = []
            others: list[str] = []
            published: dict[int, str] = {}
            names = self.storage.list_names(self.directory)
            for name in names:  # one pass, no other work per name
                base = slab_base(name)
                if base is not None:
                    bases.append(base)
                elif name.endswith(UNBORN_SUFFIX):
                    unborn.append(name)
                elif name.endswith(PENDING_SUFFIX):
                    pending.append(name)
                else:
                    others.append(name)
            if not pending:
                break
            published = resolve(self.path, pending, self.storage)
            unknown = set(pending).difference(published.values())
            if not unknown or unknown.issubset(self.storage.list_names(self.directory)):
                break
        listed = set(bases) if self.published or published else set()
        for base in set(published).intersection(listed):
            if self.storage.exists(self.directory / published[base]):
                raise CorruptionError(
                    f"{published[base]} was published at the address of {slab_name(base)}: a writer "
                    "opened the log by another path, which does not show its root",
                    hint="move one of the two elsewhere; both are intact slabs",
                    path=self.path,
                )
            del published[base]  # renamed meanwhile
        bases += published
        listed.update(published)
        for base in self.published:
            if base not in listed and self.storage.exists(self.directory / slab_name(base)):
                bases.append(base)
        self.unborn, self.others, self.published = unborn, others, published
        self.has_pending = bool(pending)
        return sorted(bases), len(names)

    def require_slabs(self) -> None:
        """Raises NotALog if there is none."""
        if not self.bases:
            hint = "name the directory of a log; the first append creates one"
            for name in sorted(self.others)[:_LOOKS_BELOW_MAX]:
                with suppress(AologError):
                    if is_log(f"{self.path}/{name}", self.storage):
                        hint = f"it is a directory of logs: name one of them, as {self.path}/{name}"
                        break
            raise NotALog("no log: the directory holds no slab", hint=hint, path=self.path)

    def listed(self, look: Callable[[], _T]) -> _T:
        """The result of `look`, which reads listed slabs. Repeats it with a new listing if a slab was
        pruned meanwhile. Raises StorageFailed if that happens too often, and what `look` raises."""
        for _ in range(_LOOKS_MAX):
            try:
                return look()
            except FileNotFoundError:
                self.refresh(force=True)
        raise StorageFailed(
            "slabs are removed faster than they can be opened", hint="try again", path=self.path
        )

    def slab_path(self, base: int) -> Inside:
        """The path of the slab's file. A published slab may be renamed at any moment."""
        return self.directory / (self.published.get(base) or slab_name(base))

    def open_file(self, base: int) -> File:
        """Opens the slab's file. Raises FileNotFoundError if it was pruned."""
        try:
            return self.storage.open_read(self.slab_path(base))
        except FileNotFoundError:
            if self.published.pop(base, None) is None:
                raise
        return self.open_file(base)  # it was renamed meanwhile

    def index_of(self, address: int) -> int:
        """The index in `bases` of the slab that contains the address; -1 if it is before the first."""
        return bisect_right(self.bases, address) - 1

    def after(self, base: int) -> int | None:
        """The base of the first slab after this base; None if there is none."""
        i = bisect_right(self.bases, base)
        return self.bases[i] if i < len(self.bases) else None

    def limit(self, base: int) -> int | None:
        """The offset at which the slab at a base ends by its successor's name; None for the last slab."""
        successor = self.after(base)
        return None if successor is None else successor - base
