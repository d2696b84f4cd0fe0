"""Format 1: queuefka's, byte for byte. Pure: bytes in, values out.

    u32le length    u32le xxh32(payload, seed 0)    payload

Frames follow one another from the file's first byte, unaligned. The address of a record is the address
of its frame. The Go program begins a new slab as soon as the current one exceeds its hint, so the last
slab may be empty. It opens the last slab of a log and appends there.

What this format cannot promise: a length has no checksum of its own. If a chain breaks, the rest of the
slab is a gap. Records are not counted, so losses are not counted either. There are no keys, headers,
nulls, topics or timestamps, and no empty payloads (the Go program panics on them).
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import xxhash

from aolog.errors import RecordRefused
from aolog.format.frame import KIND_RECORDS, Frame, FrameHeader

if TYPE_CHECKING:
    from aolog.format.frame import Buffer
    from aolog.record import Headers

_HEADER = struct.Struct("<II")
FRAME_HEADER_LEN = 8
assert _HEADER.size == FRAME_HEADER_LEN

# A greater length would begin with format 2's magic; no payload is so long.
PAYLOAD_LEN_MAX = 0xFF000000


def without(what: str) -> str:
    """The end of a message about a log of this format, from which something is wanted that it lacks."""
    return f"is of format 1, which has no {what}"


def encode_record(payload: bytes) -> list[Buffer]:
    """The frame of one record, as buffers to be written in order."""
    return [_HEADER.pack(len(payload), xxhash.xxh32_intdigest(payload)), payload]


def decode_at(buffer: Buffer, at: int) -> tuple[int, int]:
    """(length, hash) in the 8 bytes at `at`. Nothing protects either."""
    length, stored = _HEADER.unpack_from(buffer, at)
    return length, stored


def payload_matches(stored: int, payload: Buffer) -> bool:
    """Whether the payload is as it was written."""
    return bool(xxhash.xxh32_intdigest(payload) == stored)


def intact_records(
    chunk: bytes, view: memoryview, chunk_at: int, offset: int, most: int
) -> list[Frame]:
    """As frame.intact_frames. A frame has one record."""
    frames: list[Frame] = []
    at, end = offset - chunk_at, len(chunk)
    while 0 <= at <= end - FRAME_HEADER_LEN and len(frames) != most:
        length, stored = decode_at(chunk, at)
        begin = at + FRAME_HEADER_LEN
        if not 0 < length <= min(end - begin, PAYLOAD_LEN_MAX):
            break
        body = view[begin : begin + length]
        if not payload_matches(stored, body):
            break
        header = FrameHeader(KIND_RECORDS, 0, length, stored, 0, 0, 1, 0)
        frames.append(Frame(chunk_at + at, chunk_at + begin + length, header, body))
        at = begin + length
    return frames


def check_storable(
    value: bytes | None,
    key: bytes | None,
    headers: Headers,
    timestamp: int | None,
    topic: str | None,
) -> None:
    """Raises RecordRefused for a record that the format cannot store."""
    parts = {
        "a null value": value is None,
        "an empty value (the Go program panics on it)": value == b"",
        f"a value of more than {PAYLOAD_LEN_MAX} bytes": len(value or b"") > PAYLOAD_LEN_MAX,
        "a key": key is not None,
        "headers": bool(headers),
        "a timestamp": timestamp is not None,
        "a topic": topic is not None,
    }
    for part, is_there in parts.items():
        if is_there:
            hint = 'append only a value, or use format="aolog"'
            raise RecordRefused(f"format 1 cannot store {part}", hint=hint)
