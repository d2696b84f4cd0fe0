"""A cursor: the position of a reader, and the bytes of one of the two copies in its file (FORMAT.md, *Cursor file*).
Pure, but for the reads of `copies_in`.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

import xxhash

from aolog.errors import records_lost
from aolog.record import Gap, Position, count_between

if TYPE_CHECKING:
    from collections.abc import Callable

    from aolog.format.slab import SlabHeader
    from aolog.record import GapReason

COPIES = (0, 4096)  # in different sectors on any device
_MAGIC = b"AOCURSOR"
_FIELDS = struct.Struct(
    "<"
    "8s"  # magic
    "H"  # version, 1
    "H"  # flags: bit 0 protects from retention; bit 1 ordinal is unknown
    "I"  # epoch of the slab that contains the address
    "Q"  # sequence: the higher of the two copies counts
    "16s"  # topic UUID, or its replacement in a log without headers
    "Q"  # address of the next record to be read
    "Q"  # ordinal of that record
    "q"  # committed_us
)  # and an u32: xxh32 of these bytes
COPY_LEN = _FIELDS.size + 4
_FLAG_PROTECTS = 0x1
_FLAG_NO_ORDINAL = 0x2


class CursorPosition(NamedTuple):
    """What a cursor stores. ordinal: None if it is unknown."""

    address: int
    ordinal: int | None
    topic_uuid: bytes
    epoch: int
    protects: bool
    committed_us: int = 0

    @property
    def position(self) -> Position:
        """In the log."""
        return Position(self.address, self.ordinal)

    def lost_end(self, end: Position, last: SlabHeader | None, boot_id: bytes) -> Gap | None:
        """What a log that ends at `end` has lost there: it reached up to here when the cursor was committed.
        None if no record is missing, or if a power cut is the reason: the log's writer does not sync. last:
        the header of its last slab; None in a log without headers."""
        if last is not None and not last.synced and last.boot_id != boot_id:
            return None
        lost = count_between(end.ordinal, self.ordinal)
        if self.address <= end.address or lost == 0:
            return None
        reason: GapReason = "torn_or_corrupt" if last is None else "corrupt"
        return Gap(end.address, self.address, reason, lost)

    def lost_end_text(self, lost: Gap) -> str:
        """The same in words."""
        ordinal = "" if self.ordinal is None else f" (ordinal {self.ordinal})"
        count = lost.records_lost
        verb = "is" if count in {1, None} else "are"
        return (
            f"the log ended at {self.address}{ordinal} once; {records_lost(count)} {verb} missing"
        )


def encode_copy(position: CursorPosition, sequence: int) -> bytes:
    """The bytes of a copy."""
    address, ordinal, uuid, epoch, protects, committed_us = position
    flags = _FLAG_PROTECTS * protects | _FLAG_NO_ORDINAL * (ordinal is None)
    place = uuid, address, ordinal or 0, committed_us
    hashed = _FIELDS.pack(_MAGIC, 1, flags, epoch, sequence, *place)
    return hashed + struct.pack("<I", xxhash.xxh32_intdigest(hashed))


def encode_copies(position: CursorPosition) -> list[bytes]:
    """A new cursor file: the first copy, and room for the second."""
    sector = COPIES[1] - COPIES[0]
    first = encode_copy(position, 0).ljust(sector, b"\0")
    return [first, bytes(sector)]


def decode_copy(copy: bytes) -> tuple[int, CursorPosition] | None:
    """Sequence and position of a copy; None if it is damaged."""
    hashed = copy[: _FIELDS.size]
    if copy != hashed + struct.pack("<I", xxhash.xxh32_intdigest(hashed)):
        return None
    magic, version, flags, epoch, sequence, uuid, address, ordinal, committed_us = _FIELDS.unpack(
        hashed
    )
    if (magic, version) != (_MAGIC, 1):
        return None
    known = None if flags & _FLAG_NO_ORDINAL else ordinal
    protects = bool(flags & _FLAG_PROTECTS)
    return sequence, CursorPosition(address, known, uuid, epoch, protects, committed_us)


def copies_in(pread: Callable[[int, int], bytes]) -> list[tuple[int, CursorPosition] | None]:
    """What `decode_copy` finds in each copy that was written to a file, in their order there."""
    first, second = (pread(COPY_LEN, at) for at in COPIES)
    found = [decode_copy(first), decode_copy(second)]
    if found[0] is not None and found[0][0] == 0 and not second.strip(b"\0"):
        return found[:1]  # the second commit writes the other copy
    return found
