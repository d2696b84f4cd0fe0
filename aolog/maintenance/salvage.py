"""The remains of damaged frames: records that no checksum confirms. They are printed, never written to a log.

Two kinds of damaged frames are useful. (1) The header is intact and the body's hash is wrong: at least
one byte of the body is wrong. If the lengths of its columns fit together, its records are read. (2) The
header is damaged and the body has the hash in the header: the body is intact, and the header's other
fields are used as they are. In a slab without a header the salt is lost too, so only the second kind can
be found.

Each record has the slab and offset of its frame, its index in the frame, the address that it would
have, a reason ("body": a byte of the frame's body is wrong; "header": a byte of its header), timestamp_us,
topic, key_base64, value_base64 and headers ([[name, base64], ...]); null is a null that was appended.
"""

from __future__ import annotations

import base64
import struct
from typing import TYPE_CHECKING, Any

from aolog.errors import CodecUnavailable
from aolog.format.columns import decode_columns
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
)
from aolog.format.slab import DATA_BEGIN
from aolog.read.batch import RecordFrame

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aolog.maintenance.audit import SlabAudit
    from aolog.storage.file import File
    from aolog.storage.storage import Storage

_CHUNK_BYTES = 1 << 20
_FIELDS = struct.Struct("<BBIQqIII")  # the header's fields after the magic: see frame.py
# Body bytes to hash for each byte of a damaged range: without a limit, junk that is full of magics
# makes the search quadratic.
_HASHED_PER_BYTE = 16


def salvage_slab(slab: SlabAudit, storage: Storage) -> Iterator[dict[str, Any]]:
    """The remains in a slab with headers, in order, one object for each record, marked as unverified;
    nothing from a slab of another log. Reads only."""
    if not slab.has_headers or slab.foreign is not None:
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
    with file:
        salt = None if slab.header is None else slab.header.salt
        for begin, end in ranges:
            yield from _salvage_range(file, slab.base, salt, max(begin, DATA_BEGIN), end)


def _salvage_range(
    file: File, base: int, salt: int | None, begin: int, end: int
) -> Iterator[dict[str, Any]]:
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
                for i, fields in enumerate(_records(claimed, raw)):
                    place = {"address": base + at + i, "slab": base, "offset": at, "index": i}
                    yield {"unverified": True, **place, "reason": reason, **fields}
        at = at + length if length else _next_magic(file, at + ALIGNMENT, end)


def _records(claimed: FrameHeader, body: memoryview | None) -> Iterator[dict[str, Any]]:
    """The fields of each record; no records if the lengths of the columns do not fit together."""
    if body is None:
        return
    try:
        columns = decode_columns(body, claimed.records, claimed.columns)
    except Malformed:
        return
    for record in RecordFrame(0, 0, 0, 0, claimed.timestamp_us, None, columns).records():
        yield {
            "timestamp_us": record.timestamp,
            "topic": record.topic,
            "key_base64": _text(record.key),
            "value_base64": _text(record.value),
            "headers": [[name, _text(value)] for name, value in record.headers],
        }


def _unpacked(
    claimed: FrameHeader, body: memoryview, path: str, *, is_sure: bool
) -> memoryview | None:
    """The decompressed body; None if it cannot be decompressed. is_sure: whether the header is intact;
    otherwise the codec may be a result of the damage, and the body is also tried as it is. Raises
    CodecUnavailable."""
    if claimed.flags < FLAGS_WITH_CODEC:
        return body
    try:
        return unpack(claimed.flags, body)
    except Malformed:
        return None if is_sure else body
    except CodecUnavailable as error:
        if not is_sure and not is_known(claimed.flags):
            return body
        error.details["path"] = path
        raise


def _next_magic(file: File, begin: int, end: int) -> int:
    """The next offset where a frame may begin; `end` if there is none."""
    for chunk_at in range(begin, end, _CHUNK_BYTES):
        chunk = file.pread(min(_CHUNK_BYTES, end - chunk_at), chunk_at)
        i = chunk.find(MAGIC_BYTES)
        while i >= 0:
            if (chunk_at + i) % ALIGNMENT == 0:
                return chunk_at + i
            i = chunk.find(MAGIC_BYTES, i + 1)
    return end


def _text(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()
