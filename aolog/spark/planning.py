"""Which records a load reads, and which task reads them. Uses names and sizes, and opens a slab only
to look up a position.

Each log has a fixed end, which does not move while the load is used. Addresses are cut into ranges
(aolog.read.ranges) of about `maxPartitionBytes`, at the beginning of a slab if one is near. Small
ranges are combined, so that a thousand small logs are not a thousand tasks. A new epoch begins far
above the slab before it, terabytes in a log that was copied, so addresses past a file's end do not
count.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from contextlib import suppress
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Literal, NamedTuple

from aolog.errors import (
    AddressBeyondEnd,
    AddressPruned,
    AologError,
    NotALog,
    UsageError,
    records_lost,
    warn,
)
from aolog.format.slab import slab_name
from aolog.log.directory import Log
from aolog.queuefka.format1 import without
from aolog.read import seek
from aolog.read.cursor import furthest_past_end, positions_past
from aolog.read.ranges import Range
from aolog.spark.listing import check_counts
from aolog.spark.options import EARLIEST, LATEST
from aolog.spark.positions import located
from aolog.storage.storage import Storage

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from aolog.record import Gap
    from aolog.spark.listing import Listed
    from aolog.spark.options import Options

Side = Literal["starting", "ending"]

_OPEN_BYTES = 1 << 20  # opening a log takes the time of reading so many bytes
# Whatever the options are: planning so many takes seconds on the driver, and ten times as many half a
# minute.
TASKS_MAX = 100_000


class Span(NamedTuple):
    """Records `[since, until)` of a log. ordinal: records of the log before `since`; None if unknown.
    lost: instead of records, what is lost at this place."""

    log: Listed
    since: int
    until: int
    ordinal: int | None = None
    lost: Gap | None = None

    def ordinals(self) -> tuple[int, int] | None:
        """The ordinals at both ends, if they need no look at the log. None if one is unknown, or they
        prove nothing: after a pruning, or if the log lost its end with the page cache."""
        end = self.log.ordinal
        if self.ordinal is None or end is None or self.ordinal >= end:
            return None
        is_whole = self.since >= self.log.bases[0] and self.until == self.log.end
        return (self.ordinal, end) if is_whole else None


class Piece(NamedTuple):
    """The range of a log that a task reads. Picklable. ordinal: of the span, in its first piece. lost:
    instead of a range, a loss that the task only reports. uuid: of the log, in hex; None if unknown."""

    name: str
    path: str
    topic: str | None
    wanted: Range
    ordinal: int | None = None
    lost: Gap | None = None
    uuid: str | None = None


def lost_span(log: Listed, lost: Gap) -> Span:
    """No records, but a loss: the first task of the plan reports it."""
    return Span(log, lost.begin, lost.begin, None, lost)


# --- which records --------------------------------------------------------------------------


def spans(options: Options, logs: list[Listed]) -> list[Span]:
    """The range of each log that a batch reads, and what is lost before it. Raises UsageError, which names
    the option."""
    check_names(options, logs)
    found = []
    for log in logs:
        since, lost = where(log, options, "starting")
        until, _ = where(log, options, "ending")
        if since > until and _are_given(log, options):
            raise UsageError(
                f"option startingOffsets: {since} is after endingOffsets, {until}, in {log.name!r}"
            )
        if lost is not None:
            found.append(lost_span(log, lost))
        if since < until:
            found.append(Span(log, since, until, located(log, since).ordinal))
        if until == log.end and (lost := _lost_end(log, options)) is not None:
            found.append(lost_span(log, lost))
    return found


def _lost_end(log: Listed, options: Options) -> Gap | None:
    """What the log has lost at its end by another program, as a cursor of it shows, if that is to be read."""
    if isinstance(options.end, dict) and options.end.get(log.name) == log.end:
        return None
    storage = Storage()
    if not positions_past(
        log.path, log.end, storage
    ):  # as nearly always: then the log is not opened
        return None
    with suppress(NotALog, FileNotFoundError), Log(log.path, storage) as opened:
        found = opened.listed(lambda: furthest_past_end(opened, log.end))
        return None if found is None else found[0]
    return None  # deleted meanwhile, which the task reports


def _are_given(log: Listed, options: Options) -> bool:
    """Whether both ends are addresses of the options."""
    by_address = isinstance(options.begin, dict) and isinstance(options.end, dict)
    times = _time_of(log, options, "starting"), _time_of(log, options, "ending")
    return by_address and times == (None, None)


def check_names(options: Options, logs: list[Listed]) -> None:
    """Raises UsageError if JSON names a log that does not exist, unless failOnDataLoss is false."""
    there = {log.name for log in logs}
    for option, given in (
        ("startingOffsets", options.begin),
        ("endingOffsets", options.end),
        ("startingOffsetsByTimestamp", options.begin_times_us),
        ("endingOffsetsByTimestamp", options.end_times_us),
    ):
        for name in sorted(given.keys() - there) if isinstance(given, dict) else ():
            problem = f"option {option}: no log {name!r}"
            if options.fail_on_loss:
                raise UsageError(problem, hint="leave it out, or set failOnDataLoss to false")
            warn("%s: it is left out", problem)


def where(log: Listed, options: Options, side: Side) -> tuple[int, Gap | None]:
    """The address at which a read begins or ends in the log, and what is lost before it. A log that JSON
    does not name is read whole."""
    if (timed := _time_of(log, options, side)) is not None:
        must_exist = side == "starting" and options.time_must_exist
        return _at_time(log, *timed, must_exist=must_exist), None
    start = options.begin if side == "starting" else options.end
    if isinstance(start, dict):
        address = start.get(log.name, EARLIEST if side == "starting" else LATEST)
        if address not in {EARLIEST, LATEST}:
            return _checked(log, address, f"{side}Offsets", options)
        start = "earliest" if address == EARLIEST else "latest"
    return (log.bases[0] if start == "earliest" else log.end), None


def _time_of(log: Listed, options: Options, side: Side) -> tuple[int, str] | None:
    """The timestamp at which a read begins or ends in the log, and the option that says so."""
    of_all = options.begin_us if side == "starting" else options.end_us
    if of_all is not None:
        return of_all, f"{side}Timestamp"
    by_log = options.begin_times_us if side == "starting" else options.end_times_us
    if by_log is None or log.name not in by_log:
        return None
    return by_log[log.name], f"{side}OffsetsByTimestamp"


def _checked(log: Listed, address: int, option: str, options: Options) -> tuple[int, Gap | None]:
    """The address, if the log has it; else the nearest one, and what is lost before it."""
    if log.bases[0] <= address <= log.end:
        return address, None
    opened = Log(log.path, Storage())
    try:
        seek.at_address(opened, address)  # a log may begin after 0 without having been pruned
        if log.bases[0] > address:
            return log.bases[0], None
        raise AddressBeyondEnd(f"address {address} is past the end, {log.end}")
    except (AddressPruned, AddressBeyondEnd) as error:
        if options.fail_on_loss:
            raise UsageError(
                f"option {option}: {log.name!r}: {error.reason}",
                hint="set failOnDataLoss to false to read the rest",
            ) from None
        gap = opened.pruned_before(address, 0 if address == 0 else None)
        lost = "" if gap is None else f": {records_lost(gap.records_lost)} lost"
        warn("option %s: %s: %s%s", option, log.path, error.reason, lost)
        return min(max(address, log.bases[0]), log.end), gap
    finally:
        opened.close()


def _at_time(log: Listed, timestamp_us: int, option: str, *, must_exist: bool) -> int:
    if not log.has_headers:
        raise UsageError(
            f"option {option}: {log.name!r} {without('timestamps')}",
            hint="exclude the log with subscribe, or use offsets",
        )
    with Log(log.path, Storage()) as opened:
        address = opened.listed(lambda: seek.at_time(opened, timestamp_us).address)
    if must_exist and address >= log.end:
        raise UsageError(
            f"option {option}: {log.name!r} has no record at or after {timestamp_us // 1000}",
            hint="set startingOffsetsByTimestampStrategy to latest to begin at the end",
        )
    return min(address, log.end)


# --- which task -----------------------------------------------------------------------------


def partitions(
    wanted: Iterable[Span],
    partition_bytes: int,
    min_partitions: int = 1,
    max_records: int | None = None,
) -> list[tuple[Piece, ...]]:
    """The pieces of each task, in the order of names and addresses; empty without records. Losses come
    first, in a task of their own. max_records: of a task; counts records that damage lost, too. Sizes that
    would make more than TASKS_MAX tasks are raised, with a warning. Raises UsageError for max_records of a
    log that does not count its records."""
    wanted = list(wanted)
    lost = [_lost_piece(span.log, span.lost) for span in wanted if span.lost is not None]
    cut = _tasks(
        [span for span in wanted if span.lost is None], partition_bytes, min_partitions, max_records
    )
    return [tuple(lost), *cut] if lost else cut


def _lost_piece(log: Listed, lost: Gap) -> Piece:
    nothing = Range(lost.begin, lost.begin, lost.begin, lost.begin)
    return Piece(log.name, log.path, log.topic, nothing, lost=lost)


def _tasks(
    wanted: list[Span], partition_bytes: int, min_partitions: int, max_records: int | None
) -> list[tuple[Piece, ...]]:
    counted = _by_records(wanted, max_records)
    filled = [(span, _filled(span, partition_bytes)) for span, _ in counted]
    total = sum(_size(parts) for _, parts in filled)
    if not total:
        return []
    least, target = math.ceil(total / TASKS_MAX), math.ceil(total / min_partitions)
    target = min(partition_bytes, target)
    if target < least:
        warn("options maxPartitionBytes, minPartitions: %s bytes a task, not %s", least, target)
        partition_bytes = max(partition_bytes, least)
        min_partitions = min(min_partitions, TASKS_MAX)
        target = least
    pieces: list[Piece] = []
    costs: list[int] = []
    records: list[int] = []
    for (span, parts), (_, count) in zip(filled, counted, strict=True):
        for piece in _cut(span, parts, target):
            pieces.append(piece)
            costs.append(_OPEN_BYTES + _size(parts, piece.wanted))
            records.append(count)
    room = min(partition_bytes + _OPEN_BYTES, math.ceil(sum(costs) / min_partitions))
    found: list[tuple[Piece, ...]] = []
    together: list[Piece] = []
    size = rows = 0
    for i, (piece, cost, count) in enumerate(zip(pieces, costs, records, strict=True)):
        few = len(found) + 1 + len(pieces) - i <= min_partitions
        many = max_records is not None and rows + count > max_records
        if together and (size + cost > room or many or few):
            found.append(tuple(together))
            together, size, rows = [], 0, 0
        together.append(piece)
        size, rows = size + cost, rows + count
    found.append(tuple(together))
    return found


def _by_records(wanted: Iterable[Span], most: int | None) -> list[tuple[Span, int]]:
    """The spans, cut so that none has more records, each with its number or a little more; 0 without a
    maximum. A span whose records cannot be counted, as after some damage, stays whole, and counts as
    a full one."""
    if most is None:
        return [(span, 0) for span in wanted]
    counted = [(span, *_ordinals(span)) for span in wanted]
    total = sum(end - begin for _, begin, end in counted)
    if most * TASKS_MAX < total:
        least = math.ceil(total / TASKS_MAX)
        warn("option maxRecordsPerPartition: %s records a task, not %s", least, most)
        most = least
    found = []
    for span, begin, end in counted:
        count = math.ceil((end - begin) / most)
        ordinals = [begin + (end - begin) * k // count for k in range(1, count)]
        inner = sorted(
            {cut for cut in _at_ordinals(span, ordinals) if span.since < cut < span.until}
        )
        bounds = pairwise([span.since, *inner, span.until])
        records = math.ceil((end - begin) / count) if count else most
        found += [
            (Span(span.log, low, high, span.ordinal if low == span.since else None), records)
            for low, high in bounds
        ]
    return found


def _ordinals(span: Span) -> tuple[int, int]:
    """The ordinals at both ends; equal if they are unknown."""
    check_counts(span.log, "maxRecordsPerPartition", "use maxPartitionBytes")
    if (known := span.ordinals()) is not None:
        return known
    with suppress(AologError, FileNotFoundError), Log(span.log.path, Storage()) as log:
        bounds = span.since, span.until
        ends = [log.listed(partial(seek.at_address, log, at)).ordinal for at in bounds]
        if ends[0] is not None and ends[1] is not None:
            return ends[0], ends[1]
    return 0, 0


def _at_ordinals(span: Span, ordinals: list[int]) -> list[int]:
    with suppress(AologError, FileNotFoundError), Log(span.log.path, Storage()) as log:
        return [log.listed(partial(seek.at_ordinal, log, each)).address for each in ordinals]
    return []  # pruned meanwhile, which the task reports


def bytes_of(span: Span, partition_bytes: int) -> int:
    """About the bytes of the span in its slabs."""
    return _size(_filled(span, partition_bytes))


def _filled(span: Span, partition_bytes: int) -> list[tuple[int, int]]:
    """The ranges of the span that may hold records. Looks up the size of a file only if the addresses
    after its end could make a task of their own."""
    log, since, until = span[:3]
    parts = []
    begin = since
    for base, following in pairwise(log.bases):
        if max(base, since) + 2 * partition_bytes < min(following, until):
            end = max(begin + 1, base + _size_of_slab(log, base, following - base))
            if end < min(following, until):
                parts.append((begin, end))
                begin = min(following, until)
    return [*parts, (begin, until)]


def _size_of_slab(log: Listed, base: int, unknown: int) -> int:
    try:
        path = f"{log.path}/{slab_name(base)}"
        return Storage().on(log.path).lstat(path).st_size
    except OSError:  # the task that reads it reports the error
        return unknown


def _size(parts: list[tuple[int, int]], within: Range | None = None) -> int:
    """Bytes of these addresses."""
    if within is None:
        return sum(end - begin for begin, end in parts)
    low, high = max(within.begin, within.since), min(within.end, within.until)
    return sum(max(0, min(end, high) - max(begin, low)) for begin, end in parts)


def _cut(span: Span, parts: list[tuple[int, int]], target: int) -> list[Piece]:
    log, since, until = span[:3]
    if not log.has_headers:  # nor an index
        cuts = _slab_cuts(log.bases, since, until, target)
    else:
        cuts = [_near_slab(log.bases, cut, target) for cut in _even_cuts(parts, target)]
    inner = sorted({cut for cut in cuts if since < cut < until})
    first = log.bases[max(0, bisect_right(log.bases, since) - 1)]
    begins = [min(first, since), *inner]
    pieces = [
        Piece(log.name, log.path, log.topic, Range(begin, end, since, until), uuid=log.uuid)
        for begin, end in zip(begins, [*inner, until], strict=True)
    ]
    return [pieces[0]._replace(ordinal=span.ordinal), *pieces[1:]]


def _even_cuts(parts: list[tuple[int, int]], target: int) -> Iterator[int]:
    """Addresses with about `target` bytes between them."""
    total = _size(parts)
    count = max(1, round(total / target))
    passed, k = 0, 1
    for begin, end in parts:
        while k < count and (place := k * total // count) < passed + end - begin:
            yield begin + place - passed
            k += 1
        passed += end - begin


def _near_slab(bases: tuple[int, ...], address: int, target: int) -> int:
    """The beginning of a slab near the address, otherwise the address."""
    i = bisect_left(bases, address)
    near = min(bases[max(0, i - 1) : i + 1], key=lambda base: abs(base - address))
    return near if abs(near - address) <= target // 4 else address


def _slab_cuts(bases: tuple[int, ...], since: int, until: int, target: int) -> list[int]:
    cuts, last = [], since
    for base in bases:
        if base - last >= target and base < until:
            cuts.append(base)
            last = base
    return cuts
