"""What the parts of a log show: to which log its slabs belong, and which format it has.

A damaged header, cursor, manifest or directory shows nothing; here it is no error. Reads only.
identity.py decides the log's UUID; directory.py decides the format.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Protocol

from aolog.errors import AologError, IdentityUnclear, NewerFormat, StorageError
from aolog.log.cursor_file import cursor_names, read_position
from aolog.log.identity import decide_uuid
from aolog.log.manifest import names_log
from aolog.log.names import slab_name
from aolog.log.slab_file import Slab

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from aolog.storage.directory import Directory
    from aolog.storage.file import File
    from aolog.storage.storage import Storage

__all__ = ["Headers", "cursor_uuids", "is_format_2", "log_uuid"]

_NAMED_MAX = 3  # slabs and cursors of each UUID that the error lists


class Listed(Protocol):
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
    listing. opened: called with each slab that was opened, which it keeps or closes."""

    def __init__(
        self,
        log: Listed,
        known: dict[int, bytes | None] | None = None,
        opened: Callable[[Slab], None] | None = None,
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
        base = self._log.bases[i]
        try:
            file = self._log.open_file(base)
        except (FileNotFoundError, StorageError):  # pruned since the listing, or unreadable
            return None
        try:
            slab = Slab(file, base, limit=self._log.limit(i), log_format=lambda: 2)
        except (NewerFormat, StorageError):
            file.close()
            return None
        except BaseException:
            file.close()
            raise
        if slab.header is None:
            file.close()
            return None
        if self._opened is not None:
            self._opened(slab)
        else:
            file.close()
        return slab.header.topic_uuid


def log_uuid(log: Listed, slabs: Headers, *, to_write: bool = False) -> bytes | None:
    """The log's UUID; None if no slab has a header. Raises IdentityUnclear."""
    if not any(slabs[i] is not None for i in range(len(slabs))):
        return None
    cursors = partial(cursor_uuids, log.path, log.storage)
    decided = decide_uuid(slabs, lambda: (uuid for _, uuid in cursors()), to_write=to_write)
    if decided is None:
        raise IdentityUnclear(
            "its parts belong to different logs, and nothing shows which log this is: "
            + _listed(log, slabs),
            hint="move the other log's slabs elsewhere, or delete its cursors with `aolog cursor "
            "delete`; nothing was changed",
            path=log.path,
        )
    return decided


def _listed(log: Listed, slabs: Headers) -> str:
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


def is_format_2(log: Listed) -> bool:
    """Whether the directory has something that only a log of format 2 has."""
    return (
        bool(log.unborn)  # a slab of format 1 never has a temporary name
        or log.has_pending
        or any(cursor_uuids(log.path, log.storage))
        or names_log(log.path, log.storage)
    )
