"""A slab's header in place of the one in its object: of a slab that was written before its place was known.

The two copies in front and the one in the seal are replaced as its bytes are read. The seal's frame keeps its
offset and its length, and gets a new hash, as when a pending slab is completed in a file (FORMAT.md).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aolog.format.frame import FRAME_HEADER_LEN, Frame, decode_header
from aolog.format.slab import (
    TRAILER_LEN,
    Seal,
    SlabHeader,
    decode_seal_body,
    decode_trailer,
    encode_seal_again,
)

if TYPE_CHECKING:
    from collections.abc import Callable


class Overlay:
    """read: bytes of the object, (size, offset). Thread-safe if that is."""

    def __init__(self, header: SlabHeader, size: int, read: Callable[[int, int], bytes]) -> None:
        self._header, self._size, self._read = header, size, read
        self._prelude = header.encode_prelude()
        self._seal: tuple[int, bytes] | None = None

    def over(self, data: bytes, offset: int) -> bytes:
        """The slab's bytes at this offset, from the object's."""
        end = offset + len(data)
        if offset >= len(self._prelude) and end <= self._seal_at()[0]:
            return data
        patched = bytearray(data)
        for at, part in self.parts():
            begin, stop = max(at, offset), min(at + len(part), end)
            if begin < stop:
                patched[begin - offset : stop - offset] = part[begin - at : stop - at]
        return bytes(patched)

    def parts(self) -> list[tuple[int, bytes]]:
        """What is replaced: offsets and bytes."""
        return [(0, self._prelude), self._seal_at()]

    def _seal_at(self) -> tuple[int, bytes]:
        """The offset of the seal's frame, and its new bytes; nothing at the end if there is no intact seal."""
        if self._seal is None:
            found = self._find_seal()
            self._seal = self._size, b""
            if found is not None:
                seal, frame = found
                parts = encode_seal_again(seal, frame, self._header)
                self._seal = frame.offset, b"".join(parts)
        return self._seal

    def _find_seal(self) -> tuple[Seal, Frame] | None:
        trailer = decode_trailer(self._read(TRAILER_LEN, max(0, self._size - TRAILER_LEN)))
        if trailer is None:
            return None
        offset, salt = trailer
        stored = self._read(self._size - offset, offset)
        head = decode_header(stored, 0, offset, salt) if len(stored) > FRAME_HEADER_LEN else None
        if head is None or head.frame_len != len(stored):
            return None
        body = memoryview(stored)[FRAME_HEADER_LEN : FRAME_HEADER_LEN + head.body_len]
        seal = decode_seal_body(body)
        return None if seal is None else (seal, Frame(offset, self._size, head, body))
