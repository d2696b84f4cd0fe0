"""To which log the slabs in a directory belong: the UUID is decided from all slabs and cursors.

    row               slabs that have a UUID         UUIDs in cursors              the log's UUID
    agree             first and last have the same   not read                      that one
    only              one                            none, or not all another one  the slab's
    only_disputed     one                            all the same other one        the slab's for
                                                                                   readers; undecided
                                                                                   for a writer
    most              first and last differ; one     none, or not all the same     the one of most
                      UUID is in most slabs          other one
    most_disputed     as most                        all the same other one        undecided
    tied              first and last differ; none    all the same, which a slab    the cursors'
                      is in most slabs               has too
    tied_disputed     as tied                        otherwise                     undecided

A slab with another UUID than the log's is *foreign*: somebody copied it there. Its records were not
appended to this log, and no reader returns them. If the evidence conflicts, nothing is decided: the
log is neither read nor written until the other log's parts are moved out. A gap instead could hide
the log's own records from a consumer, which would continue and lose them.

The headers of the first and the last slab are read first, so that opening a log of any length takes
two headers. The others are read only if these differ. With a single slab there is nothing to compare
for a reader, and a foreign cursor is rejected on its own; a writer might extend another log.

A damaged header, cursor, manifest or directory is not evidence, and not an error here. Reads only.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from aolog.errors import AologError, IdentityUnclear
from aolog.log.cursor_file import cursor_names, read_position
from aolog.log.names import slab_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from aolog.storage.storage import Storage


def decide_uuid(
    bases: Sequence[int],
    uuid_of: Callable[[int], bytes | None],
    cursors: Callable[[], Iterable[bytes]],
    *,
    to_write: bool,
) -> bytes | None:
    """The log's UUID by the table above; None: undecided. At least one slab must have a header.
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


def log_uuid(
    path: str,
    storage: Storage,
    bases: Sequence[int],
    uuid_of: Callable[[int], bytes | None],
    *,
    to_write: bool,
) -> bytes | None:
    """The UUID of the log with these slabs, as `decide_uuid` decides it; None if no slab has a header.
    Raises IdentityUnclear."""
    if not any(uuid_of(base) is not None for base in bases):
        return None
    decided = decide_uuid(
        bases, uuid_of, lambda: (uuid for _, uuid in cursor_uuids(path, storage)), to_write=to_write
    )
    if decided is None:
        found = [(slab_name(base), uuid) for base in bases if (uuid := uuid_of(base)) is not None]
        found += [(f"cursor {name}", uuid) for name, uuid in cursor_uuids(path, storage)]
        raise IdentityUnclear(
            "its parts belong to different logs, and nothing shows which log this is: "
            + _listed(found),
            hint="move the other log's slabs elsewhere, or delete its cursors with `aolog cursor "
            "delete`; nothing was changed",
            path=path,
        )
    return decided


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
