"""A log read by several readers, each a range of addresses. Each frame and each gap is read by one of them: by that
in whose range it begins.

A boundary may be any address, inside a frame or damage too: cutting a log into ranges takes only the names of its
slabs. A seek into damage would report the rest of a gap that the range before reports as a whole. So a range that
is not its log's first begins with the frame that contains the byte before it, and drops everything that begins
before the range. This is not needed if a slab with an intact header begins there: gaps end at it.
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
    from collections.abc import Iterator

    from aolog.log.directory import Log


class Range(NamedTuple):
    """Frames that begin in `[begin, end)`; of their records those with addresses in
    `[since, until)`. A log's first range has `begin <= since`, its last `end == until`; between
    two of them `end` is the next one's `begin`."""

    begin: int
    end: int
    since: int
    until: int


def read_range(log: Log, wanted: Range, ordinal: int | None = None) -> Iterator[RecordFrame | Gap]:
    """Frames and gaps of the range, in order. Frames are whole except for `skip`; the caller ignores
    records of the last one from `until` on. ordinal: records of the log before `since`, if the range is
    the log's first: counts them if they are pruned.

    Bytes before `until` that cannot be read, with nothing intact after them, are a gap too; a reader
    that follows the log would wait there. Raises NotALog, CodecUnavailable, StorageError.
    """
    begin, end, since, until = wanted
    first = max(begin, since)  # the range before reports what begins before
    last = min(end, until)
    if first >= last:
        return
    try:
        place = log.listed(partial(_place, log, wanted, ordinal))
    except AddressBeyondEnd:  # the log was cut since
        yield Gap(first, last, "torn_or_corrupt", None)
        return
    scan = Scan(log, place, until=last)
    while (found := scan.next()) is not None:
        if isinstance(found, RecordFrame):
            if found.address >= last:
                return
            _, part = found.cut(begin)
            if part is not None and (part := part.cut(last)[0]) is not None:
                yield part
        else:
            if found.begin >= last:
                return
            if found.reason == "pruned":  # other ranges report the other parts of it
                found = found._replace(begin=max(found.begin, first), end=min(found.end, end))
            if found.begin >= first:
                yield found
        if found.end >= last:  # the next frame begins after it
            return
    if scan.position.address < last:
        yield Gap(max(scan.position.address, first), last, "torn_or_corrupt", None)


def _place(log: Log, wanted: Range, ordinal: int | None) -> Place:
    log.require_slabs()
    begin, since = wanted.begin, wanted.since
    try:
        if since >= begin:
            return seek.at_address(log, since)
        i = log.index_of(begin)
        if i >= 0 and (slab := log.slab(i)).base == begin and not slab.lacks_header:
            return seek.beginning(slab)
        return seek.at_address(log, begin - 1)
    except AddressPruned:  # the scan reports it
        at = max(begin, since)
        return Place(at, ordinal if at == since else None, at, None)
