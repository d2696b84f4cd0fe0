"""What damaged frames still hold. It is unverified: it is printed, and never written into a log.

Two kinds of damaged frames still hold something. (1) The header is intact and the body's hash is
wrong: the header says how many records there were and which columns, and every entry with plausible
offsets is cut out of the body, in which at least one byte is wrong. (2) The header is damaged and the
body has the hash that the header names: the body is intact, and the header's other fields are taken
as they are. A slab without a header has lost its salt too, so only the second kind is left, unless a
trailer still has the salt.

Each record has the slab and offset of its frame, its index in the frame, the address that it would
have had, a reason ("body": a byte of the frame's body is wrong; "header": a byte of its header), and
what was found of timestamp_us, topic, key_base64, value_base64 and headers ([[name, base64], ...]).
Fields that could not be read are absent; null is a null that was appended.
"""

from __future__ import annotations

import base64
import contextlib
import struct
from typing import TYPE_CHECKING, Any, NamedTuple

from aolog.errors import CodecUnavailable
from aolog.format import columns
from aolog.format.compression import Malformed, is_known, unpack
from aolog.format.frame import (
    ALIGNMENT,
    BODY_LEN_MAX,
    FLAGS_WITH_CODEC,
    FRAME_HEADER_LEN,
    KIND_RECORDS,
    MAGIC_BYTES,
    FrameHeader,
    body_matches,
    decode_header,
    padding,
)
from aolog.format.slab import DATA_BEGIN

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aolog.maintenance.audit import SlabAudit
    from aolog.storage.file import File
    from aolog.storage.storage import Storage

__all__ = ["Salvaged", "rescue", "salvage_slab"]

_CHUNK_BYTES = 1 << 20
_FIELDS = struct.Struct("<BBIQqIII")  # a header's, behind the magic; frame.py has the table
# Bytes of bodies that may be hashed for each byte of a damaged range: junk that is full of
# magics must not make the search quadratic.
_HASHED_PER_BYTE = 16


class Salvaged(NamedTuple):
    """A record of a damaged frame. nth: its index in the frame. fields: those that were found."""

    slab: int
    offset: int
    nth: int
    reason: str
    fields: dict[str, Any]

    @property
    def address(self) -> int:
        """Of the record, if its frame were intact."""
        return self.slab + self.offset + self.nth

    def to_json(self) -> dict[str, Any]:
        """All of it, marked as unverified."""
        place = {
            "unverified": True,
            "address": self.address,
            "slab": self.slab,
            "offset": self.offset,
            "index": self.nth,
            "reason": self.reason,
        }
        return place | self.fields


def salvage_slab(slab: SlabAudit, storage: Storage) -> Iterator[Salvaged]:
    """From everything in a format-2 slab that is not intact, in order; nothing from a slab of
    another log. Reads only."""
    if slab.format == 1 or slab.foreign is not None:
        return
    at = slab.data_begin
    ranges = []
    for begin, end in [*slab.runs, (slab.size, slab.size)]:
        if begin > at:
            ranges.append((at, begin))
        at = end
    if not ranges:
        return
    try:
        file = storage.open_read(slab.path)
    except FileNotFoundError:  # pruned meanwhile
        return
    try:
        salt = None if slab.header is None else slab.header.salt
        for begin, end in ranges:
            yield from _salvage_range(file, slab.base, salt, max(begin, DATA_BEGIN), end)
    finally:
        file.close()


def _salvage_range(
    file: File, base: int, salt: int | None, begin: int, end: int
) -> Iterator[Salvaged]:
    at, work = begin, _HASHED_PER_BYTE * (end - begin)
    while at + FRAME_HEADER_LEN <= end:
        head = file.pread(FRAME_HEADER_LEN, at)
        header = None if salt is None else decode_header(head, 0, at, salt)
        claimed = header or FrameHeader._make(_FIELDS.unpack_from(head, 2))
        length = claimed.frame_len
        if claimed.body_len > BODY_LEN_MAX or at + length > end or work < length:
            header = None
            length = 0
        if length:
            padded = file.pread(length - FRAME_HEADER_LEN, at + FRAME_HEADER_LEN)
            body = memoryview(padded)[: claimed.body_len]
            work -= length
            matches = header is None and claimed.body_len > 0 and body_matches(claimed, padded)
            if header is None and not matches:
                length = 0
            elif claimed.kind == KIND_RECORDS:
                reason = "body" if header is not None else "header"
                raw = _unpacked(claimed, body, file.path, is_sure=header is not None)
                if header is None and raw is not None and not _fits(claimed, raw):
                    raw = None
                for i, fields in rescue(claimed, raw) if raw is not None else ():
                    yield Salvaged(base, at, i, reason, fields)
        at = at + length if length else _next_magic(file, at + ALIGNMENT, end)


def _fits(claimed: FrameHeader, body: memoryview) -> bool:
    """Whether a body whose hash is right is what the header says, which may be damaged itself: by
    a wrong count, what is no record would be cut out of it."""
    try:
        columns.decode_columns(body, claimed.records, claimed.columns)
    except Malformed:
        return False
    return True


def _unpacked(
    claimed: FrameHeader, body: memoryview, path: str, *, is_sure: bool
) -> memoryview | None:
    """What the body was before compression; None where nothing can be made of it: a codec gives
    all or nothing. is_sure: whether the header is right; where it is not, it may be the damage that
    names a codec, and the body is tried as it is. Raises CodecUnavailable."""
    if claimed.flags < FLAGS_WITH_CODEC:
        return body
    try:
        return unpack(claimed.flags, body)
    except Malformed:
        return None if is_sure else body
    except CodecUnavailable as error:
        if not is_sure and not is_known(claimed.flags):
            return body
        raise CodecUnavailable(error.reason, hint=error.hint, **error.details, path=path) from None


def _next_magic(file: File, begin: int, end: int) -> int:
    """The next place at which a frame may begin; `end` if there is none."""
    for chunk_at in range(begin, end, _CHUNK_BYTES):
        chunk = file.pread(min(_CHUNK_BYTES, end - chunk_at), chunk_at)
        i = chunk.find(MAGIC_BYTES)
        while i >= 0:
            if (chunk_at + i) % ALIGNMENT == 0:
                return chunk_at + i
            i = chunk.find(MAGIC_BYTES, i + 1)
    return end


# --- a body that may be wrong ---------------------------------------------------------------


class _Stop(Exception):
    """The rest of the body cannot be placed."""


class _Loose:
    """Takes columns off the front of a body, each entry for itself. Raises _Stop where it is no
    longer known where the next column begins."""

    def __init__(self, body: memoryview) -> None:
        self.body = body
        self.at = 0

    def take(self, length: int) -> memoryview:
        begin, end = self.at, self.at + length
        if end > len(self.body):
            raise _Stop
        self.at = end + padding(end)
        return self.body[begin:end]

    def offsets(self, count: int) -> list[int]:
        return list(struct.unpack(f"<{count + 1}I", self.take(4 * (count + 1))))

    def binary(self, count: int, *, nulls: bool, last: bool = False) -> dict[int, bytes | None]:
        """Entries by index; those whose offsets are nonsense are absent. last: the column's data
        goes to the body's end, whatever the last offset says."""
        validity = self.take((count + 7) // 8) if nulls else None
        offsets = self.offsets(count)
        data = self.body[self.at :] if last else self.take(offsets[-1])
        found: dict[int, bytes | None] = {}
        for i in range(count):
            begin, end = offsets[i], offsets[i + 1]
            if validity is not None and not validity[i >> 3] >> (i & 7) & 1:
                found[i] = None
            elif begin <= end <= len(data):
                found[i] = bytes(data[begin:end])
        return found


def rescue(header: FrameHeader, body: memoryview) -> Iterator[tuple[int, dict[str, Any]]]:
    """(index, fields) of each record of which anything is left in a body that may be wrong."""
    count, bits = header.records, header.columns
    if bits == 0:
        if count == 1:
            yield 0, {"timestamp_us": header.timestamp_us, "value_base64": _text(bytes(body))}
        return
    if not 0 < count <= len(body) // 4 or bits & ~columns.KNOWN:  # an offset is four bytes
        return
    records: list[dict[str, Any]] = [{} for _ in range(count)]
    if not bits & columns.TIMESTAMPS:
        for record in records:
            record["timestamp_us"] = header.timestamp_us
    with contextlib.suppress(_Stop):
        _columns(_Loose(body), count, bits, records)
    for i, record in enumerate(records):
        if record.keys() - {"timestamp_us", "topic"}:
            yield i, record


def _columns(loose: _Loose, count: int, bits: int, records: list[dict[str, Any]]) -> None:
    """Fills in what each column still says."""
    if bits & columns.TIMESTAMPS:
        for record, stamp in zip(records, loose.take(8 * count).cast("q"), strict=True):
            record["timestamp_us"] = stamp
    if bits & columns.KEYS:
        for i, key in loose.binary(count, nulls=bool(bits & columns.KEY_NULLS)).items():
            records[i]["key_base64"] = _text(key)
    if bits & columns.TOPIC:
        (length,) = struct.unpack("<I", loose.take(4))
        loose.at -= 4
        name = str(loose.take(length), "utf-8", "replace")
        for record in records:
            record["topic"] = name
    if bits & columns.TOPICS:
        for i, topic in loose.binary(count, nulls=bool(bits & columns.TOPIC_NULLS)).items():
            records[i]["topic"] = None if topic is None else str(topic, "utf-8", "replace")
    if bits & columns.HEADERS:
        offsets = loose.offsets(count)
        entries = offsets[-1]
        if entries > len(loose.body):
            raise _Stop
        names = loose.binary(entries, nulls=False)
        held = loose.binary(entries, nulls=bool(bits & columns.HEADER_NULLS))
        for i, record in enumerate(records):
            wanted = range(offsets[i], min(offsets[i + 1], entries))
            if wanted and all(k in names and k in held for k in wanted):
                record["headers"] = [
                    [str(names[k] or b"", "utf-8", "replace"), _text(held[k])] for k in wanted
                ]
    nulls = bool(bits & columns.VALUE_NULLS)
    for i, value in loose.binary(count, nulls=nulls, last=True).items():
        records[i]["value_base64"] = _text(value)


def _text(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()
