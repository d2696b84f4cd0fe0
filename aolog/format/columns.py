"""The body of a frame of records: columns in Arrow's own form. Pure: lists in, bytes out, and back.

A lone record that is only a value has `columns == 0` and the value itself as its body.
Everything else is a batch: the columns that are used, in this order, each 8-aligned, values
last (bits of the header's `columns`):

    0x004 timestamps   n x i64, microseconds; absent: all have the frame's
    0x008 keys         binary column        0x010 with validity
    0x020 topic        one for all: u32 length, UTF-8
    0x040 topics       binary column        0x080 with validity; UTF-8
    0x100 headers      (n+1) x u32 offsets into m entries; then two binary columns of m:
                       names (UTF-8) and values (0x200 with validity)
    0x001 values       binary column        0x002 with validity

A binary column of n is: validity if flagged, a bitmap of n bits, least significant first,
1 = present; then (n+1) x u32 offsets, the first 0; then the bytes. These are Arrow's buffers,
so a column becomes an Arrow array without a copy.

numpy is imported only where a column is long enough to pay for it.
"""

from __future__ import annotations

import struct
from array import array
from contextlib import suppress
from functools import partial
from itertools import accumulate, chain
from typing import TYPE_CHECKING, NamedTuple

from aolog.format.compression import Malformed, unpack
from aolog.format.frame import (
    ALIGNMENT,
    BODY_LEN_MAX,
    FLAGS_WITH_CODEC,
    KIND_RECORDS,
    Buffer,
    Frame,
    padding,
)
from aolog.format.native import speed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from aolog.record import Headers

__all__ = [
    "HEADERS",
    "HEADER_NULLS",
    "KEYS",
    "KEY_NULLS",
    "TIMESTAMPS",
    "TOPIC",
    "TOPICS",
    "TOPIC_NULLS",
    "VALUES",
    "VALUE_NULLS",
    "BinaryColumn",
    "BodyBuilder",
    "BodyTooLarge",
    "Columns",
    "HeaderColumn",
    "Malformed",
    "decode_columns",
    "decode_frame",
    "decode_run",
    "encode_columns",
    "lone",
]

VALUES = 0x001
VALUE_NULLS = 0x002
TIMESTAMPS = 0x004
KEYS = 0x008
KEY_NULLS = 0x010
TOPIC = 0x020
TOPICS = 0x040
TOPIC_NULLS = 0x080
HEADERS = 0x100
HEADER_NULLS = 0x200
KNOWN = 0x3FF

_U32 = struct.Struct("<I")


class BodyTooLarge(Exception):
    """The columns would not fit a frame, whose lengths and offsets are u32."""


class BinaryColumn(NamedTuple):
    """Arrow's buffers of one column: views, nothing copied.

    validity: None if no entry is null. offsets: (n+1) x u32 as bytes. data: the bytes.
    """

    validity: memoryview | None
    offsets: memoryview
    data: memoryview

    @property
    def entries(self) -> int:
        """How many there are."""
        return len(self.offsets) // _U32.size - 1

    def to_list(self) -> list[bytes | None]:
        """Entries as objects of their own."""
        return list(speed.Rows(None, "b", (self,), 0, self.entries))


class HeaderColumn(NamedTuple):
    """Headers of all records. offsets: (n+1) x u32 as bytes, into names and values."""

    offsets: memoryview
    names: BinaryColumn
    values: BinaryColumn


class Columns(NamedTuple):
    """The columns of a body, as views. value: the lone record's, else values is set."""

    records: int
    value: memoryview | None = None
    values: BinaryColumn | None = None
    timestamps: memoryview | None = None  # n x i64 as bytes
    keys: BinaryColumn | None = None
    topic: str | None = None
    topics: BinaryColumn | None = None
    headers: HeaderColumn | None = None


def lone(value: memoryview | None) -> BinaryColumn:
    """A lone record's value as a column."""
    data = value if value is not None else memoryview(b"")
    return BinaryColumn(None, memoryview(_U32.pack(0) + _U32.pack(len(data))), data)


# --- encode ---------------------------------------------------------------------------------


class BodyBuilder:
    """The parts of a body in order, each begun at a multiple of 8."""

    def __init__(self) -> None:
        self.parts: list[Buffer] = []
        self.length = 0

    def put(self, part: Buffer) -> None:
        """A column's part."""
        if pad := padding(self.length):
            self.parts.append(bytes(pad))
        self.parts.append(part)
        self.length += pad + len(part)

    def offsets(self, lengths: Iterable[int]) -> None:
        """n+1 offsets of entries with these lengths."""
        try:
            self.put(array("I", accumulate(lengths, initial=0)).tobytes())
        except OverflowError:
            raise BodyTooLarge from None

    def binary(self, entries: Sequence[bytes | None], *, nulls: bool) -> None:
        """A binary column."""
        if nulls:
            self.put(_bitmap(entries))
        present: list[bytes | None] = [e or b"" for e in entries] if nulls else list(entries)
        column = _column(present)
        assert column is not None
        self.put(column)


def encode_columns(
    values: Sequence[bytes | None],
    *,
    timestamps: Sequence[int] | None = None,
    keys: Sequence[bytes | None] | None = None,
    topics: Sequence[str | None] | None = None,
    headers: Sequence[Headers] | None = None,
) -> tuple[int, list[Buffer]]:
    """The columns' bits and the body's parts, in order. Raises BodyTooLarge over 4 GiB.

    Each argument has one entry a record, or is None where no record uses it.
    """
    if timestamps is None and keys is None and topics is None and headers is None:
        bits, part = _encode_values(values)
        if part is not None:
            if len(part) > BODY_LEN_MAX:
                raise BodyTooLarge
            return bits, [part]
    bits = VALUES
    body = BodyBuilder()
    if timestamps is not None:
        bits |= TIMESTAMPS
        body.put(array("q", timestamps).tobytes())
    if keys is not None:
        nulls = None in keys
        bits |= KEYS | (KEY_NULLS if nulls else 0)
        body.binary(keys, nulls=nulls)
    if topics is not None and topics[0] is not None and len(set(topics)) == 1:
        bits |= TOPIC
        name = topics[0].encode()
        body.put(_U32.pack(len(name)) + name)
    elif topics is not None:
        nulls = None in topics
        bits |= TOPICS | (TOPIC_NULLS if nulls else 0)
        body.binary([None if t is None else t.encode() for t in topics], nulls=nulls)
    if headers is not None:
        entries = list(chain.from_iterable(headers))
        entry_values = [value for _, value in entries]
        nulls = None in entry_values
        bits |= HEADERS | (HEADER_NULLS if nulls else 0)
        body.offsets(map(len, headers))
        body.binary([name.encode() for name, _ in entries], nulls=False)
        body.binary(entry_values, nulls=nulls)
    nulls = None in values
    bits |= VALUE_NULLS if nulls else 0
    body.binary(values, nulls=nulls)
    if body.length > BODY_LEN_MAX:
        raise BodyTooLarge
    return bits, body.parts


def _encode_values(values: Sequence[bytes | None]) -> tuple[int, bytes | None]:
    """The commonest body, only values, in fewer calls than the rest needs; None if one is null."""
    if len(values) == 1:
        return 0, values[0]
    return VALUES, _column(list(values))


def _column(values: list[bytes | None]) -> bytes | None:
    """Offsets and data; None if one is null."""
    try:
        return speed.column(values)
    except OverflowError:
        raise BodyTooLarge from None


def _bitmap(entries: Sequence[object]) -> bytes:
    bits = bytearray((len(entries) + 7) // 8)
    for i, entry in enumerate(entries):
        if entry is not None:
            bits[i >> 3] |= 1 << (i & 7)
    return bytes(bits)


# --- decode ---------------------------------------------------------------------------------


_make_binary = partial(tuple.__new__, BinaryColumn)  # a third of the class's own call
_make_columns = partial(tuple.__new__, Columns)


def _cut(body: memoryview, at: int, length: int) -> tuple[memoryview, int]:
    """The part of the body that begins at the multiple of 8 from `at` on, and where it ends."""
    begin = at + -at % ALIGNMENT
    end = begin + length
    if end > len(body):
        raise Malformed(f"column ends at {end}, body at {len(body)}")
    return body[begin:end], end


def _offsets(
    body: memoryview, at: int, count: int, unchecked: list[memoryview]
) -> tuple[memoryview, int, int]:
    """(n+1) u32, the first 0; where they end, and the last of them. That none falls is for the
    caller."""
    offsets, end = _cut(body, at, 4 * count + 4)
    numbers = offsets.cast("I")
    if numbers[0] != 0:
        raise Malformed("offsets do not begin at 0")
    unchecked.append(numbers)
    return offsets, end, numbers[count]


def _binary(
    body: memoryview, at: int, count: int, unchecked: list[memoryview], *, nulls: bool = False
) -> tuple[BinaryColumn, int]:
    """A binary column that begins at or behind `at`, and where it ends."""
    validity = None
    if nulls:
        validity, at = _cut(body, at, (count + 7) // 8)
    offsets, at, length = _offsets(body, at, count, unchecked)
    data, at = _cut(body, at, length)
    return _make_binary((validity, offsets, data)), at


def _text(data: memoryview | bytes) -> str:
    try:
        return str(data, "utf-8")
    except UnicodeDecodeError as error:
        raise Malformed("text is not UTF-8") from error


def _check_text(column: BinaryColumn) -> None:
    """Raises where an entry is not UTF-8 by itself."""
    if _text(column.data).isascii():
        return
    if not speed.rise([column.offsets.cast("I")]):
        raise Malformed("offsets fall")
    for entry in column.to_list():
        _text(entry or b"")


def decode_columns(body: memoryview, count: int, bits: int) -> Columns:
    """The columns of a body whose hash was right. Raises Malformed if they are nonsense."""
    unchecked: list[memoryview] = []
    columns = _decode(body, count, bits, unchecked)
    if not speed.rise(unchecked):
        raise Malformed("offsets fall")
    return columns


def decode_frame(frame: Frame, *, codecs: bool = False) -> Columns:
    """The columns of an intact frame of records. codecs: whether its slab is of a version in which
    a body may be compressed. Raises Malformed, and CodecUnavailable."""
    head, body = frame.header, frame.body
    if head.flags >= FLAGS_WITH_CODEC:
        body = _codec_of(codecs)(head.flags, body)
    return decode_columns(body, head.records, head.columns)


def _codec_of(codecs: bool) -> Callable[[int, memoryview], memoryview]:  # noqa: FBT001 -- private
    return unpack if codecs else _no_codec


def _no_codec(flags: int, _: memoryview) -> memoryview:
    raise Malformed(f"flags {flags:#x} in a slab without codecs")


def decode_run(frames: list[Frame], *, codecs: bool = False) -> list[Columns | None]:
    """The columns of each frame, None where they are nonsense or where it has no records. As
    `decode_frame`, but the offsets of all are checked in one step."""
    raw = _codec_of(codecs)
    unchecked: list[memoryview] = []
    with suppress(Malformed):
        decoded = [
            _decode(
                body if flags < FLAGS_WITH_CODEC else raw(flags, body), records, bits, unchecked
            )
            if kind == KIND_RECORDS
            else None
            for _, _, (kind, flags, _, _, _, _, records, bits), body in frames
        ]
        if speed.rise(unchecked):
            return decoded
    return [_decode_or_none(frame, codecs=codecs) for frame in frames]


def _decode_or_none(frame: Frame, *, codecs: bool) -> Columns | None:
    with suppress(Malformed):
        if frame.header.kind == KIND_RECORDS:
            return decode_frame(frame, codecs=codecs)
    return None


def _decode(body: memoryview, count: int, bits: int, unchecked: list[memoryview]) -> Columns:
    """The columns, but for whether offsets fall: the columns of offsets go to `unchecked`."""
    if bits == 0:
        if count != 1:
            raise Malformed(f"a plain body holds one record, not {count}")
        return Columns(1, value=body)
    if bits & ~KNOWN or not bits & VALUES or count == 0:
        raise Malformed(f"unknown columns {bits:#x} of {count} records")
    timestamps = keys = topics = headers = topic = None
    at = 0
    if bits & TIMESTAMPS:
        timestamps, at = _cut(body, at, 8 * count)
    if bits & KEYS:
        keys, at = _binary(body, at, count, unchecked, nulls=bool(bits & KEY_NULLS))
    if bits & TOPIC:
        length, at = _cut(body, at, 4)
        end = at + _U32.unpack(length)[0]
        if end > len(body):
            raise Malformed(f"topic ends at {end}, body at {len(body)}")
        topic, at = _text(body[at:end]), end
    if bits & TOPICS:
        topics, at = _binary(body, at, count, unchecked, nulls=bool(bits & TOPIC_NULLS))
        _check_text(topics)
    if bits & HEADERS:
        offsets, at, entries = _offsets(body, at, count, unchecked)
        names, at = _binary(body, at, entries, unchecked)
        _check_text(names)
        of, at = _binary(body, at, entries, unchecked, nulls=bool(bits & HEADER_NULLS))
        headers = HeaderColumn(offsets, names, of)
    values, at = _binary(body, at, count, unchecked, nulls=bool(bits & VALUE_NULLS))
    if at != len(body):
        raise Malformed("bytes behind the last column")
    return _make_columns((count, None, values, timestamps, keys, topic, topics, headers))
