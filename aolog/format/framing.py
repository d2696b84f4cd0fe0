"""How the frames of a slab follow one another: the small interface of a format, and format 2's. Pure, but for
the reads of a search.

The walker (log/walk.py) and a slab (log/slab_file.py) know nothing else of a format. That of format 1 is in
queuefka/framing.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from aolog.format.frame import (
    ALIGNMENT,
    FRAME_HEADER_LEN,
    MAGIC_BYTES,
    Frame,
    FrameHeader,
    body_matches,
    decode_header,
    intact_frames,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# A read: 8 frames of 64 KiB, or two of 256, with their headers. Half of it took 2 to 8 % longer, as each read costs
# calls. With reads of 1 MiB values of small frames took up to 1.6 times as long: of 11,000 page faults, not 7.
CHUNK_BYTES = (512 << 10) + (16 << 10)
_SEARCH_BYTES = 32 << 10  # the first read of a search, as the next intact frame is mostly near


class Framing(Protocol):
    """What a walker does not know of a format. chunk: bytes of the slab from the offset `chunk_at` on."""

    @property
    def header_len(self) -> int:
        """The bytes of a frame's header."""

    @property
    def salt(self) -> int:
        """Of the slab; stretch.NO_SALT if its frames have none."""

    def frame_len(self, chunk: bytes, at: int, offset: int) -> int | None:
        """The length of the frame at `offset` by its header, which is at `at` in the chunk; None if the
        header is not intact."""

    def intact(
        self, chunk: bytes, view: memoryview, chunk_at: int, offset: int, most: int
    ) -> list[Frame]:
        """The intact frames from `offset` on that the chunk contains, at most `most`."""

    def near(self, chunk: bytes, view: memoryview, chunk_at: int, begin: int) -> int | None:
        """The offset of the next intact frame in the chunk, after bad bytes at `begin`."""

    def search(self, pread: Callable[[int, int], bytes], begin: int, end: int) -> Iterator[int]:
        """The offsets before `end` at which the next frame after bad bytes at `begin` may begin."""


class Salted:
    """The frames of a slab with headers, format 2: each frame's header has a hash with the slab's salt."""

    header_len = FRAME_HEADER_LEN

    def __init__(self, salt: int) -> None:
        self.salt = salt

    def frame_len(self, chunk: bytes, at: int, offset: int) -> int | None:
        """As Framing."""
        header = decode_header(chunk, at, offset, self.salt)
        return None if header is None else header.frame_len

    def intact(
        self, chunk: bytes, view: memoryview, chunk_at: int, offset: int, most: int
    ) -> list[Frame]:
        """As Framing."""
        return intact_frames(chunk, view, chunk_at, offset, self.salt, most)

    def near(self, chunk: bytes, view: memoryview, chunk_at: int, begin: int) -> int | None:
        """As Framing."""
        for offset, header in self._headers(chunk, chunk_at, begin + ALIGNMENT):
            frame = view[offset - chunk_at :][: header.frame_len]
            if len(frame) == header.frame_len and body_matches(header, frame[FRAME_HEADER_LEN:]):
                return offset
        return None

    def search(self, pread: Callable[[int, int], bytes], begin: int, end: int) -> Iterator[int]:
        """As Framing: each intact header. Reads pieces, small ones first; each header is whole in one."""
        at, size = begin + ALIGNMENT, _SEARCH_BYTES
        while at + FRAME_HEADER_LEN <= end:
            chunk = pread(min(size, end - at), at)
            yield from (offset for offset, _ in self._headers(chunk, at, at))
            if len(chunk) < FRAME_HEADER_LEN:
                return
            at += (len(chunk) - FRAME_HEADER_LEN) // ALIGNMENT * ALIGNMENT + ALIGNMENT
            size = min(2 * size, CHUNK_BYTES)

    def _headers(
        self, chunk: bytes, chunk_at: int, begin: int
    ) -> Iterator[tuple[int, FrameHeader]]:
        """The intact headers from `begin` on, with their offsets."""
        i = chunk.find(MAGIC_BYTES, begin - chunk_at)
        while 0 <= i <= len(chunk) - FRAME_HEADER_LEN:
            offset = chunk_at + i
            if offset % ALIGNMENT == 0:
                header = decode_header(chunk, i, offset, self.salt)
                if header is not None:
                    yield offset, header
            i = chunk.find(MAGIC_BYTES, i + 1)
