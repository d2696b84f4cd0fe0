"""Format 1, queuefka's, byte for byte. Pure: bytes in, values out.

    u32le length    u32le xxh32(payload, seed 0)    payload

Frames follow one another from the file's first byte, unaligned; a record's address is its
frame's. The Go program rolls to a new slab as soon as one has grown past its hint, so the last
slab may be empty; it opens the last slab of a log and appends there.

What this format cannot promise: a damaged length is not caught by itself, so where a chain
breaks the rest of the slab is a gap unless the reader asks for resynchronisation, which is a
guess; records are not counted, so losses are not; there are no keys, headers, nulls, topics or
timestamps, and no empty payloads (the Go program panics on them).
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import xxhash

from aolog.errors import RecordRefused

if TYPE_CHECKING:
    from aolog.format.frame import Buffer
    from aolog.record import Headers

__all__ = [
    "FRAME_HEADER_LEN",
    "PAYLOAD_LEN_MAX",
    "decode_at",
    "encode_record",
    "payload_matches",
    "refusal",
]

_HEADER = struct.Struct("<II")
FRAME_HEADER_LEN = 8
assert _HEADER.size == FRAME_HEADER_LEN

# A first length above this is format 2's magic (DESIGN 13); no payload is as long.
PAYLOAD_LEN_MAX = 0xFF000000


def encode_record(payload: bytes) -> list[Buffer]:
    """The frame of one record, as buffers to be written in order."""
    return [_HEADER.pack(len(payload), xxhash.xxh32_intdigest(payload)), payload]


def decode_at(buffer: Buffer, at: int) -> tuple[int, int]:
    """(length, hash) that the 8 bytes at `at` claim. Neither is to be trusted."""
    length, stored = _HEADER.unpack_from(buffer, at)
    return length, stored


def payload_matches(stored: int, payload: Buffer) -> bool:
    """Whether the payload is the one that was written."""
    return bool(xxhash.xxh32_intdigest(payload) == stored)


def refusal(
    value: bytes | None,
    key: bytes | None,
    headers: Headers,
    timestamp: int | None,
    topic: str | None,
) -> RecordRefused | None:
    """Why the format has no place for the record; None if it has."""
    reason = None
    if value is None:
        reason = "format 1 has no place for a null value"
    elif not value:
        reason = "format 1 has no place for an empty value (the Go program panics on it)"
    elif key is not None:
        reason = "format 1 has no place for a key"
    elif headers:
        reason = "format 1 has no place for headers"
    elif timestamp is not None:
        reason = "format 1 has no place for a timestamp"
    elif topic is not None:
        reason = "format 1 has no place for a topic"
    if reason is None:
        return None
    return RecordRefused(reason, hint='append the value alone, or use format="aolog"')
