"""What a writer does with the slab that it finds last. Pure: a table of cases.

    case              last slab                              cut after    next slab
    fresh             there is none                          -            first, epoch 1
    sealed            sealed, nothing after the seal         -            at its end, same epoch
    sealed_tail       sealed, bytes after the seal           the seal     at its end, same epoch
    unsealed          ends with an intact frame              -            new epoch
    unsealed_blank    zeros after the last intact frame      the frame    new epoch
    unsealed_torn     bytes after the last intact frame      the frame    new epoch
    header_lost       no header copy intact, others before   -            new epoch
    only_lost         no header copy intact, no other slab   -            refused: HeaderLost
    copied            sealed, but its file is a copy, or     the seal     new epoch
                      a cursor is past its end
    foreign           of another log, ours before it         -            new epoch
    queuefka          no headers, the chain ends at the end  -            the same slab goes on
    queuefka_torn     no headers, an unfinished frame        the frame    at the cut
    queuefka_bad      no headers, broken chain or lost end   -            at the file's end

Recovery cuts only bytes after the last intact frame, and copies them aside first, unless they are
zeros. It keeps damage before that: readers skip it and report it.

A new epoch begins above every address that may have been visible. If the page cache still holds what
was written (same boot, same file), that is above the file's end and the cursors. After a power loss,
or in a copy, records that were read may be missing, so the epoch also begins above the old slab's
reach, by a random distance: two copies of one backup then use different addresses.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import NamedTuple

from aolog.format.frame import padding


class Case(Enum):
    """Rows of the table; the value is the label in logs and tests."""

    FRESH = "fresh"
    SEALED = "sealed"
    SEALED_TAIL = "sealed_tail"
    UNSEALED = "unsealed"
    UNSEALED_BLANK = "unsealed_blank"
    UNSEALED_TORN = "unsealed_torn"
    HEADER_LOST = "header_lost"
    ONLY_LOST = "only_lost"
    COPIED = "copied"
    FOREIGN = "foreign"
    QUEUEFKA = "queuefka"
    QUEUEFKA_TORN = "queuefka_torn"
    QUEUEFKA_BAD = "queuefka_bad"


_UNCLOSED = "its last writer did not close it"
# What was found, in words, for the rows that are logged.
FOUND = {
    Case.SEALED_TAIL: "its last slab had bytes after its seal",
    Case.UNSEALED: _UNCLOSED,
    Case.UNSEALED_BLANK: _UNCLOSED,
    Case.UNSEALED_TORN: f"{_UNCLOSED}, and the last write was torn",
    Case.HEADER_LOST: "every copy of its last slab's header is damaged",
    Case.COPIED: "is a copy or was restored",
    Case.FOREIGN: "its last slab is of another log, and stays as it is",
    Case.QUEUEFKA_TORN: "the last write was torn",
    Case.QUEUEFKA_BAD: "its last slab is damaged, and stays as it is",
}


class LastSlab(NamedTuple):
    """What was found. Offsets are relative to the slab."""

    base: int
    size: int
    end_of_frames: int  # offset after the last intact frame, the seal included
    reach: int  # addresses of the slab are below base + reach
    has_header: bool = True
    foreign: bool = False  # its header is another log's, so it counts as lost
    has_predecessor: bool = False
    sealed: bool = False
    blank: bool = True  # only zeros from end_of_frames to size
    same_file: bool = True  # the file has the inode that its header names
    same_boot: bool = True  # the machine was not restarted since the header was written
    queuefka: bool = False  # of the ancestor's format
    unfinished: bool = False  # and the tail is one frame whose end is missing


class Decision(NamedTuple):
    """What to do."""

    case: Case
    cut_at: int | None  # offset at which the last slab ends after the cut; None: it is not cut
    aside: bool  # the cut bytes are copied to aside/ first
    next_base: int | None  # where the next slab begins; None: the last one is continued
    new_epoch: bool  # the next slab begins an epoch


def decide(last: LastSlab | None, *, cursors: list[int], jump: Callable[[], int] = int) -> Decision:
    """The row for what was found. cursors: addresses that were visible. jump: returns a random
    distance, which is added after a power loss and in a copy.

    Every combination of inputs lands on exactly one row (a test enumerates them).
    """
    if last is None:
        return Decision(Case.FRESH, None, False, 0, True)
    if last.queuefka:
        return _decide_queuefka(last)
    if not last.has_header:
        if not last.has_predecessor:
            return Decision(Case.ONLY_LOST, None, False, None, False)
        case = Case.FOREIGN if last.foreign else Case.HEADER_LOST
        return Decision(case, None, False, _above(last, cursors, jump), True)
    has_tail = last.size > last.end_of_frames
    cut_at = last.end_of_frames if has_tail else None
    aside = has_tail and not last.blank
    if last.sealed:
        end = last.base + last.end_of_frames
        if not last.same_file or max(cursors, default=0) > end:
            above = _above(last, cursors, jump)
            return Decision(Case.COPIED, cut_at, aside, above, True)
        case = Case.SEALED_TAIL if has_tail else Case.SEALED
        return Decision(case, cut_at, aside, end, False)
    case = Case.UNSEALED
    if has_tail:
        case = Case.UNSEALED_BLANK if last.blank else Case.UNSEALED_TORN
    above = _above(last, cursors, None if last.same_file and last.same_boot else jump)
    return Decision(case, cut_at, aside, above, True)


def _above(last: LastSlab, cursors: list[int], jump: Callable[[], int] | None) -> int:
    """The first address above all that may have been visible. jump: None if the page cache still holds
    what was written."""
    reached = last.size if jump is None else max(last.size, last.reach)
    above = max(last.base + reached, *cursors, 0) + (jump() if jump else 0)
    return above + padding(above)


def _decide_queuefka(last: LastSlab) -> Decision:
    if last.size == last.end_of_frames:
        return Decision(Case.QUEUEFKA, None, False, None, False)
    if last.unfinished:
        cut = last.end_of_frames
        next_base = last.base + cut if cut else None  # an emptied slab is the next one
        return Decision(Case.QUEUEFKA_TORN, cut, True, next_base, False)
    return Decision(Case.QUEUEFKA_BAD, None, False, last.base + last.size, False)
