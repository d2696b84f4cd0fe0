"""`Log`: the directory of a log, listed, with its slabs opened as they are needed.

names.py describes the files in it. Reads only: readers, the opener of a writer, verify and retention
share it. log_format.py decides the format of the log, identity.py its UUID.

A slab may be published while it has its pending name (manifest.py); it is renamed later. A log without
pending names, which is nearly every log, costs one listing and nothing more. Otherwise the manifest is
read after the names. A pending name that the manifest lacks, and that still exists afterwards, was not
published when the manifest was read.
"""

from __future__ import annotations

import time
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from contextlib import suppress
from typing import TYPE_CHECKING, Self, TypeVar

from aolog.errors import (
    AologError,
    CorruptionError,
    NewerFormat,
    NotALog,
    StorageError,
    StorageFailed,
)
from aolog.log.identity import log_uuid
from aolog.log.listing import Listing
from aolog.log.log_format import LogFormat, find_format
from aolog.log.manifest import resolve
from aolog.log.names import PENDING_SUFFIX, UNBORN_SUFFIX, slab_base, slab_name
from aolog.log.slab_file import Slab
from aolog.storage.file import refuse_others

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from aolog.format.slab import SlabHeader
    from aolog.storage.directory import Directory, Inside
    from aolog.storage.file import File
    from aolog.storage.storage import Storage

_T = TypeVar("_T")

_OPEN_SLABS_MAX = 16  # descriptors and indexes kept for seeks back and forth
_LOOKS_BELOW_MAX = 1_000  # names to look at in a directory that is not a log, to find a log in it
_LOOKS_MAX = 100  # listings before `listed` stops trying, while slabs keep being removed
_NO_UUID = b""  # of a log without headers: a slab with one is another log's


def slab_bases(path: str, storage: Storage) -> list[int]:
    """The bases of a log's slabs, sorted. Raises NotALog, CorruptionError, StorageError."""
    with Log(path, storage) as log:
        return log.bases


def holds_slabs(path: str, names: Iterable[str], storage: Storage) -> bool:
    """Whether a directory with these names is a log. Raises CorruptionError, StorageError."""
    pending = []
    for name in names:
        if slab_base(name) is not None:
            return True
        if name.endswith(PENDING_SUFFIX):
            pending.append(name)
    if not pending:
        return False
    return bool(resolve(path, pending, storage))


def is_log(path: str, storage: Storage) -> bool:
    """Whether the path is a log. Raises CorruptionError, StorageError."""
    return storage.exists(path) and holds_slabs(path, storage.list_names(path), storage)


def walk_logs(root: str, storage: Storage) -> Iterator[tuple[str, list[str], bool]]:
    """The directory and those below it, except inside a log, without following symbolic links: the path
    of each, its names, and whether it is a log. Raises what listing the first one raises."""
    todo = [root]
    while todo:
        path = todo.pop()
        try:
            names = storage.list_names(path)
        except (FileNotFoundError, NotADirectoryError, NotALog):
            if path == root:
                raise
            continue  # deleted since
        found = holds_slabs(path, names, storage)
        yield path, names, found
        for name in () if found else names:
            if name.endswith(PENDING_SUFFIX):
                continue  # a file: a job may leave thousands
            entry = storage.entry(f"{path}/{name}")
            if entry is not None and entry.kind == "directory":
                todo.append(f"{path}/{name}")


class Log:
    """The listing of a log, and its opened slabs. directory: open as long as the log is; all files of
    the log are opened relative to it. Not thread-safe."""

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
        self._slabs: OrderedDict[int, Slab] = OrderedDict()
        self.directory = storage.open_directory(path)
        self.foreign_bases: list[int] = []  # slabs of other logs that were found so far
        self._uuid: bytes | None = None  # None: no header was read yet
        self._uuids: dict[int, bytes | None] = {}  # by base: of the headers that decided it
        self._uuid_bases: list[int] | None = None  # the listing on which it was decided
        self._format: LogFormat | None = None  # None: nothing has asked for it yet
        self.refresh()

    def close(self) -> None:
        """Idempotent."""
        for slab in self._slabs.values():
            slab.close()
        self._slabs.clear()
        self.directory.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def is_replaced(self, slab: Slab | None = None) -> bool:
        """Whether its path now has another directory or another last slab than the open ones: the log
        was removed and created again or put back. False if nothing is there. slab: the caller's last."""
        lstat = self.directory.system.lstat
        try:
            if lstat(f"{self.path}/.").st_ino != self.directory.stat().inode:  # follows a link
                return True
            last = slab or (self._slabs.get(self.bases[-1]) if self.bases else None)
            return last is not None and (
                lstat(self.slab_path(last.base)).st_ino != last.file.stat().inode
            )
        except OSError as error:
            refuse_others(error)
            return False

    def check_place(self, slab: Slab | None) -> None:
        """Raises NotALog if another log replaced it: the old one cannot grow any more."""
        if self.is_replaced(slab):
            raise NotALog("another log was put in its place", hint="open it again", path=self.path)

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
        if self._format is not None and self._format.shown is None:
            self._format = None  # the new listing may show it
        for base, slab in list(self._slabs.items()):
            i = bisect_right(bases, base) - 1
            if i < 0 or bases[i] != base:
                self.forget(base)  # a scan in it goes on to its end
            else:
                slab.limit = self.limit(i)
        return True

    def refresh_after(self, slab: Slab) -> None:
        """As `refresh`, for a caller that has read this slab to its end. Without a listed successor it does
        not rely on the directory's time. (Nor does it look for the successor by name: overlay and NFS
        remember that there was none, and would hide it.)"""
        if self.refresh() or self.after(slab.base) is not None:
            return
        has_ended = not slab.has_headers or slab.seal() is not None  # others do not show it
        if self._listing.is_old(time.monotonic(), has_ended=has_ended):
            self.refresh(force=True)

    def refresh_end(self) -> None:
        """As `refresh`, for a caller that asks for the log's end: see `refresh_after`."""
        if self.refresh() or not self.bases:
            return
        try:
            last = self.slab(len(self.bases) - 1)
        except (FileNotFoundError, NewerFormat, StorageError):
            return  # a caller that needs this slab gets the error
        self.refresh_after(last)

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

    def limit(self, i: int) -> int | None:
        """The offset at which the i-th slab ends by its successor's name; None for the last slab."""
        return self.bases[i + 1] - self.bases[i] if i + 1 < len(self.bases) else None

    def slab(self, i: int) -> Slab:
        """The i-th slab, opened. It is kept until 16 others are opened, and as long as the caller uses
        it. Raises FileNotFoundError if it was pruned since the listing."""
        base = self.bases[i]
        slab = self._slabs.get(base)
        if slab is None:
            with self.open_file(base).closed_on_error() as file:
                slab = Slab(
                    file,
                    base,
                    limit=self.limit(i),
                    log_has_headers=self._first_has_headers,
                    is_ours=self._is_ours,
                )
            self._keep(slab)
        else:
            self._slabs.move_to_end(base)
        return slab

    def _keep(self, slab: Slab) -> None:
        self._slabs.setdefault(slab.base, slab)
        if len(self._slabs) > _OPEN_SLABS_MAX:
            self._slabs.popitem(last=False)  # it is closed once nobody uses it

    def forget(self, base: int) -> None:
        """Does not keep a slab that was read to its end."""
        self._slabs.pop(base, None)

    def _is_ours(self, base: int, header: SlabHeader) -> bool:
        """Whether a header that was found in the slab at `base` has the log's UUID. It is decided with
        the first header, and again if another UUID appears in another listing."""
        uuid = header.topic_uuid
        if uuid != self._uuid and self._uuid_bases is not self.bases:
            self._uuids = {base: uuid} if header.base == base else {}
            self.decide_uuid()
        return self._uuid is None or uuid == self._uuid

    def decide_uuid(self, *, to_write: bool = False) -> None:
        """Decides the log's UUID, from which it follows which slabs are foreign (identity.py). to_write:
        for a writer. Raises IdentityUnclear."""
        if self._uuid_in(self.bases[0]) is None and not self._first_has_headers():
            self._uuid = _NO_UUID
        else:
            listed = self.path, self.storage, self.bases, self._uuid_in
            self._uuid = log_uuid(*listed, to_write=to_write)
        self._uuid_bases = self.bases
        found = self._uuids.items()
        self.foreign_bases = [base for base, uuid in found if uuid not in {None, self._uuid}]
        for base, slab in list(self._slabs.items()):
            if slab.header is not None and slab.header.topic_uuid != self._uuid:
                self.forget(base)  # it was opened before the UUID was decided

    def _uuid_in(self, base: int) -> bytes | None:
        """The UUID in the header of a listed slab: from the first copy that is intact and the slab's
        own. Each header is read once, when it is needed."""
        if base not in self._uuids:
            self._uuids[base] = None
            limit = self.limit(self.index_of(base))
            with suppress(FileNotFoundError, NewerFormat, StorageError):  # pruned, or unreadable
                slab = Slab(self.open_file(base), base, limit=limit, log_has_headers=lambda: True)
                if slab.header is not None:
                    self._keep(slab)
                    self._uuids[base] = slab.header.topic_uuid
        return self._uuids[base]

    def _known_format(self) -> LogFormat:
        if self._format is None:
            self._format = find_format(self)
        return self._format

    def _first_has_headers(self) -> bool:
        return self._known_format().has_headers

    @property
    def shows_format(self) -> bool:
        """Whether anything in the log shows its format; otherwise `has_headers` is a guess."""
        return self._known_format().shown is not None

    def take_as_headerless(self) -> None:
        """Replaces the guess: the caller writes slabs without headers."""
        assert not self.shows_format
        self._format = LogFormat(shown=None, guess=False)

    @property
    def has_headers(self) -> bool:
        """Whether its slabs have headers, marks and seals, and count records: format 2."""
        self.require_slabs()
        return self._first_has_headers()

    def find(self, reached: Callable[[SlabHeader], bool]) -> int:
        """The index of the last slab whose header satisfies a condition that, once false, stays
        false; 0 if none does. Reads O(log n) headers. A slab without a header counts as its
        predecessor does, and is never the result."""

        def is_past(i: int) -> bool:
            header = next(filter(None, map(self.header, range(i, -1, -1))), None)
            return header is not None and not reached(header)

        i = bisect_left(range(1, len(self.bases)), True, key=is_past)
        while i > 0 and self.header(i) is None:
            i -= 1
        return i

    def header(self, i: int) -> SlabHeader | None:
        """The header of the i-th slab; None if it has none, or was pruned since the listing."""
        try:
            return self.slab(i).header
        except FileNotFoundError:
            return None

    def last_header(self) -> SlabHeader | None:
        """The last header that is intact; None if there is none."""
        headers = map(self.header, reversed(range(len(self.bases))))
        return next(filter(None, headers), None)
