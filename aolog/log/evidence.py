"""What the parts of a log say of the log: whose slabs these are, and of which format.

A damaged header, cursor, manifest or directory says nothing; it is no error here. Reads only.
identity.py decides on the log's UUID; log.py decides on the format.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from aolog.errors import AologError, IdentityUnclear, NewerFormat, StorageError
from aolog.format.slab import slab_name
from aolog.log.cursor_file import cursor_names, read_position
from aolog.log.directory import Slab
from aolog.log.identity import decide_uuid
from aolog.log.manifest import names_log

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from aolog.log.directory import Log
    from aolog.storage.files import Storage

__all__ = ["Headers", "cursor_uuids", "is_format_2", "log_uuid"]

_NAMED_MAX = 3  # slabs and cursors of each UUID that an error names


class Headers:
    """The UUID in the header of each listed slab: of the first copy that is intact and the slab's
    own. Each is looked at once, when it is asked for. known: what is known already, by the slab's
    place in the listing. opened: where one was opened for that."""

    def __init__(
        self,
        log: Log,
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
        except (FileNotFoundError, StorageError):  # pruned since the listing, or not to be read
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


def log_uuid(log: Log, slabs: Headers, *, to_write: bool = False) -> bytes | None:
    """The log's UUID; None where no slab has a header. Raises IdentityUnclear."""
    if not any(slabs[i] is not None for i in range(len(slabs))):
        return None
    cursors = partial(cursor_uuids, log.path, log.storage)
    decided = decide_uuid(slabs, lambda: (uuid for _, uuid in cursors()), to_write=to_write)
    if decided is None:
        raise IdentityUnclear(
            "its parts belong to different logs, and nothing says which log this is: "
            + _listed(log, slabs),
            hint="move the other log's slabs elsewhere, or delete its cursors with `aolog cursor "
            "delete`; nothing was changed",
            path=log.path,
        )
    return decided


def _listed(log: Log, slabs: Headers) -> str:
    """Each UUID, and the slabs and cursors that name it."""
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
    """(name, log UUID) of each cursor that has one. Epochs begin at 1: a cursor of epoch 0 belongs
    to a log of format 1, or was committed where no header was intact."""
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


def is_format_2(log: Log) -> bool:
    """Whether anything beside the slabs is found only beside slabs of format 2."""
    return (
        bool(log.unborn)  # slabs of format 1 are made under their own names
        or log.has_pending
        or any(cursor_uuids(log.path, log.storage))
        or names_log(log.path, log.storage)
    )
