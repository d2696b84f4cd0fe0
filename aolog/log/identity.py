"""Which UUID is the log's. Pure: from the UUIDs in slabs and cursors to a decision.

    row               slabs that have a header       cursors that name a UUID      the log's UUID
    @1 agree          first and last say the same    not asked                     that one
    @2 only           one                            none, or not all another one  the slab's
    @3 only_disputed  one                            all the same other one        the slab's to
                                                                                   readers; undecided
                                                                                   to a writer
    @4 most           first and last differ; one     none, or not all the same     the one in most
                      UUID is in most of all         other one
    @5 most_disputed  as @4                          all the same other one        undecided
    @6 tied           first and last differ; none    all the same, which is a      the cursors'
                      is in most of all              slab's
    @7 tied_disputed  as @6                          otherwise                     undecided

A slab with another UUID than the log's is *foreign*: somebody copied it there. Its records were not
appended to this log, and no reader returns them. If the evidence conflicts, nothing is decided: the
log is neither read nor written until the other log's parts are moved out. A gap instead could hide
the log's own records from a consumer, which would continue and lose them.

The headers of the first and the last slab are read first, so that opening a log of any length takes
two headers. The others are read only if these differ. With a single slab there is nothing to compare
for a reader, and a foreign cursor is rejected on its own; a writer might extend another log.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

__all__ = ["SlabUuids", "decide_uuid"]


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
