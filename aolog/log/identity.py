"""Which UUID is the log's. Pure: what slabs and cursors say in, a decision out.

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
appended to this log, and nobody returns them. Where the evidence conflicts, nothing is decided, and
the log is neither read nor written until the other log's parts are moved out. A gap instead could
hide the log's own records from a consumer, which would go on and lose them.

The first and the last slab are asked first, so that a log of any length is opened with two headers.
Only if they differ are all asked. One slab cannot disagree with another, and a cursor that does is
refused by itself; but a writer would go on in what may be another log.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

__all__ = ["SlabUuids", "decide_uuid"]


class SlabUuids(Protocol):
    """The UUID that each slab's header says, in the order of the log; None where no header is
    intact. To look at one may cost a system call."""

    def __len__(self) -> int: ...
    def __getitem__(self, i: int, /) -> bytes | None: ...


def decide_uuid(
    slabs: SlabUuids, cursors: Callable[[], Iterable[bytes]], *, to_write: bool
) -> bytes | None:
    """The log's UUID by the table above; None: undecided. At least one slab has a header. cursors:
    called where they are asked, for the UUIDs that they name; no more are taken than needed."""
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
