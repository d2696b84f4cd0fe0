"""Walking a slab of format 1: as walk.py, but no header binds a frame to its place.

Only a length and a hash precede a payload, so a frame that a search finds after a broken chain is a
guess. No reader returns it. Recovery searches, to cut nothing that may be intact.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aolog.format import format1
from aolog.format.frame import KIND_RECORDS, Frame, FrameHeader
from aolog.log.walk import CHUNK_BYTES, Damage, Outcome, Tail

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aolog.storage.file import File

_RUN_BYTES = 1 << 20  # a read; frames that begin in it and end after it are read again


class QueuefkaWalker:
    """The frames of a format-1 slab from `offset` on, with the interface of `Walker`. A frame has one
    record.

    Nothing protects a length. If a payload's hash is wrong, the walker follows the chain only if the
    next frame is intact. Otherwise the rest of the slab is a tail.
    """

    SEARCH_BYTES_MAX = 16 << 20  # hashed in a search: takes seconds, not hours, on hostile input

    def __init__(self, file: File, offset: int, *, limit: int | None = None) -> None:
        self.offset = offset
        self.limit = limit
        self._file = file
        self._chunk = b""
        self._chunk_at = offset

    def next(self) -> Outcome:
        """As Walker.next."""
        found = self._fresh_frame_at(self.offset)
        if found is None:
            return self._bad()
        self.offset = found.end
        return found

    def _fresh_frame_at(self, offset: int) -> Frame | None:
        """The frame at `offset`; reads it again if it is not intact in the chunk."""
        found = self._frame_at(offset)
        if found is None and self._is_stale(offset):
            self._chunk = b""
            found = self._frame_at(offset)
        return found

    def run(self) -> list[Frame]:
        """As Walker.run."""
        frames = []
        chunk, chunk_at = self._chunk, self._chunk_at
        view, at, end = memoryview(chunk), self.offset - self._chunk_at, len(chunk)
        while 0 <= at <= end - format1.FRAME_HEADER_LEN:
            length, stored = format1.decode_at(chunk, at)
            begin = at + format1.FRAME_HEADER_LEN
            if not 0 < length <= end - begin:
                break
            body = view[begin : begin + length]
            if not format1.payload_matches(stored, body):
                break
            header = FrameHeader(KIND_RECORDS, 0, length, stored, 0, 0, 1, 0)
            frames.append(Frame(chunk_at + at, chunk_at + begin + length, header, body))
            at = begin + length
        self.offset = chunk_at + at
        return frames

    def _bytes(self, offset: int, size: int) -> memoryview | None:
        """`size` bytes at `offset`; None if the slab ends before."""
        at = offset - self._chunk_at
        if not (at >= 0 and at + size <= len(self._chunk)):
            if offset + size > self._file.end(self.limit):
                return None
            want = max(size, _RUN_BYTES)
            if self.limit is not None:
                want = min(want, self.limit - offset)
            self._chunk, self._chunk_at, at = self._file.pread(want, offset), offset, 0
            if len(self._chunk) < size:
                return None
        return memoryview(self._chunk)[at : at + size]

    def _is_stale(self, offset: int) -> bool:
        """Whether the frame at `offset` may differ from the one in the chunk."""
        claimed = self._claimed_end(offset)
        at = offset - self._chunk_at
        if claimed is None or at < 0 or claimed - self._chunk_at > len(self._chunk):
            return True
        bad = self._chunk[at : claimed - self._chunk_at]
        return self._file.pread(len(bad), offset) != bad

    def _claimed_end(self, offset: int) -> int | None:
        """The end of the frame at `offset` by its length; None if that is after the slab's end."""
        head = self._bytes(offset, format1.FRAME_HEADER_LEN)
        if head is None:
            return None
        end = offset + format1.FRAME_HEADER_LEN + format1.decode_at(head, 0)[0]
        return end if end <= self._file.end(self.limit) else None

    def claims_more_than_there_is(self, offset: int) -> bool:
        """Whether the bytes at `offset` can be a frame whose end was not written. False if the search
        for a frame after it stopped at its bound: nothing that may be intact is cut."""
        if self._claimed_end(offset) is not None:
            return False
        work = 0
        for at, claimed in self._claims(offset + 1, self._file.end(self.limit)):
            work += claimed
            if work > self.SEARCH_BYTES_MAX or self._frame_at(at) is not None:
                return False
        return True

    def _frame_at(self, offset: int) -> Frame | None:
        head = self._bytes(offset, format1.FRAME_HEADER_LEN)
        if head is None:
            return None
        length, stored = format1.decode_at(head, 0)
        if not 0 < length <= format1.PAYLOAD_LEN_MAX:
            return None
        body = self._bytes(offset + format1.FRAME_HEADER_LEN, length)
        if body is None or not format1.payload_matches(stored, body):
            return None
        header = FrameHeader(KIND_RECORDS, 0, length, stored, 0, 0, 1, 0)
        return Frame(offset, offset + format1.FRAME_HEADER_LEN + length, header, body)

    def _bad(self) -> Outcome:
        begin, end = self.offset, self._file.end(self.limit)
        found = self._claimed_end(begin)
        if found is not None and self._frame_at(found) is None:
            found = None
        if found is not None:
            if (again := self._fresh_frame_at(begin)) is not None:  # finished since
                self.offset = again.end
                return again
            self.offset = found
            return Damage(begin, found, durable=False)
        self._chunk = b""
        return Tail(begin, max(begin, end), blank=False)

    def _claims(self, begin: int, end: int) -> Iterator[tuple[int, int]]:
        """(offset, length) of each possible frame in [begin, end): its length fits. numpy excludes most
        offsets."""
        import numpy as np

        for at in range(begin, end - format1.FRAME_HEADER_LEN, CHUNK_BYTES):
            octets = np.frombuffer(self._file.pread(CHUNK_BYTES + 3, at), np.uint8)
            count = min(len(octets) - 3, end - format1.FRAME_HEADER_LEN - at)
            if count <= 0:
                return
            lengths = np.zeros(count, np.int64)
            for i in range(4):
                lengths |= octets[i : i + count].astype(np.int64) << (8 * i)
            room = end - format1.FRAME_HEADER_LEN - at - np.arange(count)
            fitting = np.flatnonzero((lengths > 0) & (lengths <= room))
            for i in fitting.tolist():
                yield at + i, format1.FRAME_HEADER_LEN + int(lengths[i])
