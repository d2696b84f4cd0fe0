"""Finding where a scan begins: by address, ordinal or time, or at either end of the log.

Slabs are found by their names, or by binary search over their headers, which contain the number of records and the
greatest timestamp before the slab.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Literal, TypeAlias

from aolog.errors import AddressBeyondEnd, AddressPruned, UsageError
from aolog.format.frame import FRAME_HEADER_LEN, decode_header
from aolog.format.slab import NO_PREDECESSOR
from aolog.queuefka.format1 import without
from aolog.read.scan import Place, Scan

if TYPE_CHECKING:
    from aolog.log.directory import Log
    from aolog.log.slab_file import Slab
    from aolog.record import Position

Start: TypeAlias = Literal["earliest", "latest"] | int | datetime

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def microseconds(moment: datetime) -> int:
    """A moment with a time zone, as records store it: since the epoch. Exact, unlike a float of
    seconds."""
    return (moment - EPOCH) // _MICROSECOND


def find(log: Log, where: Start, ordinal: int | None) -> Place:
    """The place that a reader's `start` or `seek` names; `ordinal`, if not None, overrides `where`.
    Raises NotALog, AddressPruned, AddressBeyondEnd, UsageError."""
    log.require_slabs()
    if ordinal is not None:
        return at_ordinal(log, ordinal)
    if where == "earliest":
        return earliest(log)
    if where == "latest":
        return latest(log)
    if isinstance(where, datetime):
        if where.tzinfo is None:
            raise UsageError(
                "a datetime without a time zone", hint="use datetime.now(timezone.utc) and the like"
            )
        return at_time(log, microseconds(where))
    if isinstance(where, bool) or not hasattr(where, "__index__"):
        raise UsageError(
            f"start={where!r}", hint='use "earliest", "latest", an address or a datetime'
        )
    return at_address(log, where.__index__())


def _first_ordinal(slab: Slab) -> int | None:
    if slab.header is not None:
        return slab.header.base_ordinal
    return 0 if slab.has_headers and slab.base == 0 else None


def earliest(log: Log) -> Place:
    """The first record of the first slab."""
    return beginning(log.slab(0))


def beginning(slab: Slab) -> Place:
    """The first record of a slab."""
    return Place(slab.base, _first_ordinal(slab), slab.base, None)


def latest(log: Log) -> Place:
    """After the last intact frame."""
    slab = log.slab(len(log.bases) - 1)
    end = slab.end()
    first = _first_ordinal(slab)
    ordinal = None if first is None else first + end.ordinal
    return Place(slab.base + end.offset, ordinal, slab.base, end.offset)


def durable(log: Log) -> int | None:
    """Everything before this address survives power loss; more may. None if slabs have no marks."""
    slab = log.slab(len(log.bases) - 1)
    if not slab.has_headers:
        return None
    return slab.base + (slab.end().offset if slab.seal() is not None else slab.marked())


def at_address(log: Log, address: int) -> Place:
    """The record at an address, or the first one after it. Raises AddressPruned, AddressBeyondEnd."""
    i = log.index_of(address)
    if i < 0:
        slab = log.slab(0)
        if slab.header is not None and slab.header.predecessor_base == NO_PREDECESSOR:
            return earliest(log)
        what = f"address {address} is before the first slab, which begins at {log.bases[0]}"
        raise _pruned(log, what)
    slab = log.slab(i)
    offset = address - slab.base
    # The beginning of a slab needs neither its end nor its index: in a store each would be a request.
    if offset and i + 1 == len(log.bases) and offset > (there := slab.end()).offset:
        end = slab.base + there.offset
        raise _beyond(log, f"address {address} is past the end, {end}", end)
    while i > 0 and slab.lacks_header:
        i -= 1  # part of a hole, which is reported and counted from the intact byte before it
        slab = log.slab(i)
    return _within(slab, address - slab.base)


def back_to(log: Log, position: Position) -> Place:
    """The place of a position that was committed or read once. Raises AddressPruned."""
    try:
        place = at_address(log, position.address)
    except AddressBeyondEnd:  # lost with the page cache: the next epoch begins above every cursor
        place = latest(log)
    return Place(*position, place.slab, place.offset)


def _within(slab: Slab, offset: int) -> Place:
    if slab.lacks_header:
        return beginning(slab)
    has_point = slab.has_headers and offset > slab.data_begin
    point = slab.index().at_offset(offset) if has_point else None
    at, ordinal, frame = slab.chain(point, after=offset)
    if slab.header is None:  # a frame has one record: an address inside it means the next frame
        if frame is not None and frame.offset <= offset:
            at = offset if frame.offset == offset else frame.end
        return Place(slab.base + at, None, slab.base, at)
    head = None
    if frame is not None and frame.offset <= max(at, offset):
        at, ordinal, head = frame.offset, frame.header.ordinal, frame.header
    elif frame is not None:  # damage, reported from `at` on so that its count is exact
        head = decode_header(slab.file.pread(FRAME_HEADER_LEN, at), 0, at, slab.salt)
    ordinal += slab.header.base_ordinal
    if head is None or offset >= at + head.frame_len:
        return Place(slab.base + at, ordinal, slab.base, at)
    inside = min(max(offset - at, 0), head.records)
    return Place(slab.base + max(offset, at), ordinal + inside, slab.base, at)


def at_ordinal(log: Log, ordinal: int) -> Place:
    """The record with this number of records of the log before it. Raises AddressPruned,
    AddressBeyondEnd, and UsageError if the log does not count records."""
    _require_headers(log, "ordinals")
    i = log.find(lambda header: header.base_ordinal <= ordinal)
    slab = log.slab(i)
    first = _first_ordinal(slab)
    if first is None:
        return earliest(log)
    if ordinal < first:
        raise _pruned(log, f"record {ordinal} is before the first record of the log, {first}")
    wanted = ordinal - first
    if slab.header is None:
        return beginning(slab)
    if i + 1 == len(log.bases) and wanted > (there := slab.end()).ordinal:
        what = f"record {ordinal} is past the last one, {first + there.ordinal}"
        raise _beyond(log, what, slab.base + there.offset)
    at, before, frame = slab.chain(slab.index().at_ordinal(wanted), until=wanted)
    if frame is not None and frame.header.ordinal <= wanted:
        address = slab.base + frame.offset + wanted - frame.header.ordinal
        return Place(address, ordinal, slab.base, frame.offset)
    # It was in the damage from `at` on, which is reported from there.
    return Place(slab.base + at, first + before, slab.base, at)


def at_time(log: Log, timestamp_us: int) -> Place:
    """The first record, in the order of the log, with this timestamp or a later one; otherwise the
    end of the log."""
    _require_headers(log, "timestamps")
    slab = log.slab(log.find(lambda header: header.greatest_before_us < timestamp_us))
    mark = slab.index().at_time(timestamp_us)
    at = slab.data_begin if mark is None else mark.offset
    scan = Scan(log, Place(slab.base + at, None, slab.base, at))
    while (frame := scan.first_frame()) is not None:
        if frame.timestamp_us is None or frame.timestamp_us < timestamp_us:
            continue
        stamps = frame.columns.timestamps
        listed = [] if stamps is None else stamps.cast("q").tolist()
        first = next((i for i, stamp in enumerate(listed) if stamp >= timestamp_us), 0)
        return at_address(log, frame.position_of(first).address)
    return latest(log)


def _pruned(log: Log, what: str) -> AddressPruned:
    first = log.bases[0]
    return AddressPruned(what, hint='read from "earliest"', path=log.path, first=first)


def _beyond(log: Log, what: str, end: int) -> AddressBeyondEnd:
    hint = 'read from "latest", or wait until it is written'
    return AddressBeyondEnd(what, hint=hint, path=log.path, end=end)


def _require_headers(log: Log, what: str) -> None:
    if not log.has_headers:
        raise UsageError(f"{log.path}: {without(what)}", hint="seek by address", path=None)
