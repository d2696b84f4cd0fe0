"""The values that users see: a record, a gap, a lag. Nothing here knows of bytes on disk.

A record is what Kafka calls one, so nothing is lost on the way there. Ranges of addresses
are `[begin, end)` everywhere.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, TypeAlias

__all__ = ["Gap", "GapReason", "Headers", "Lag", "Record"]

Headers: TypeAlias = tuple[tuple[str, bytes | None], ...]

GapReason: TypeAlias = Literal["torn", "corrupt", "torn_or_corrupt", "missing", "foreign", "pruned"]


class Record(NamedTuple):
    """One record, as it was appended.

    address: increasing, stable for ever, valid to seek to. timestamp: microseconds since the
    epoch, UTC; None only in format 1, which has no place for it. topic: the destination's
    name; None means the log's own default.
    """

    address: int
    timestamp: int | None
    key: bytes | None
    value: bytes | None
    headers: Headers
    topic: str | None


class Gap(NamedTuple):
    """Addresses `[begin, end)` that cannot be read, why, and how many records were lost there.

    reason: `torn` an unfinished end, never acknowledged as durable; `corrupt` it was whole
    and no longer is; `torn_or_corrupt` nothing can tell; `missing` a slab is gone;
    `foreign` a slab of another log is in its place; `pruned` retention removed it. records_lost: exact, or None where nothing later tells.
    """

    begin: int
    end: int
    reason: GapReason
    records_lost: int | None


class Lag(NamedTuple):
    """What lies between a position and the end of the log as it is now, and can still be read:
    what retention has removed does not count.

    records: exact, or None where the format does not count (format 1). bytes: of slab files,
    headers and damage included. seconds: age of the oldest record not yet read; 0.0 if none,
    None if it has no timestamp.
    """

    records: int | None
    bytes: int
    seconds: float | None
