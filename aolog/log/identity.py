"""To which log the slabs in a directory belong: the UUID is decided from all slabs and cursors.

    row               slabs that have a UUID         UUIDs in cursors              the log's UUID
    @1 agree          first and last have the same   not read                      that one
    @2 only           one                            none, or not all another one  the slab's
    @3 only_disputed  one                            all the same other one        the slab's for
                                                                                   readers; undecided
                                                                                   for a writer
    @4 most           first and last differ; one     none, or not all the same     the one of most
                      UUID is in most slabs          other one
    @5 most_disputed  as @4                          all the same other one        undecided
    @6 tied           first and last differ; none    all the same, which a slab    the cursors'
                      is in most slabs               has too
    @7 tied_disputed  as @6                          otherwise                     undecided

A slab with another UUID than the log's is *foreign*: somebody copied it there. Its records were not
appended to this log, and no reader returns them. If the evidence conflicts, nothing is decided: the
log is neither read nor written until the other log's parts are moved out. A gap instead could hide
the log's own records from a consumer, which would continue and lose them.

The headers of the first and the last slab are read first, so that opening a log of any length takes
two headers. The others are read only if these differ. With a single slab there is nothing to compare
for a reader, and a foreign cursor is rejected on its own; a writer might extend another log.

A damaged header, cursor, manifest or directory is no evidence; here it is no error. Reads only.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Protocol

from aolog.errors import AologError, IdentityUnclear, NewerFormat, StorageError
from aolog.log.cursor_file import cursor_names, read_position
from aolog.log.manifest import names_log
from aolog.log.names import slab_name
from aolog.log.slab_file import Slab

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from aolog.storage.directory import Directory
    from aolog.storage.file import File
    from aolog.storage.storage import Storage


class SlabUuids(Protocol):
    """The UUID in each slab's header, in the order of the log; None if no header is intact. Reading
    an item may cost a system call."""

    def __len__(self) -> int: ...
    def __getitem__(self, i: int, /) -> bytes | None: ...


def decide_uuid(
    slabs: SlabUuids, cursors: Callable[[], Iterable[bytes]], *, to_write: bool
) -> bytes | None:
    """The log's UUID by the table above; None: undecided. At least one slab must have a header.
    cursors: called only if the cursors' UUIDs are needed, and read only as far as needed."""
    first = next(i for i in range(len(slabs)) if slabs[i] is not None)
    last = next(i for i in reversed(range(len(slabs))) if slabs[i] is not None)
    if slabs[first] == slabs[last] and (first < last or not to_write):
        return slabs[first]
    votes = Counter(uuid for i in range(first, last + 1) if (uuid := slabs[i]) is not None)
    (most, count), *others = votes.most_common(2)
    by_slabs = None if others and others[0][1] == count else most
    named: set[bytes] = set()
    for uuid in cursors():
        if uuid == by_slabs:
            return by_slabs
        named.add(uuid)
    if len(named) != 1:
        return by_slabs
    (by_cursors,) = named
    return by_cursors if by_slabs is None and by_cursors in votes else None


_NAMED_MAX = 3  # slabs and cursors of each UUID that the error lists


class _Listed(Protocol):
    """A log as far as it is listed: `Log` is one."""

    path: str
    storage: Storage
    directory: Directory
    bases: list[int]
    unborn: list[str]
    has_pending: bool

    def open_file(self, base: int, /) -> File: ...
    def limit(self, i: int, /) -> int | None: ...


class Headers:
    """The UUID in the header of each listed slab: from the first copy that is intact and the slab's
    own. Each header is read once, when it is needed. known: UUIDs known before, by index in the
    listing. opened: called with each slab that was opened and has a header."""

    def __init__(
        self,
        log: _Listed,
        known: dict[int, bytes | None] | None = None,
        opened: Callable[[Slab], None] = lambda _slab: None,
    ) -> None:
        self._log = log
        self._opened = opened
        self.known = known if known is not None else {}

    def __len__(self) -> int:
        return len(self._log.bases)

    def __getitem__(self, i: int) -> bytes | None:
        if i not in self.known:
            self.known[i] = self._look(i)
        return self.known[i]

    def _look(self, i: int) -> bytes | None:
        base, limit = self._log.bases[i], self._log.limit(i)
        try:
            slab = Slab(self._log.open_file(base), base, limit=limit, log_format=lambda: 2)
        except (FileNotFoundError, NewerFormat, StorageError):  # pruned meanwhile, or unreadable
            return None
        if slab.header is None:
            return None
        self._opened(slab)
        return slab.header.topic_uuid


def log_uuid(log: _Listed, slabs: Headers, *, to_write: bool = False) -> bytes | None:
    """The log's UUID; None if no slab has a header. Raises IdentityUnclear."""
    if not any(slabs[i] is not None for i in range(len(slabs))):
        return None
    decided = decide_uuid(
        slabs,
        lambda: (uuid for _, uuid in cursor_uuids(log.path, log.storage)),
        to_write=to_write,
    )
    if decided is None:
        raise IdentityUnclear(
            "its parts belong to different logs, and nothing shows which log this is: "
            + _listed(log, slabs),
            hint="move the other log's slabs elsewhere, or delete its cursors with `aolog cursor "
            "delete`; nothing was changed",
            path=log.path,
        )
    return decided


def _listed(log: _Listed, slabs: Headers) -> str:
    """Each UUID, with the slabs and cursors that have it."""
    found: dict[bytes, list[str]] = {}
    for i, base in enumerate(log.bases):
        if (uuid := slabs[i]) is not None:
            found.setdefault(uuid, []).append(slab_name(base))
    for name, uuid in cursor_uuids(log.path, log.storage):
        found.setdefault(uuid, []).append(f"cursor {name}")
    parts = []
    for uuid, names in found.items():
        more = len(names) - _NAMED_MAX
        some = ", ".join(names[:_NAMED_MAX]) + (f" and {more} more" if more > 0 else "")
        parts.append(f"{uuid.hex()} in {some}")
    return "; ".join(parts)


def cursor_uuids(path: str, storage: Storage) -> Iterator[tuple[str, bytes]]:
    """(name, log UUID) of each cursor that has a UUID. Epochs begin at 1: a cursor of epoch 0 belongs
    to a log of format 1, or no header was intact at its commit."""
    try:
        names = cursor_names(path, storage)
    except AologError:
        return
    for name in names:
        try:
            position = read_position(path, name, storage)
        except AologError:
            continue
        if position.epoch > 0:
            yield name, position.topic_uuid


def is_format_2(log: _Listed) -> bool:
    """Whether the directory has something that only a log of format 2 has."""
    return (
        bool(log.unborn)  # a slab of format 1 never has a temporary name
        or log.has_pending
        or any(cursor_uuids(log.path, log.storage))
        or names_log(log.path, log.storage)
    )
