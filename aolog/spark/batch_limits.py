"""The end of a batch under a trigger's limit: each log's share, cut at a record.

Shares are proportional to each log's backlog, so that no log falls behind. A batch holds at least one
record, so that a smaller limit does not stop the stream.
"""

from __future__ import annotations

from functools import partial
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING

from aolog.errors import AddressBeyondEnd, UsageError
from aolog.log.directory import Log
from aolog.read import seek
from aolog.read.scan import Scan
from aolog.storage.storage import Storage

if TYPE_CHECKING:
    from collections.abc import Callable

    from aolog.spark.planning import Span


def share(backlog: list[Span], records: int | None, size: int | None) -> dict[str, int]:
    """The address up to which each log is read. records: at most so many of all logs together. size:
    about so many bytes. None: no limit. Raises UsageError for records in format 1, which counts none."""
    if records is None and size is None:
        return {span.log.name: span.until for span in backlog}
    backlog = [span._replace(since=_in_log(span, partial(_first, span))) for span in backlog]
    if records is not None:
        backlog = _cut(backlog, records, _records, _at_record)
    if size is not None:
        backlog = _cut(backlog, size, _bytes, _at_frame)
    return {span.log.name: span.until for span in backlog}


def _first(span: Span, log: Log) -> int:
    """The address of the first record, after a slab's header or a frame's padding. Never before
    `since`: its slab may have lost its end with the page cache."""
    return max(span.since, seek.at_address(log, span.since).address)


def _cut(
    backlog: list[Span],
    limit: int,
    count: Callable[[Span, Log], int],
    place: Callable[[Span, Log, int], int],
) -> list[Span]:
    """The spans, each ending with its share. Spans without a share are left out."""
    counts = [_in_log(span, partial(count, span)) for span in backlog]
    total = sum(counts)
    if total <= limit:
        return backlog
    sums = [0, *accumulate(counts)]
    shares = [limit * high // total - limit * low // total for low, high in pairwise(sums)]
    cut = []
    for span, part in zip(backlog, shares, strict=True):
        if part:
            until = _in_log(span, partial(_place, span, part, place))
            cut.append(span._replace(until=min(until, span.until)))
    return cut


def _in_log(span: Span, question: Callable[[Log], int]) -> int:
    with Log(span.log.path, Storage()) as log:
        return log.listed(partial(question, log))


def _place(span: Span, part: int, place: Callable[[Span, Log, int], int], log: Log) -> int:
    until = place(span, log, part)
    return until if until > span.since else _within(span, log, 1)


def _bytes(span: Span, _: Log) -> int:
    return span.until - span.since


def _at_frame(span: Span, log: Log, size: int) -> int:
    """The beginning of the frame that holds the address; inside the first frame, by the mean size of its
    records."""
    place = seek.at_address(log, min(span.since + size, span.until))
    begin = place.slab + (place.offset or 0)
    return begin if begin > span.since else _within(span, log, size)


def _within(span: Span, log: Log, size: int) -> int:
    """The address after the records that take so many bytes of the first readable frame: at least
    one."""
    frame = Scan(log, seek.at_address(log, span.since)).first_frame()
    if frame is None:
        return span.until
    records = frame.columns.records
    read = frame.skip + max(1, size * records // (frame.end - frame.address))
    return frame.address + read if read < records else frame.end


def _records(span: Span, log: Log) -> int:
    """Records of the span, by ordinals, lost ones included; 1 if unknown."""
    if log.format == 1:
        raise UsageError(
            f"option maxRecordsPerTrigger: {span.log.name!r} is of format 1, which does not count",
            hint="use maxBytesPerTrigger",
        )
    begin = seek.at_address(log, span.since).ordinal
    end = seek.at_address(log, span.until).ordinal
    return 1 if begin is None or end is None else max(1, end - begin)


def _at_record(span: Span, log: Log, records: int) -> int:
    begin = seek.at_address(log, span.since).ordinal
    if begin is None:
        return span.since
    try:
        return seek.at_ordinal(log, begin + records).address
    except AddressBeyondEnd:
        return span.until
