"""To which log the slabs in a directory belong: the UUID is decided from all slabs and cursors, by the table in
FORMAT.md, *Identity*. An archive's manifest has the UUID, and nothing needs to be decided.

With a single slab there is nothing to compare for a reader, and a foreign cursor is rejected on its own. A
damaged header, cursor, manifest or directory is not evidence, and not an error here. Reads only.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from aolog.errors import AologError, IdentityUnclear, NewerFormat, StorageError
from aolog.format.slab import slab_name
from aolog.log.cursor_file import read_positions
from aolog.log.interruption import pass_on
from aolog.log.slab_file import HeadedSlab

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from aolog.format.slab import SlabHeader
    from aolog.log.slab_list import SlabList
    from aolog.storage.storage import Storage


def decide_uuid(
    bases: Sequence[int],
    uuid_of: Callable[[int], bytes | None],
    cursors: Callable[[], Iterable[bytes]],
    *,
    to_write: bool,
) -> bytes | None:
    """The log's UUID by FORMAT.md's table; None: undecided. At least one slab must have a header.
    uuid_of: the UUID in the header of the slab at a base, None if none is intact; a call may cost a
    system call. cursors: called only if the cursors' UUIDs are needed, and read only as far as needed."""
    first = next(base for base in bases if uuid_of(base) is not None)
    last = next(base for base in reversed(bases) if uuid_of(base) is not None)
    if uuid_of(first) == uuid_of(last) and (first < last or not to_write):
        return uuid_of(first)
    votes = Counter(uuid for uuid in map(uuid_of, bases) if uuid is not None)
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


_NO_UUID = b""  # of a log without headers: a slab with one is another log's


class Identity:
    """The UUID of a listed log, from which it follows which slabs are foreign. It is decided when the first
    header is met, and again if another UUID appears in another listing.

    foreign_bases: slabs of other logs that were found so far. has_headers: whether the log's format has them.
    """

    def __init__(self, log: SlabList, has_headers: Callable[[], bool]) -> None:
        self._log = log
        self._has_headers = has_headers
        self.foreign_bases: list[int] = []
        self._uuid: bytes | None = None  # None: no header was read yet
        self._uuids: dict[int, bytes | None] = {}  # by base: of the headers that decided it
        self._bases: list[int] | None = None  # the listing on which it was decided

    def is_ours(self, base: int, header: SlabHeader) -> bool:
        """Whether a header that was found in the slab at `base` has the log's UUID."""
        uuid = header.topic_uuid
        if uuid != self._uuid and self._bases is not self._log.bases:
            self._uuids = {base: uuid} if header.base == base else {}
            self.decide()
        return self.still_has(header)

    def still_has(self, header: SlabHeader | None) -> bool:
        """Whether a header has the UUID as it is decided now; also if there is none."""
        return header is None or self._uuid in {None, header.topic_uuid}

    def decide(self, *, to_write: bool = False) -> None:
        """Decides the UUID. to_write: for a writer. Raises IdentityUnclear."""
        bases, known = self._log.bases, self._log.directory.log_uuid()
        if known is not None:
            self._uuid = known
        elif self._uuid_of(bases[0]) is None and not self._has_headers():
            self._uuid = _NO_UUID
        else:
            self._uuid = self._decided(bases, to_write=to_write)
        self._bases = bases
        found = self._uuids.items()
        self.foreign_bases = [base for base, uuid in found if uuid not in {None, self._uuid}]

    def _decided(self, bases: list[int], *, to_write: bool) -> bytes | None:
        """As `decide_uuid`; None if no slab has a header."""
        path, storage, uuid_of = self._log.path, self._log.storage, self._uuid_of
        if not any(uuid_of(base) is not None for base in bases):
            return None
        cursors = cursor_uuids(path, storage)  # read as far as they are needed
        uuids = (uuid for _, uuid in cursors)
        decided = decide_uuid(bases, uuid_of, lambda: uuids, to_write=to_write)
        if decided is None:
            found = [
                (slab_name(base), uuid) for base in bases if (uuid := uuid_of(base)) is not None
            ]
            found += [(f"cursor {name}", uuid) for name, uuid in cursor_uuids(path, storage)]
            raise IdentityUnclear(
                "its parts belong to different logs, and nothing shows which log this is: "
                + _listed(found),
                hint="move the other log's slabs elsewhere, or delete its cursors with `aolog cursor "
                "delete`; nothing was changed",
                path=path,
            )
        return decided

    def _uuid_of(self, base: int) -> bytes | None:
        """The UUID in the header of a listed slab: from the first copy that is intact and the slab's
        own. Each header is read once, when it is needed."""
        if base not in self._uuids:
            header = None
            try:
                with self._log.open_file(base) as file:
                    header = HeadedSlab(file, base, limit=self._log.limit(base)).header
            except (FileNotFoundError, NewerFormat, StorageError) as error:  # pruned, or unreadable
                pass_on(error)
            self._uuids[base] = None if header is None else header.topic_uuid
        return self._uuids[base]


def _listed(found: list[tuple[str, bytes]]) -> str:
    """Each UUID, with the slabs and cursors that have it."""
    parts = []
    for uuid in dict.fromkeys(uuid for _, uuid in found):
        names = [name for name, its in found if its == uuid]
        more = len(names) - _NAMED_MAX
        some = ", ".join(names[:_NAMED_MAX]) + (f" and {more} more" if more > 0 else "")
        parts.append(f"{uuid.hex()} in {some}")
    return "; ".join(parts)


def cursor_uuids(path: str, storage: Storage) -> Iterator[tuple[str, bytes]]:
    """(name, log UUID) of each cursor that has a UUID. Epochs begin at 1: a cursor of epoch 0 belongs
    to a log without headers, or none was intact at its commit."""
    try:
        for name, position in read_positions(path, storage):
            if not isinstance(position, AologError) and position.epoch > 0:
                yield name, position.topic_uuid
    except AologError as error:  # of the directory of cursors
        pass_on(error)
