"""A log read by many, each a range of addresses: frames and gaps are each one reader's.

A frame belongs to the range in which it begins, a gap to the range in which it begins, as one
reader over the whole log would tell it. So a boundary may be any address, and whoever cuts a log
into ranges reads nothing but names: it need not fall on a frame.

The trap is a boundary inside of damage, or inside of a frame that turns out to be damaged: there a
seek is told the rest of a gap that the range before tells whole. So a range that is not its log's
first begins with the frame that holds the byte before it, and drops what begins before it. Where
a slab with an intact header begins there is no need: gaps end there.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from aolog.errors import AddressBeyondEnd, AddressPruned
from aolog.read import seek
from aolog.read.batch import RecordFrame
from aolog.read.scan import Place, Scan
from aolog.record import Gap

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from aolog.format.columns import Columns
    from aolog.format.frame import Frame
    from aolog.log.directory import Log, Slab

__all__ = ["Range", "read_range"]


class Range(NamedTuple):
    """Frames that begin in `[begin, end)`; of their records those with addresses in
    `[since, until)`. A log's first range has `begin <= since`, its last `end == until`; between
    two of them `end` is the next one's `begin`."""

    begin: int
    end: int
    since: int
    until: int


def read_range(
    log: Log,
    wanted: Range,
    *,
    audit: Callable[[Slab, Frame, Columns | None], None] | None = None,
) -> Iterator[RecordFrame | Gap]:
    """Frames and gaps of the range, in order. Frames are whole but for `skip`: of the last one,
    records from `until` on are to be left out.

    What was there when `until` was chosen and cannot be read, with nothing intact behind it, is a
    gap too: for a reader that follows the log it would be pending. audit: as for Scan; it is also
    shown frames before and behind the range. Raises NotALog, CodecUnavailable, StorageError.
    """
    begin, end, since, until = wanted
    first = max(begin, since)  # what begins before is told by the range before
    last = min(end, until)
    if first >= last:
        return
    try:
        place = log.listed(partial(_place, log, wanted))
    except AddressBeyondEnd:  # the log was cut since
        yield Gap(first, last, "torn_or_corrupt", None)
        return
    scan = Scan(log, place, audit=audit)
    try:
        while (found := scan.next()) is not None:
            if isinstance(found, RecordFrame):
                if found.address >= last:
                    return
                if found.address >= begin:
                    yield found
            else:
                if found.begin >= last:
                    return
                if found.reason == "pruned":  # by others in part, each of whom knows as little
                    found = found._replace(begin=max(found.begin, first), end=min(found.end, end))
                if found.begin >= first:
                    yield found
            if found.end >= last:  # what follows begins behind it
                return
        if scan.address < last:
            yield Gap(max(scan.address, first), last, "torn_or_corrupt", None)
    finally:
        scan.close()


def _place(log: Log, wanted: Range) -> Place:
    log.require_slabs()
    begin, since = wanted.begin, wanted.since
    try:
        if since >= begin:
            return seek.at_address(log, since)
        i = log.position(begin)
        if i >= 0 and log.bases[i] == begin:
            header = log.slab(i).header
            if header is not None or log.slab(i).format == 1:
                return Place(begin, begin, None, None if header is None else header.base_ordinal)
        return seek.at_address(log, begin - 1)
    except AddressPruned:  # the scan tells it
        at = max(begin, since)
        return Place(at, at, None, None)
