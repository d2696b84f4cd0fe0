"""A slab in an object that has several: a run of zstd frames, each of `CHUNK_BYTES` of the slab. Pure.

The last chunk of a slab has what is left. A reader that wants a range of the slab reads the chunks around
it, and no others. The rules are in aolog/docs/reference/archive.md.
"""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

from aolog.errors import CorruptionError
from aolog.format.compression import CODECS, Malformed, check_codec, unzstd

if TYPE_CHECKING:
    from aolog.format.frame import Buffer

CHUNK_BYTES = 1 << 20  # smaller ones save less, and a seek reads and unpacks a whole one


class Packed(NamedTuple):
    """Where a slab is in its object. chunks: stored bytes of each. size: of the slab, unpacked."""

    at: int
    chunks: tuple[int, ...]
    size: int

    def span(self, begin: int, end: int) -> tuple[int, int]:
        """The range of the object in which the slab's bytes [begin, end) are; not empty."""
        bounds = list(accumulate(self.chunks, initial=self.at))
        return bounds[begin // CHUNK_BYTES], bounds[-(-end // CHUNK_BYTES)]

    def unpacked(self, body: Buffer, begin: int, end: int, path: str) -> bytes:
        """The slab's bytes [begin, end), from what `span` names. path: of the object, for errors. Raises
        CorruptionError, CodecUnavailable."""
        check_codec(CODECS["zstd"])
        view, at, parts = memoryview(body), 0, []
        first, after = begin // CHUNK_BYTES, -(-end // CHUNK_BYTES)
        for number in range(first, after):
            length = min(CHUNK_BYTES, self.size - number * CHUNK_BYTES)
            stored = view[at : at + self.chunks[number]]
            parts.append(_chunk(stored, length, path))
            at += len(stored)
        skipped = begin - first * CHUNK_BYTES
        return memoryview(b"".join(parts))[skipped : skipped + end - begin].tobytes()


def _chunk(stored: memoryview, length: int, path: str) -> bytes | bytearray:
    try:
        data = unzstd(stored, length)
    except Malformed as error:
        raise _damaged(path, str(error)) from None
    if len(data) != length:
        raise _damaged(path, f"{len(data)} bytes, not {length}")
    return data


def _damaged(path: str, why: str) -> CorruptionError:
    return CorruptionError(
        f"a part of the object is damaged: {why}",
        hint="put an older version of the object back if the bucket keeps versions",
        path=path,
    )
