"""The slab: header, names, seal. Pure: bytes in, values out.

A slab is a file named by the address at which it begins. It holds, in order:

    0      header, first copy (512 bytes, zeros to 4096)
    4096   header, second copy (512 bytes, zeros to 8192)
    8192   frames
    ...    the seal, a frame like any other, when the writer is done with the slab

Header copies stand alone in 4-KiB sectors, so that no append rewrites a sector of theirs. A
third copy is in the seal. The seal's body ends with a trailer, so a sealed slab is known from
its last 24 bytes: opening and seeking read the seal's index, not the slab.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from typing import Final, NamedTuple

import xxhash

from aolog.format.frame import ALIGNMENT, KIND_SEAL, Buffer, encode_frame, padding

__all__ = [
    "ADDRESS_END",
    "DATA_BEGIN",
    "HEADER_COPIES",
    "HEADER_LEN",
    "INDEX_SPACING",
    "MAGIC",
    "NO_BASE",
    "NO_PREDECESSOR",
    "NO_TIMESTAMP",
    "ORDINALS_MAX",
    "TOPIC_LEN_MAX",
    "TRAILER_LEN",
    "VERSION",
    "VERSION_PLAIN",
    "Index",
    "NewerVersion",
    "Seal",
    "SlabHeader",
    "decode_seal_body",
    "decode_slab_header",
    "decode_trailer",
    "encode_seal",
]

VERSION = 3  # the highest that is read, and written where bodies may be compressed
VERSION_PLAIN = 2  # written else: who reads no codecs reads it
# Like PNG's: a high bit and both line ends catch transfers as text. Read as u32le the first
# four exceed 0xFF000000, which no format-1 slab begins with (format 1: a length).
MAGIC = b"\x89AO\xff\r\n\x1a\n"

HEADER_LEN = 512  # one sector of the smallest kind, written as one
HEADER_COPIES = (0, 4096)
DATA_BEGIN = 8192

ADDRESS_END = 1 << 63  # addresses are below it: Spark's long, Go's int
TOPIC_LEN_MAX = 249  # bytes; Kafka's bound for a topic's name
ORDINALS_MAX = (1 << 32) - 1  # records a slab: ordinals in it are u32
NO_BASE = (1 << 64) - 1  # of a pending slab, whose place is not known yet
NO_PREDECESSOR = (1 << 64) - 1
NO_TIMESTAMP = -(1 << 63)

FLAG_SYNCED = 0x1  # the writer's policy is not "never"
FLAG_ORDINAL_UNSURE = 0x2  # the predecessor was lost whole: base_ordinal is a lower bound

INDEX_SPACING = 16 << 10  # bytes of slab an index entry: a seek reads no more than this

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
    "I"  # epoch: grows with every unclean open
    "q"  # created_us
    "Q"  # predecessor_base
    "Q"  # predecessor_end: address behind its last intact frame
    "Q"  # predecessor_cut: bytes of torn tail cut there
    "q"  # greatest_before_us: greatest timestamp in the log before this slab
    "Q"  # slab_bytes: no frame begins at or behind base + slab_bytes
    "Q"  # reach: no address of this slab is at or behind base + reach
    "16s"  # boot_id of the machine that wrote it
    "Q"  # inode of the file when it was written, and its generation: see File.identity
    "H"  # length of topic
)
_HASH = struct.Struct("<I")
assert _HEADER.size + TOPIC_LEN_MAX + _HASH.size <= HEADER_LEN


class NewerVersion(NamedTuple):
    """A header with our magic and a version that this release does not know."""

    version: int


class SlabHeader(NamedTuple):
    """What a slab says of itself. Fields as in the layout above."""

    topic_uuid: bytes
    base: int
    base_ordinal: int
    salt: int
    epoch: int
    created_us: int
    slab_bytes: int
    reach: int
    predecessor_base: int = NO_PREDECESSOR
    predecessor_end: int = 0
    predecessor_cut: int = 0
    greatest_before_us: int = NO_TIMESTAMP
    boot_id: bytes = bytes(16)
    inode: int = 0
    synced: bool = True
    ordinal_unsure: bool = False
    topic: str | None = None
    compressed: bool = False

    def encode(self) -> bytes:
        """The 512 bytes of a copy."""
        topic = (self.topic or "").encode()
        assert len(topic) <= TOPIC_LEN_MAX
        flags = FLAG_SYNCED * self.synced | FLAG_ORDINAL_UNSURE * self.ordinal_unsure
        fixed = _HEADER.pack(
            MAGIC,
            VERSION if self.compressed else VERSION_PLAIN,
            HEADER_LEN,
            flags,
            self.topic_uuid,
            self.base,
            self.base_ordinal,
            self.salt,
            self.epoch,
            self.created_us,
            self.predecessor_base,
            self.predecessor_end,
            self.predecessor_cut,
            self.greatest_before_us,
            self.slab_bytes,
            self.reach,
            self.boot_id,
            self.inode,
            len(topic),
        )
        hashed = (fixed + topic).ljust(HEADER_LEN - _HASH.size, b"\0")
        return hashed + _HASH.pack(xxhash.xxh32_intdigest(hashed))

    def encode_prelude(self) -> bytes:
        """The slab's first 8192 bytes: both copies and their padding."""
        copy = self.encode()
        return b"".join(copy.ljust(DATA_BEGIN - HEADER_COPIES[1], b"\0") for _ in HEADER_COPIES)


def decode_slab_header(copy: bytes) -> SlabHeader | NewerVersion | None:
    """The header in these 512 bytes; None if they are damaged or none of ours."""
    if len(copy) < HEADER_LEN or not copy.startswith(MAGIC):
        return None
    (version,) = struct.unpack_from("<H", copy, 8)
    (stored,) = _HASH.unpack_from(copy, HEADER_LEN - _HASH.size)
    if stored != xxhash.xxh32_intdigest(copy[: HEADER_LEN - _HASH.size]):
        return NewerVersion(version) if version > VERSION else None
    if version not in {VERSION, VERSION_PLAIN}:
        return NewerVersion(version)
    fields = _HEADER.unpack_from(copy)
    flags, topic_len = fields[3], fields[18]
    base, base_ordinal, predecessor_end, slab_bytes, reach = (fields[i] for i in (5, 6, 11, 14, 15))
    if topic_len > TOPIC_LEN_MAX:
        return None
    place = 0 if base == NO_BASE else base
    if max(place, base_ordinal, predecessor_end, slab_bytes, reach) >= ADDRESS_END:
        return None  # no writer comes so far, and what follows from it would not fit its fields
    try:
        topic = str(copy[_HEADER.size : _HEADER.size + topic_len], "utf-8")
    except UnicodeDecodeError:
        return None
    return SlabHeader(
        topic_uuid=fields[4],
        base=base,
        base_ordinal=base_ordinal,
        salt=fields[7],
        epoch=fields[8],
        created_us=fields[9],
        predecessor_base=fields[10],
        predecessor_end=predecessor_end,
        predecessor_cut=fields[12],
        greatest_before_us=fields[13],
        slab_bytes=slab_bytes,
        reach=reach,
        boot_id=fields[16],
        inode=fields[17],
        synced=bool(flags & FLAG_SYNCED),
        ordinal_unsure=bool(flags & FLAG_ORDINAL_UNSURE),
        topic=topic or None,
        compressed=version == VERSION,
    )


# --- index ----------------------------------------------------------------------------------


class Mark(NamedTuple):
    """Where a forward chain of frames may begin: a frame's offset, and what precedes it."""

    offset: int
    ordinal: int
    greatest_before_us: int


class Index:
    """A mark each 16 KiB of slab: kept by the writer, stored in the seal, rebuilt by a walk.

    Not thread-safe; whoever builds it hands it over.
    """

    __slots__ = ("greatest_before_us", "offsets", "ordinals")

    def __init__(
        self,
        offsets: list[int] | None = None,
        ordinals: list[int] | None = None,
        greatest_before_us: list[int] | None = None,
    ) -> None:
        self.offsets = offsets or []
        self.ordinals = ordinals or []
        self.greatest_before_us = greatest_before_us or []

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Index) and all(
            getattr(self, name) == getattr(other, name) for name in self.__slots__
        )

    __hash__ = None  # type: ignore[assignment]  # it changes

    def note(self, offset: int, ordinal: int, greatest_before_us: int) -> None:
        """A frame begins here. Kept only if the last mark is 16 KiB away. May be repeated, also
        where a signal's handler raised in it: so the offset comes last."""
        if not self.offsets or offset - self.offsets[-1] >= INDEX_SPACING:
            n = len(self.offsets)
            self.ordinals[n:] = [ordinal]
            self.greatest_before_us[n:] = [greatest_before_us]
            self.offsets.append(offset)

    def at_offset(self, offset: int) -> Mark | None:
        """The last mark at or before an offset in the slab."""
        return self._mark(bisect_right(self.offsets, offset) - 1)

    def at_ordinal(self, ordinal: int) -> Mark | None:
        """The last mark with no more than `ordinal` records of the slab before it."""
        return self._mark(bisect_right(self.ordinals, ordinal) - 1)

    def at_time(self, timestamp_us: int) -> Mark | None:
        """The last mark with only earlier timestamps of the slab before it."""
        return self._mark(bisect_right(self.greatest_before_us, timestamp_us - 1) - 1)

    def _mark(self, i: int) -> Mark | None:
        if i < 0:
            return None
        return Mark(self.offsets[i], self.ordinals[i], self.greatest_before_us[i])

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
        """The columns at `body[at:]`; None if they do not fit there."""
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
    "Q"  # hash of the frame headers, in order (xxh3-64), each of which holds its body's
    "I"  # entries in the index
    "I"  # 0
)
_TRAILER = struct.Struct(
    "<"
    "8s"  # magic
    "Q"  # offset of the seal's frame
    "I"  # salt
    "I"  # xxh32 of the 20 bytes before
)
TRAILER_LEN = 24
assert _TRAILER.size == TRAILER_LEN
assert TRAILER_LEN % ALIGNMENT == 0  # the trailer is the last of its slab: no padding behind it


class Seal:
    """What the writer said of a slab when it was done with it.

    least_us, greatest_us: of the records' timestamps; NO_TIMESTAMP if there is no record.
    """

    __slots__ = (
        "frames", "greatest_us", "header", "headers_hash", "index", "least_us", "records",
    )  # fmt: skip  # one thing, a line or two

    def __init__(
        self,
        header: SlabHeader,
        records: int = 0,
        frames: int = 0,
        least_us: int = NO_TIMESTAMP,
        greatest_us: int = NO_TIMESTAMP,
        headers_hash: int = 0,
        index: Index | None = None,
    ) -> None:
        self.header = header
        self.records = records
        self.frames = frames
        self.least_us = least_us
        self.greatest_us = greatest_us
        self.headers_hash = headers_hash
        self.index = index or Index()

    def with_header(self, header: SlabHeader) -> Seal:
        """The same, said of a file that has another header."""
        return Seal(
            header, self.records, self.frames, self.least_us, self.greatest_us,
            self.headers_hash, self.index,
        )  # fmt: skip  # one thing, a line or two

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Seal) and all(
            getattr(self, name) == getattr(other, name) for name in self.__slots__
        )

    __hash__ = None  # type: ignore[assignment]  # it changes


def encode_seal(seal: Seal, offset: int, *, flags: int, timestamp_us: int) -> list[Buffer]:
    """The seal's frame at `offset`, as buffers to be written in order."""
    trailer = _TRAILER.pack(TRAILER_MAGIC, offset, seal.header.salt, 0)[:-4]
    trailer += _HASH.pack(xxhash.xxh32_intdigest(trailer))
    summary = _SUMMARY.pack(
        seal.records,
        seal.frames,
        seal.least_us,
        seal.greatest_us,
        seal.headers_hash,
        len(seal.index.offsets),
        0,
    )
    parts, _ = encode_frame(
        offset,
        seal.header.salt,
        [summary, seal.header.encode(), *seal.index.encode(), trailer],
        kind=KIND_SEAL,
        flags=flags,
        timestamp_us=timestamp_us,
        ordinal=seal.records,
    )
    return parts


def decode_trailer(trailer: bytes) -> tuple[int, int] | None:
    """(offset of the seal's frame, salt) from a slab's last 24 bytes; None if not sealed."""
    if len(trailer) != TRAILER_LEN or not trailer.startswith(TRAILER_MAGIC):
        return None
    _, offset, salt, stored = _TRAILER.unpack(trailer)
    if stored != xxhash.xxh32_intdigest(trailer[:-4]):
        return None
    return offset, salt


def decode_seal_body(body: memoryview) -> Seal | None:
    """The seal in a body whose hash was right; None if it is nonsense."""
    if len(body) < _SUMMARY.size + HEADER_LEN + TRAILER_LEN:
        return None
    records, frames, least, greatest, headers_hash, entries, _ = _SUMMARY.unpack_from(body)
    header = decode_slab_header(bytes(body[_SUMMARY.size : _SUMMARY.size + HEADER_LEN]))
    index = Index.decode(body, _SUMMARY.size + HEADER_LEN, entries)
    if not isinstance(header, SlabHeader) or index is None:
        return None
    return Seal(header, records, frames, least, greatest, headers_hash, index)
