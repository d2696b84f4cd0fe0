"""The slab: header, names, seal. Pure: bytes in, values out.

A slab is a file. Its name is the address at which it begins. It holds, in order:

    0      header, first copy (512 bytes, zeros to 4096)
    4096   header, second copy (512 bytes, zeros to 8192)
    8192   frames
    ...    the seal: the last frame, written when the writer begins another slab

Each header copy has a 4-KiB sector to itself, so that no append rewrites it. A third copy is in the
seal. The seal's body ends with a trailer, so the last 24 bytes show whether a slab is sealed. Opening
and seeking then read the seal's index instead of the slab.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from typing import Final, NamedTuple

import xxhash

from aolog.format.frame import ALIGNMENT, KIND_SEAL, Buffer, Frame, encode_frame, padding

VERSION = 3  # the highest that is read; written if bodies may be compressed
VERSION_PLAIN = 2  # written otherwise: readers without codecs can read it
# Like PNG's magic: a high bit and both line ends catch transfers as text. As a u32le the first four
# bytes exceed 0xFF000000, the maximum length at the beginning of a format-1 slab.
MAGIC = b"\x89AO\xff\r\n\x1a\n"

HEADER_LEN = 512  # the smallest sector, which is written as a whole
HEADER_COPIES = (0, 4096)
DATA_BEGIN = 8192

ADDRESS_END = 1 << 63  # all addresses are less: Spark's long, Go's int
TOPIC_LEN_MAX = 249  # bytes; Kafka's maximum for a topic's name
ORDINALS_MAX = (1 << 32) - 1  # records in a slab: ordinals in a slab are u32
NO_BASE = (1 << 64) - 1  # of a pending slab, whose address is not known yet
NO_PREDECESSOR = (1 << 64) - 1
NO_TIMESTAMP = -(1 << 63)

FLAG_SYNCED = 0x1  # the writer's policy is not "never"
FLAG_ORDINAL_UNSURE = 0x2  # the whole predecessor was lost: base_ordinal is a lower bound

INDEX_SPACING = 16 << 10  # bytes of slab per index entry: the maximum that a seek reads

_HEADER = struct.Struct(
    "<"
    "8s"  # magic
    "H"  # version
    "H"  # header_len
    "I"  # flags
    "16s"  # topic_uuid
    "Q"  # base: address at which the slab begins
    "Q"  # base_ordinal: records of the log before this slab
    "I"  # salt: seeds the hash of every frame header in the slab
    "I"  # epoch: incremented by each unclean open
    "q"  # created_us
    "Q"  # predecessor_base
    "Q"  # predecessor_end: address after its last intact frame
    "Q"  # predecessor_cut: bytes of torn tail that were cut there
    "q"  # greatest_before_us: greatest timestamp in the log before this slab
    "Q"  # slab_bytes: each frame begins before base + slab_bytes
    "Q"  # reach: each address of this slab is before base + reach
    "16s"  # boot_id of the machine that wrote it
    "Q"  # inode of the file when it was written, with its generation: File.identity
    "H"  # length of topic
)
_HASH = struct.Struct("<I")
assert _HEADER.size + TOPIC_LEN_MAX + _HASH.size <= HEADER_LEN


class NewerVersion(NamedTuple):
    """A header with our magic and a version that this release does not know."""

    version: int


class SlabHeader(NamedTuple):
    """The header of a slab. The fields up to `inode` are in the order of the layout above."""

    topic_uuid: bytes
    base: int
    base_ordinal: int
    salt: int
    epoch: int
    created_us: int
    predecessor_base: int = NO_PREDECESSOR
    predecessor_end: int = 0
    predecessor_cut: int = 0
    greatest_before_us: int = NO_TIMESTAMP
    slab_bytes: int = 0
    reach: int = 0
    boot_id: bytes = bytes(16)
    inode: int = 0
    synced: bool = True
    ordinal_unsure: bool = False
    topic: str | None = None
    compressed: bool = False

    @property
    def known_ordinal(self) -> int | None:
        """Records of the log before this slab; None if only a lower bound is known."""
        return None if self.ordinal_unsure else self.base_ordinal

    def shows_sealed(self, before: SlabHeader) -> bool:
        """Whether the slab before was sealed and durable: a writer seals and syncs a slab before it
        begins the next of the same epoch."""
        return (self.predecessor_base, self.epoch) == (before.base, before.epoch)

    def encode(self) -> bytes:
        """The 512 bytes of a copy."""
        *stored, synced, ordinal_unsure, topic, compressed = self
        version = VERSION if compressed else VERSION_PLAIN
        flags = FLAG_SYNCED * synced | FLAG_ORDINAL_UNSURE * ordinal_unsure
        text = (topic or "").encode()
        assert len(text) <= TOPIC_LEN_MAX
        fixed = _HEADER.pack(MAGIC, version, HEADER_LEN, flags, *stored, len(text))
        hashed = (fixed + text).ljust(HEADER_LEN - _HASH.size, b"\0")
        return hashed + _HASH.pack(xxhash.xxh32_intdigest(hashed))

    def encode_prelude(self) -> bytes:
        """The slab's first 8192 bytes: both copies and their padding."""
        copy = self.encode()
        return b"".join(copy.ljust(DATA_BEGIN - HEADER_COPIES[1], b"\0") for _ in HEADER_COPIES)


def decode_slab_header(copy: bytes) -> SlabHeader | NewerVersion | None:
    """The header in these 512 bytes; None if they are damaged or not a header."""
    if len(copy) < HEADER_LEN or not copy.startswith(MAGIC):
        return None
    _, version, _, flags, *stored, topic_len = _HEADER.unpack_from(copy)
    (stored_hash,) = _HASH.unpack_from(copy, HEADER_LEN - _HASH.size)
    if stored_hash != xxhash.xxh32_intdigest(copy[: HEADER_LEN - _HASH.size]):
        return NewerVersion(version) if version > VERSION else None
    if version not in {VERSION, VERSION_PLAIN}:
        return NewerVersion(version)
    if topic_len > TOPIC_LEN_MAX:
        return None
    try:
        topic = str(copy[_HEADER.size : _HEADER.size + topic_len], "utf-8")
    except UnicodeDecodeError:
        return None
    synced, ordinal_unsure = bool(flags & FLAG_SYNCED), bool(flags & FLAG_ORDINAL_UNSURE)
    header = SlabHeader._make([*stored, synced, ordinal_unsure, topic or None, version == VERSION])
    base = 0 if header.base == NO_BASE else header.base
    places = base, header.base_ordinal, header.predecessor_end, header.slab_bytes, header.reach
    # No writer gets so far, and values computed from these would not fit their fields.
    return header if max(places) < ADDRESS_END else None


# --- name -----------------------------------------------------------------------------------

_BASE_DIGITS = 20  # one more than 2^63 needs


def slab_name(base: int) -> str:
    """The name of the slab that begins at this address."""
    return f"{base:0{_BASE_DIGITS}d}.slab"


def slab_base(name: str) -> int | None:
    """The address at which a slab with this name begins; None if this is not a slab's name."""
    digits = name[:_BASE_DIGITS]
    if name[_BASE_DIGITS:] != ".slab" or not (digits.isascii() and digits.isdigit()):
        return None  # without a regular expression: a log may have 100,000 names
    base = int(digits)
    return base if base < ADDRESS_END else None


# --- index ----------------------------------------------------------------------------------


class Point(NamedTuple):
    """A frame's offset, the records of the slab before it, and their greatest timestamp. A walk over
    the frames may begin there."""

    offset: int
    ordinal: int
    greatest_before_us: int


class Index(NamedTuple):
    """A point for each 16 KiB of a slab, as three columns. The writer builds it, the seal stores it, and a
    walk builds it again. Not thread-safe."""

    offsets: list[int]
    ordinals: list[int]
    greatest_before_us: list[int]

    def note(self, offset: int, ordinal: int, greatest_before_us: int) -> None:
        """Adds a point for the frame that begins here, if the last point is at least 16 KiB before."""
        if not self.offsets or offset - self.offsets[-1] >= INDEX_SPACING:
            self.offsets.append(offset)
            self.ordinals.append(ordinal)
            self.greatest_before_us.append(greatest_before_us)

    @property
    def last_offset(self) -> int:
        """Of the last point; -1 if there is none."""
        return self.offsets[-1] if self.offsets else -1

    def at_offset(self, offset: int) -> Point | None:
        """The last point at or before an offset in the slab."""
        return self._point(bisect_right(self.offsets, offset) - 1)

    def at_ordinal(self, ordinal: int) -> Point | None:
        """The last point with no more than `ordinal` records of the slab before it."""
        return self._point(bisect_right(self.ordinals, ordinal) - 1)

    def at_time(self, timestamp_us: int) -> Point | None:
        """The last point before which the slab has only earlier timestamps."""
        return self._point(bisect_right(self.greatest_before_us, timestamp_us - 1) - 1)

    def _point(self, i: int) -> Point | None:
        if i < 0:
            return None
        return Point(self.offsets[i], self.ordinals[i], self.greatest_before_us[i])

    def encode(self) -> list[Buffer]:
        """Three columns: offsets u64, greatest timestamps i64, ordinals u32."""
        n = len(self.offsets)
        ordinals = struct.pack(f"<{n}I", *self.ordinals)
        return [
            struct.pack(f"<{n}Q", *self.offsets),
            struct.pack(f"<{n}q", *self.greatest_before_us),
            ordinals + bytes(padding(len(ordinals))),
        ]

    @classmethod
    def decode(cls, body: memoryview, at: int, entries: int) -> Index | None:
        """The index at `body[at:]`; None if it does not fit there."""
        begin_times, begin_ordinals = at + 8 * entries, at + 16 * entries
        end = begin_ordinals + 4 * entries
        if end > len(body):
            return None
        return cls(
            body[at:begin_times].cast("Q").tolist(),
            body[begin_ordinals:end].cast("I").tolist(),
            body[begin_times:begin_ordinals].cast("q").tolist(),
        )


# --- seal -----------------------------------------------------------------------------------

TRAILER_MAGIC: Final = b"AOLOGEND"
_SUMMARY = struct.Struct(
    "<"
    "Q"  # records
    "Q"  # frames
    "q"  # least timestamp
    "q"  # greatest timestamp
    "Q"  # headers_hash: xxh3-64 of all frame headers in order; each has its body's hash
    "I"  # entries in the index
    "I"  # 0
)
_TRAILER = struct.Struct(
    "<"
    "8s"  # magic
    "Q"  # offset of the seal's frame
    "I"  # salt
    "I"  # xxh32 of the previous 20 bytes
)
TRAILER_LEN = 24
assert _TRAILER.size == TRAILER_LEN
assert TRAILER_LEN % ALIGNMENT == 0  # no padding after the trailer: it ends the slab


class Seal(NamedTuple):
    """The seal of a slab: a copy of its header, a summary of its frames, and the index. The fields
    between header and index are in the order of the layout above.

    least_us, greatest_us: of the records' timestamps; NO_TIMESTAMP if there is no record.
    """

    header: SlabHeader
    records: int
    frames: int
    least_us: int
    greatest_us: int
    headers_hash: int
    index: Index  # type: ignore[assignment]  # tuple.index, which nobody calls


def encode_seal(seal: Seal, offset: int, *, flags: int, timestamp_us: int) -> list[Buffer]:
    """The seal's frame at `offset`, as buffers to be written in order."""
    salt = seal.header.salt
    trailer = _TRAILER.pack(TRAILER_MAGIC, offset, salt, 0)[: -_HASH.size]
    trailer += _HASH.pack(xxhash.xxh32_intdigest(trailer))
    summary = _SUMMARY.pack(*seal[1:6], len(seal.index.offsets), 0)
    parts, _ = encode_frame(
        offset,
        salt,
        [summary, seal.header.encode(), *seal.index.encode(), trailer],
        kind=KIND_SEAL,
        flags=flags,
        timestamp_us=timestamp_us,
        ordinal=seal.records,
    )
    return parts


def encode_seal_again(seal: Seal, frame: Frame, header: SlabHeader) -> list[Buffer]:
    """The seal in this frame with another header. A header has a fixed size, so the frame keeps its
    length."""
    head, again = frame.header, seal._replace(header=header)
    return encode_seal(again, frame.offset, flags=head.flags, timestamp_us=head.timestamp_us)


def decode_trailer(trailer: bytes) -> tuple[int, int] | None:
    """(offset of the seal's frame, salt) from a slab's last 24 bytes; None if they are not a trailer."""
    if len(trailer) != TRAILER_LEN or not trailer.startswith(TRAILER_MAGIC):
        return None
    _, offset, salt, stored = _TRAILER.unpack(trailer)
    if stored != xxhash.xxh32_intdigest(trailer[:-4]):
        return None
    return offset, salt


def decode_seal_body(body: memoryview) -> Seal | None:
    """The seal in the body of an intact frame; None if the body is malformed."""
    if len(body) < _SUMMARY.size + HEADER_LEN + TRAILER_LEN:
        return None
    records, frames, least_us, greatest_us, headers_hash, entries, _ = _SUMMARY.unpack_from(body)
    header = decode_slab_header(bytes(body[_SUMMARY.size : _SUMMARY.size + HEADER_LEN]))
    index = Index.decode(body, _SUMMARY.size + HEADER_LEN, entries)
    if not isinstance(header, SlabHeader) or index is None:
        return None
    return Seal(header, records, frames, least_us, greatest_us, headers_hash, index)
