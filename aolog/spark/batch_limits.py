"""The end of a batch under a trigger's limit: each log's share, cut at a record.

As in Spark's Kafka source, each log with something to read gets at least one record, also if there are
more logs than the limit; the rest of the limit is divided in proportion to what each log has left.
Retention may delete slabs at any time. A share begins at what is left, and the caller reports the loss.
"""

from __future__ import annotations

from functools import partial
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from aolog.errors import AddressBeyondEnd, AddressPruned
from aolog.log.directory import Log
from aolog.read import seek
from aolog.read.scan import Scan
from aolog.spark.listing import check_counts
from aolog.storage.storage import Storage

if TYPE_CHECKING:
    from collections.abc import Callable

    from aolog.spark.listing import Listed
    from aolog.spark.planning import Span

_T = TypeVar("_T")


class End(NamedTuple):
    """Where a batch ends in a log. ordinal: records of the log before it; None if unknown."""

    address: int
    ordinal: int | None


class _Backlog(NamedTuple):
    """What the batch may read of a log: records `[since, until)`, and their ordinals."""

    log: Listed
    since: int
    until: End
    begin: int | None  # the ordinal at `since`


def share(backlog: list[Span], records: int | None, size: int | None) -> dict[str, End]:
    """The end of each log's part. records: at most so many of all logs together. size: about so many
    bytes. None: no limit. Raises UsageError for records in a log that counts none."""
    if records is None and size is None:
        return {span.log.name: End(span.until, None) for span in backlog}
    waiting = [
        (_counted(span) if size is None else None) or _in_log(span.log, partial(_measured, span))
        for span in backlog
    ]
    if records is not None:
        waiting = _limited(waiting, records, _records, _at_record)
    if size is not None:
        waiting = _limited(waiting, size, _bytes, _at_frame)
    return {each.log.name: each.until for each in waiting}


def _in_log(log: Listed, question: Callable[[Log], _T]) -> _T:
    with Log(log.path, Storage()) as opened:
        return opened.listed(partial(question, opened))


def _counted(span: Span) -> _Backlog | None:
    """What needs no look at the log, if only records count."""
    if (known := span.ordinals()) is None:
        return None
    begin, end = known
    return _Backlog(span.log, span.since, End(span.until, end), begin)


def _measured(span: Span, log: Log) -> _Backlog:
    """Begins at the first record, after a slab's header or a frame's padding, but never before `since`:
    its slab may have lost its end with the page cache."""
    since = max(span.since, log.bases[0])
    until = max(span.until, since)
    first = seek.at_address(log, since)
    last = seek.at_address(log, until)
    return _Backlog(span.log, max(since, first.address), End(until, last.ordinal), first.ordinal)


def _limited(
    waiting: list[_Backlog],
    limit: int,
    count: Callable[[_Backlog], int],
    place: Callable[[_Backlog, Log, int], int],
) -> list[_Backlog]:
    """The parts within the limit. count: what a log has, at least 1. place: the address at which a part
    of so much ends."""
    counts = [count(each) for each in waiting]
    if sum(counts) <= limit:
        return waiting
    rest, more = max(0, limit - len(counts)), [each - 1 for each in counts]
    sums, total = [0, *accumulate(more)], max(1, sum(more))
    shares = [1 + rest * high // total - rest * low // total for low, high in pairwise(sums)]
    return [
        each if part >= whole else _in_log(each.log, partial(_cut, each, part, place))
        for each, part, whole in zip(waiting, shares, counts, strict=True)
    ]


def _cut(
    backlog: _Backlog, part: int, place: Callable[[_Backlog, Log, int], int], log: Log
) -> _Backlog:
    backlog = backlog._replace(since=max(backlog.since, log.bases[0]))
    until = place(backlog, log, part)
    if until <= backlog.since:
        until = _within(backlog, log, 1)
    if until >= backlog.until.address:
        return backlog
    return backlog._replace(until=End(until, seek.at_address(log, until).ordinal))


def _bytes(backlog: _Backlog) -> int:
    return max(1, backlog.until.address - backlog.since)


def _at_frame(backlog: _Backlog, log: Log, size: int) -> int:
    """The beginning of the frame that holds the address; inside the first frame, by the mean size of its
    records."""
    place = seek.at_address(log, min(backlog.since + size, backlog.until.address))
    begin = place.slab + (place.offset or 0)
    return begin if begin > backlog.since else _within(backlog, log, size)


def _within(backlog: _Backlog, log: Log, size: int) -> int:
    """The address after the records that take so many bytes of the first readable frame: at least
    one."""
    frame = Scan(log, seek.at_address(log, backlog.since)).first_frame()
    if frame is None:
        return backlog.until.address
    records = frame.columns.records
    read = frame.skip + max(1, size * records // (frame.end - frame.address))
    return frame.address + read if read < records else frame.end


def _records(backlog: _Backlog) -> int:
    """Records of the log, by ordinals, lost ones included; 1 if unknown."""
    check_counts(backlog.log, "maxRecordsPerTrigger", "use maxBytesPerTrigger")
    begin, end = backlog.begin, backlog.until.ordinal
    return 1 if begin is None or end is None else max(1, end - begin)


def _at_record(backlog: _Backlog, log: Log, records: int) -> int:
    if backlog.begin is None:
        return backlog.since
    try:
        return seek.at_ordinal(log, backlog.begin + records).address
    except AddressPruned:
        return backlog.since
    except AddressBeyondEnd:
        return backlog.until.address
