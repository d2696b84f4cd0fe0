"""A cursor and its log: who a position belongs to, and where reading goes on; loudly, if the log
is not the one that it was.

A position names the topic and the epoch of the slab that it lies in. In format 1, which has
neither, the first slab's base and the hash and length of its first frame stand in for them.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

from aolog.errors import AddressBeyondEnd, AddressPruned, CursorDiverged, CursorForeign
from aolog.read import seek
from aolog.read.scan import Place

if TYPE_CHECKING:
    from aolog.log.cursor_file import Position
    from aolog.log.directory import Log

__all__ = ["check_course", "check_end", "identity", "resume"]

_HEAD_LEN = 8  # of format 1's first frame: length and hash


def identity(log: Log, address: int) -> tuple[bytes, int]:
    """(topic UUID, epoch) of the slab that a position at `address` is committed with."""
    if log.format == 1:
        return log.bases[0].to_bytes(8, "little") + _first_head(log, 0), 0
    behind = max(log.position(address), 0) + 1
    for i in chain(reversed(range(behind)), range(behind, len(log.bases))):  # headers may be lost
        header = log.slab(i).header
        if header is not None:
            return header.topic_uuid, header.epoch
    return bytes(16), 0


def resume(log: Log, position: Position) -> Place:
    """Where reading goes on: at the record behind the cursor, or where what follows it stands.
    Raises CursorForeign, CursorDiverged."""
    check_course(log, position)
    try:
        place = seek.at_address(log, position.address)
    except AddressPruned:  # the scan tells, with the count, from where the cursor stood
        return Place(position.address, position.address, None, position.ordinal)
    except AddressBeyondEnd:  # lost with the page cache: the next epoch begins above every cursor
        place = seek.latest(log)
    return place._replace(address=position.address, ordinal=position.ordinal)


def check_course(log: Log, position: Position) -> None:
    """Raises CursorForeign, or CursorDiverged if the log went another way below the position;
    FileNotFoundError if a slab is pruned meanwhile."""
    if log.format == 1:
        _check_format_1(log, position)
        return
    uuid = None
    for i in reversed(range(len(log.bases))):
        header = log.slab(i).header
        if header is None:
            continue
        uuid = uuid or header.topic_uuid
        if header.epoch <= position.epoch:
            break
        if header.base < position.address:
            raise CursorDiverged(
                f"the cursor stands at {position.address} of epoch {position.epoch}, and the "
                f"log went another way at {header.base} (epoch {header.epoch}): it was copied "
                "or restored",
                hint="look at both, then set the cursor with `aolog cursor set`",
                path=log.path,
            )
    if uuid is not None and uuid != position.topic_uuid:
        raise CursorForeign(
            "the cursor belongs to another log",
            hint="remove it with `aolog cursor delete`, or restore its log",
            path=log.path,
        )


def check_end(log: Log, position: Position) -> None:
    """Of a position that was kept outside of the log, and did not go back with it: raises
    CursorDiverged where the log ends before it and no power cut can have taken the rest, so that
    what comes would get addresses, or has them already, that were passed."""
    slab = log.slab(len(log.bases) - 1)
    header = slab.header
    if header is None:
        return
    end = seek.latest(log).address
    if position.epoch <= header.epoch:
        cut_off = slab.seal() is None and header.boot_id != log.storage.boot_id()
        if position.address <= end or cut_off:
            return
    raise CursorDiverged(
        f"the cursor stands at {position.address} of epoch {position.epoch}, and the log ends at "
        f"{end} (epoch {header.epoch}): it is a copy, or was restored from an older one",
        hint="look at both, then set the cursor with `aolog cursor set`",
        path=log.path,
    )


def _check_format_1(log: Log, position: Position) -> None:
    base = int.from_bytes(position.topic_uuid[:8], "little")
    i = log.position(base)
    if i < 0 or log.bases[i] != base:
        return  # pruned: nothing left to compare with
    if position.topic_uuid[8:] not in {_first_head(log, i), bytes(_HEAD_LEN)}:
        raise CursorForeign(
            "the first frame is not the one that the cursor was committed with",
            hint="remove it with `aolog cursor delete`, or restore its log",
            path=log.path,
        )


def _first_head(log: Log, i: int) -> bytes:
    return log.slab(i).file.pread(_HEAD_LEN, 0).ljust(_HEAD_LEN, b"\0")
