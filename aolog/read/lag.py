"""What a reader at a position has not read, up to the end of the log now."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from aolog.errors import AddressBeyondEnd, AddressPruned, CodecUnavailable
from aolog.format.slab import NO_TIMESTAMP
from aolog.read import seek
from aolog.read.scan import Scan
from aolog.record import Lag, count_between

if TYPE_CHECKING:
    from aolog.log.directory import Log


def lag(log: Log, address: int, ordinal: int | None) -> Lag:
    """See Lag. ordinal: records of the log before `address`; None if unknown. Raises FileNotFoundError if a
    slab is pruned meanwhile."""
    end = seek.latest(log)
    here = max(address, log.bases[0])
    if address < here:  # records before the first slab were pruned: see Log.pruned_before
        ordinal = seek.earliest(log).ordinal
    after = _after_hole(log, here)
    if after is not None:
        ordinal = after
    records = count_between(ordinal, end.ordinal)
    if end.address <= here or records == 0:
        return Lag(0 if log.has_headers else records, 0, 0.0)
    size = 0
    for i in range(max(log.index_of(here), 0), len(log.bases)):
        slab = log.slab(i)
        stop = end.offset if slab.base == end.slab and end.offset else slab.end_offset
        size += max(0, stop - max(here - slab.base, 0))
    stamp = oldest_us(log, here)
    return Lag(records, size, None if stamp is None else max(0.0, time.time() - stamp / 1e6))


def _after_hole(log: Log, address: int) -> int | None:
    """Records of the log before an address that no slab contains, by the header of the slab after it:
    if the log was restored from a copy, the caller's count belongs to another history. Otherwise None."""
    i = log.index_of(address)
    if not 0 <= i < len(log.bases) - 1 or address - log.bases[i] <= log.slab(i).end_offset:
        return None
    header = log.slab(i + 1).header
    return None if header is None else header.known_ordinal


def oldest_us(log: Log, address: int) -> int | None:
    """The timestamp of the first record at an address or after it; None if there is none. Raises
    FileNotFoundError if its slab is pruned meanwhile."""
    address = max(address, log.bases[0])
    try:
        frame = Scan(log, seek.at_address(log, address)).first_frame()
    except (AddressPruned, AddressBeyondEnd, CodecUnavailable):  # then only the age is unknown
        return None
    if frame is None:
        return None
    stamp = frame.timestamp_us
    if frame.columns.timestamps is not None:
        at = min(frame.index_of(address), frame.columns.records - 1)
        stamp = frame.columns.timestamps.cast("q")[at]
    return None if stamp == NO_TIMESTAMP else stamp
