"""The body of a frame of records: columns in Arrow's own form. Pure: lists in, bytes out, and back.

A single record with only a value has `columns == 0`, and its body is the value. Every other body has
the columns that are used, in this order, each aligned to 8 bytes (bits of the header's `columns`):

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
"""

from __future__ import annotations

import struct
from array import array
from contextlib import suppress
from functools import partial
from itertools import accumulate, chain
from typing import TYPE_CHECKING, Any, NamedTuple

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
from aolog.record import Record

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from aolog.record import Headers

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
    """The columns do not fit a frame: its lengths and offsets are u32."""


class BinaryColumn(NamedTuple):
    """Arrow's buffers of one column, as views.

    validity: None if no entry is null. offsets: (n+1) x u32 as bytes; of a part of a column they are those of the
    whole one. data: the bytes.
    """

    validity: memoryview | None
    offsets: memoryview
    data: memoryview

    @property
    def entries(self) -> int:
        """The number of entries."""
        return len(self.offsets) // _U32.size - 1

    def part(self, first: int, end: int) -> BinaryColumn:
        """The entries in [first, end). Offsets and bytes are not copied: the first offset may not be 0."""
        bits = None
        if self.validity is not None:
            kept = int.from_bytes(self.validity[first >> 3 : (end + 7) >> 3], "little")
            kept = kept >> (first & 7) & ((1 << (end - first)) - 1)
            bits = memoryview(kept.to_bytes((end - first + 7) // 8, "little"))
        offsets = self.offsets[_U32.size * first : _U32.size * (end + 1)]
        return BinaryColumn(bits, offsets, self.data)

    def to_list(self) -> list[bytes | None]:
        """Copies of the entries."""
        return list(speed.Rows(None, (speed.binary(self),), 0, self.entries))


class HeaderColumn(NamedTuple):
    """Headers of all records. offsets: (n+1) x u32 as bytes, into names and values."""

    offsets: memoryview
    names: BinaryColumn
    values: BinaryColumn

    def part(self, first: int, end: int) -> HeaderColumn:
        """Those of the records in [first, end)."""
        return self._replace(offsets=self.offsets[_U32.size * first : _U32.size * (end + 1)])


class Columns(NamedTuple):
    """The columns of a body, as views. value: of a single record without columns; otherwise `values` is
    set. timestamps: n x i64 as bytes."""

    records: int
    value: memoryview | None = None
    values: BinaryColumn | None = None
    timestamps: memoryview | None = None
    keys: BinaryColumn | None = None
    topic: str | None = None
    topics: BinaryColumn | None = None
    headers: HeaderColumn | None = None

    def part(self, first: int, end: int) -> Columns:
        """Those of the records in [first, end), which are not all of them."""
        return Columns(
            end - first,
            None,
            self.values and self.values.part(first, end),
            self.timestamps and self.timestamps[8 * first : 8 * end],
            self.keys and self.keys.part(first, end),
            self.topic,
            self.topics and self.topics.part(first, end),
            self.headers and self.headers.part(first, end),
        )


def records_of(
    columns: Columns, addresses: speed.Column, timestamp_us: int | None, first: int = 0
) -> speed.Rows:
    """An iterator over the Records from `first` on; each is made when it is read. addresses: as of speed.rising, or
    speed.numbers. timestamp_us: of records without a time of their own."""
    _, value, values, timestamps, keys, topic, topics, headers = columns
    given = (
        addresses,
        speed.shared(timestamp_us) if timestamps is None else speed.numbers(timestamps),
        speed.shared(None) if keys is None else speed.binary(keys),
        speed.binary(values or lone(value)),
        speed.shared(()) if headers is None else speed.pairs(headers),
        speed.shared(topic) if topics is None else speed.text(topics),
    )
    return speed.Rows(Record, given, first, columns.records)


def lone(value: memoryview | None) -> BinaryColumn:
    """The value of a single record as a column."""
    data = value if value is not None else memoryview(b"")
    return BinaryColumn(None, memoryview(_U32.pack(0) + _U32.pack(len(data))), data)


# --- encode ---------------------------------------------------------------------------------


class BodyBuilder:
    """The parts of a body in order. Each begins at a multiple of 8."""

    def __init__(self) -> None:
        self.parts: list[Buffer] = []
        self.length = 0

    def put(self, part: Buffer) -> None:
        """Adds a part of a column."""
        if pad := padding(self.length):
            self.parts.append(bytes(pad))
        self.parts.append(part)
        self.length += pad + len(part)

    def column(self, column: BinaryColumn) -> bool:
        """Adds a binary column. Returns whether it has nulls."""
        if column.validity is not None:
            self.put(column.validity[: (column.entries + 7) // 8])
        offsets, begin, end = rebased(column.offsets)
        self.put(offsets)
        self.put(column.data[begin:end])
        return column.validity is not None

    def binary(self, entries: Sequence[bytes | None]) -> bool:
        """Adds a binary column. Returns whether it has nulls. Raises BodyTooLarge."""
        column = _column(entries)
        nulls = column is None
        if column is None:
            self.put(bitmap(entries))
            column = _column([entry or b"" for entry in entries])
            assert column is not None
        self.put(column)
        return nulls


def offsets_of(lengths: Iterable[int]) -> bytes:
    """The n+1 offsets of entries with these lengths. Raises BodyTooLarge."""
    try:
        return array("I", accumulate(lengths, initial=0)).tobytes()
    except OverflowError:
        raise BodyTooLarge from None


def rebased(offsets: memoryview) -> tuple[Buffer, int, int]:
    """Offsets that begin at 0; and the first and the last of them, as they were."""
    numbers = offsets.cast("I")
    begin, end = numbers[0], numbers[-1]
    if begin == 0:
        return offsets, begin, end
    import numpy as np

    return (np.frombuffer(offsets, np.uint32) - np.uint32(begin)).tobytes(), begin, end


def encode_columns(
    values: Sequence[bytes | None],
    *,
    timestamps: Sequence[int] | None = None,
    keys: Sequence[bytes | None] | None = None,
    topics: Sequence[str | None] | None = None,
    headers: Sequence[Headers] | None = None,
) -> tuple[int, list[Buffer]]:
    """(bits of the columns, parts of the body in order). Raises BodyTooLarge for more than 4 GiB.

    Each argument has an entry for each record, or is None if no record uses it.
    """
    if timestamps is None and keys is None and topics is None and headers is None:
        lone_value = len(values) == 1
        part = values[0] if lone_value else _column(values)
        if part is not None:  # otherwise there is a null among the values
            if len(part) > BODY_LEN_MAX:
                raise BodyTooLarge
            return 0 if lone_value else VALUES, [part]
    bits = VALUES
    body = BodyBuilder()
    if timestamps is not None:
        bits |= TIMESTAMPS
        body.put(array("q", timestamps).tobytes())
    if keys is not None:
        bits |= KEYS | (KEY_NULLS if body.binary(keys) else 0)
    if topics is not None and topics[0] is not None and len(set(topics)) == 1:
        bits |= TOPIC
        name = topics[0].encode()
        body.put(_U32.pack(len(name)) + name)
    elif topics is not None:
        nulls = body.binary([None if t is None else t.encode() for t in topics])
        bits |= TOPICS | (TOPIC_NULLS if nulls else 0)
    if headers is not None:
        pairs = list(chain.from_iterable(headers))
        body.put(offsets_of(map(len, headers)))
        body.binary([name.encode() for name, _ in pairs])
        nulls = body.binary([value for _, value in pairs])
        bits |= HEADERS | (HEADER_NULLS if nulls else 0)
    bits |= VALUE_NULLS if body.binary(values) else 0
    if body.length > BODY_LEN_MAX:
        raise BodyTooLarge
    return bits, body.parts


def columns_of(values: Sequence[bytes | None], **others: Any) -> Columns:
    """As `encode_columns`, of at least one record."""
    bits, parts = encode_columns(values, **others)
    return decode_columns(memoryview(b"".join(parts)), len(values), bits)


def _column(values: Sequence[bytes | None]) -> bytes | None:
    """Offsets and data; None if a value is null."""
    try:
        return speed.column(list(values))
    except OverflowError:
        raise BodyTooLarge from None


def bitmap(entries: Sequence[object]) -> bytes:
    """A bit for each entry: whether it is not None."""
    bits = bytearray((len(entries) + 7) // 8)
    for i, entry in enumerate(entries):
        if entry is not None:
            bits[i >> 3] |= 1 << (i & 7)
    return bytes(bits)


# --- decode ---------------------------------------------------------------------------------


_make_binary = partial(tuple.__new__, BinaryColumn)  # takes a third of the time of BinaryColumn()
_make_columns = partial(tuple.__new__, Columns)


def _cut(body: memoryview, at: int, length: int) -> tuple[memoryview, int]:
    """(`length` bytes of the body from the first multiple of 8 at or after `at`, their end)."""
    begin = at + -at % ALIGNMENT
    end = begin + length
    if end > len(body):
        raise Malformed(f"column ends at {end}, body at {len(body)}")
    return body[begin:end], end


def _offsets(
    body: memoryview, at: int, count: int, unchecked: list[memoryview]
) -> tuple[memoryview, int, int]:
    """(n+1 offsets as bytes, their end, the last offset). Adds them to `unchecked`: the caller checks
    that they do not fall."""
    offsets, end = _cut(body, at, 4 * count + 4)
    numbers = offsets.cast("I")
    if numbers[0] != 0:
        raise Malformed("offsets do not begin at 0")
    unchecked.append(numbers)
    return offsets, end, numbers[count]


def _binary(
    body: memoryview, at: int, count: int, unchecked: list[memoryview], *, nulls: bool = False
) -> tuple[BinaryColumn, int]:
    """(the binary column that begins at or after `at`, its end)."""
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


def check_text(column: BinaryColumn) -> None:
    """Raises Malformed if an entry is not UTF-8 by itself."""
    if _text(column.data).isascii():
        return
    if not speed.rise([column.offsets.cast("I")]):
        raise Malformed("offsets fall")
    for entry in column.to_list():
        _text(entry or b"")


def decode_columns(body: memoryview, count: int, bits: int) -> Columns:
    """The columns of an intact body. Raises Malformed."""
    unchecked: list[memoryview] = []
    columns = _decode(body, count, bits, unchecked)
    if not speed.rise(unchecked):
        raise Malformed("offsets fall")
    return columns


def _raw(flags: int, body: memoryview, *, codecs: bool) -> memoryview:
    """The body, decompressed if it has a codec."""
    if flags < FLAGS_WITH_CODEC:
        return body
    if not codecs:
        raise Malformed(f"flags {flags:#x} in a slab without codecs")
    return unpack(flags, body)


def decode_run(frames: list[Frame], *, codecs: bool = False) -> list[Columns | None]:
    """The columns of each frame; None for a malformed frame, and for a frame without records. Checks
    the offsets of all frames in one step. Raises CodecUnavailable."""
    unchecked: list[memoryview] = []
    with suppress(Malformed):
        decoded = [
            _decode(
                body if flags < FLAGS_WITH_CODEC else _raw(flags, body, codecs=codecs),
                records,
                bits,
                unchecked,
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
            head = frame.header
            body = _raw(head.flags, frame.body, codecs=codecs)
            return decode_columns(body, head.records, head.columns)
    return None


def _decode(body: memoryview, count: int, bits: int, unchecked: list[memoryview]) -> Columns:
    """The columns. Adds all offsets to `unchecked`, for the caller to check."""
    if bits == 0:
        if count != 1:
            raise Malformed(f"a body without columns has one record, not {count}")
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
        check_text(topics)
    if bits & HEADERS:
        offsets, at, entries = _offsets(body, at, count, unchecked)
        names, at = _binary(body, at, entries, unchecked)
        check_text(names)
        of, at = _binary(body, at, entries, unchecked, nulls=bool(bits & HEADER_NULLS))
        headers = HeaderColumn(offsets, names, of)
    values, at = _binary(body, at, count, unchecked, nulls=bool(bits & VALUE_NULLS))
    if at != len(body):
        raise Malformed("bytes after the last column")
    return _make_columns((count, None, values, timestamps, keys, topic, topics, headers))
