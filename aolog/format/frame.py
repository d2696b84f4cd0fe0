"""The frame: header and body, the unit of checksum and of atomicity. Pure: bytes in, values out.

    offset size  field          (little-endian; the frame begins at a multiple of 8 in its slab)
    0      u16   magic          A0 F2
    2      u8    kind           1 records, 2 mark, 3 seal
    3      u8    flags          bit 0: every byte before this frame was durable when the frame
                                was written; bits 4-7: codec of a body of records
    4      u32   body_len       bytes of body without its padding
    8      u64   body_hash      xxh3-64 of the body and its padding, as they are stored
    16     i64   timestamp_us   of records without a timestamp of their own
    24     u32   ordinal        records in this slab before this frame
    28     u32   count          records in this frame
    32     u32   columns        which columns the body has (columns.py)
    36     u32   head_hash      xxh32 of bytes 0..35, seeded from (offset in slab, salt)

The body follows, padded with zeros to a multiple of 8.

No field is used before `head_hash` is right. The seed binds a header to its place, so a stale or
misdirected block is not valid. Nothing in a frame depends on the slab's base address.
"""

from __future__ import annotations

import struct
import sys
from functools import partial
from typing import NamedTuple, TypeAlias

import xxhash
from xxhash import xxh3_64_intdigest, xxh32_intdigest

if sys.byteorder != "little":  # columns are used as they are stored, without conversion
    raise ImportError("aolog needs a little-endian machine: its columns are little-endian")

Buffer: TypeAlias = bytes | memoryview

MAGIC = 0xF2A0
MAGIC_BYTES = MAGIC.to_bytes(2, "little")

KIND_RECORDS = 1
KIND_MARK = 2  # no records: stores the durable flag if no batch follows
KIND_SEAL = 3  # the slab's last frame: summary and index (slab.py)

FLAG_DURABLE = 0x01
CODEC_SHIFT = 4  # bits 4 to 7: compression.py
FLAGS_WITH_CODEC = 1 << CODEC_SHIFT  # the least flags of a frame with a codec
# Flags that no writer sets. Marks and seals have no codec: recovery must be able to read them.
FLAGS_NEVER = {KIND_RECORDS: 0x0E, KIND_MARK: 0xFE, KIND_SEAL: 0xFE}

ALIGNMENT = 8
_HEADER = struct.Struct(
    "<"
    "H"  # magic
    "B"  # kind
    "B"  # flags
    "I"  # body_len
    "Q"  # body_hash
    "q"  # timestamp_us
    "I"  # ordinal
    "I"  # count
    "I"  # columns
    "I"  # head_hash
)
FRAME_HEADER_LEN = 40
assert _HEADER.size == FRAME_HEADER_LEN
_HASHED_LEN = FRAME_HEADER_LEN - 4
_HASHED = struct.Struct("<HBBIQqIII")  # the header without its head_hash
_HEAD_HASH = struct.Struct("<I")
assert _HASHED.size == _HASHED_LEN

_JOINED_MAX = 4096  # parts of a body up to this size are joined: cheaper than a hash in parts
# A frame's length, with header and padding, must fit u32.
BODY_LEN_MAX = (1 << 32) - 1 - FRAME_HEADER_LEN - ALIGNMENT
_ZEROS = [bytes(n) for n in range(ALIGNMENT)]


class FrameHeader(NamedTuple):
    """The fields of an intact header."""

    kind: int
    flags: int
    body_len: int
    body_hash: int
    timestamp_us: int
    ordinal: int
    records: int
    columns: int

    @property
    def durable(self) -> bool:
        """Every byte before the frame was durable when the frame was written."""
        return bool(self.flags & FLAG_DURABLE)

    @property
    def frame_len(self) -> int:
        """Bytes from the beginning of the frame to the beginning of the next one."""
        return FRAME_HEADER_LEN + self.body_len + -self.body_len % ALIGNMENT


class Frame(NamedTuple):
    """An intact frame. offset, end: in the slab. body: a view without padding."""

    offset: int
    end: int
    header: FrameHeader
    body: memoryview


_make_header = partial(tuple.__new__, FrameHeader)  # takes a third of the time of FrameHeader()
_make_frame = partial(tuple.__new__, Frame)


def padding(length: int) -> int:
    """How many zeros follow `length` bytes, up to a multiple of 8."""
    return -length % ALIGNMENT


def _seed(offset: int, salt: int) -> int:
    return (salt ^ (offset >> 3)) & 0xFFFFFFFF


def encode_header(header: FrameHeader, offset: int, salt: int) -> bytes:
    """The 40 bytes of this header at this offset."""
    head = _HASHED.pack(MAGIC, *header)
    return head + _HEAD_HASH.pack(xxh32_intdigest(head, _seed(offset, salt)))


def encode_frame(
    offset: int,
    salt: int,
    parts: list[Buffer],
    kind: int = KIND_RECORDS,
    flags: int = 0,
    timestamp_us: int = 0,
    ordinal: int = 0,
    count: int = 0,
    columns: int = 0,
) -> tuple[list[Buffer], int]:
    """The frame at `offset` whose body is `parts` joined: buffers to be written in order, and their
    total length. The caller keeps the body within `BODY_LEN_MAX`."""
    body_len = len(parts[0]) if len(parts) == 1 else sum(map(len, parts))
    assert offset % ALIGNMENT == 0
    assert body_len <= BODY_LEN_MAX
    if pad := -body_len % ALIGNMENT:
        parts = [*parts, _ZEROS[pad]]
    if len(parts) > 1 and body_len <= _JOINED_MAX:
        parts = [b"".join(parts)]
    if len(parts) == 1:
        body_hash = xxh3_64_intdigest(parts[0])
    else:
        digest = xxhash.xxh3_64()
        for part in parts:
            digest.update(part)
        body_hash = digest.intdigest()
    head = _HASHED.pack(
        MAGIC, kind, flags, body_len, body_hash, timestamp_us, ordinal, count, columns
    )
    head += _HEAD_HASH.pack(xxh32_intdigest(head, (salt ^ (offset >> 3)) & 0xFFFFFFFF))
    return [head, *parts], FRAME_HEADER_LEN + body_len + pad


def decode_header(buffer: Buffer, at: int, offset: int, salt: int) -> FrameHeader | None:
    """The header at `buffer[at:]`, which is at `offset` in a slab with this salt. None if the bytes are
    not a header, or are one with a kind or flags that no writer sets. `buffer` has 40 bytes there."""
    fields = _HEADER.unpack_from(buffer, at)
    if fields[0] != MAGIC:
        return None
    hashed = buffer[at : at + _HASHED_LEN]
    if xxh32_intdigest(hashed, _seed(offset, salt)) != fields[9]:
        return None
    header = _make_header(fields[1:9])
    if header.kind not in FLAGS_NEVER or header.flags & FLAGS_NEVER[header.kind]:
        return None
    if header.body_len > BODY_LEN_MAX:
        return None
    if header.records > header.frame_len:  # record i has the frame's address + i
        return None
    return header


def body_matches(header: FrameHeader, padded_body: Buffer) -> bool:
    """Whether the body, with its padding, is as it was written."""
    return xxh3_64_intdigest(padded_body) == header.body_hash


def intact_frames(
    chunk: bytes, view: memoryview, chunk_at: int, offset: int, salt: int, most: int
) -> list[Frame]:
    """The intact frames from `offset` on, up to the first that is incomplete or not intact, and at
    most `most`. chunk: the slab's bytes from `chunk_at` on. view: a view of the chunk.

    Makes the checks of `decode_header` and `body_matches` in one loop: calling those takes more time
    than hashing.
    """
    frames: list[Frame] = []
    unpack, at, size = _HEADER.unpack_from, offset - chunk_at, len(chunk)
    while 0 <= at <= size - FRAME_HEADER_LEN and len(frames) != most:
        fields = unpack(chunk, at)
        magic, kind, flags, body_len, body_hash, _, _, records, _, head_hash = fields
        if magic != MAGIC:
            break
        seed = (salt ^ (offset >> 3)) & 0xFFFFFFFF
        if xxh32_intdigest(chunk[at : at + _HASHED_LEN], seed) != head_hash:
            break
        padded_len = body_len + -body_len % ALIGNMENT
        length = FRAME_HEADER_LEN + padded_len
        if kind not in FLAGS_NEVER or flags & FLAGS_NEVER[kind]:
            break
        if records > length or at + length > size:
            break
        begin = at + FRAME_HEADER_LEN
        at += length
        body = view[begin:at]
        if xxh3_64_intdigest(body) != body_hash:
            break
        if body_len != padded_len:
            body = body[:body_len]
        end = offset + length
        frames.append(_make_frame((offset, end, _make_header(fields[1:9]), body)))
        offset = end
    return frames
