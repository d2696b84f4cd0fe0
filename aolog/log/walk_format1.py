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

_RUN_BYTES = 1 << 20  # a read; a frame that begins in it and ends after it is read again


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
        """As Walker.next. Reads the frame from the file, which may have been finished since `run`."""
        begin, end = self.offset, self._file.end(self.limit)
        if (found := self._frame_at(begin, end)) is not None:
            self.offset = found.end
            return found
        claimed = self._claimed_end(begin, end)
        if claimed is None or self._frame_at(claimed, end) is None:
            return Tail(begin, max(begin, end), blank=False)
        self.offset = claimed
        return self._frame_at(begin, end) or Damage(
            begin, claimed, durable=False
        )  # or finished now

    def run(self) -> list[Frame]:
        """As Walker.run."""
        if self.offset >= self._chunk_at + len(self._chunk):
            size = _RUN_BYTES if self.limit is None else min(_RUN_BYTES, self.limit - self.offset)
            self._chunk, self._chunk_at = self._file.pread(max(size, 0), self.offset), self.offset
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
            frames.append(_frame(chunk_at + at, stored, body))
            at = begin + length
        self.offset = chunk_at + at
        return frames

    def _claimed_end(self, offset: int, end: int) -> int | None:
        """The end of the frame at `offset` by its length; None if that is after the slab's end."""
        head = self._file.pread(format1.FRAME_HEADER_LEN, offset)
        if len(head) < format1.FRAME_HEADER_LEN:
            return None
        claimed = offset + format1.FRAME_HEADER_LEN + format1.decode_at(head, 0)[0]
        return claimed if claimed <= end else None

    def claims_more_than_there_is(self, offset: int) -> bool:
        """Whether the bytes at `offset` can be a frame whose end was not written. False if the search
        for a frame after it stopped at its bound: nothing that may be intact is cut."""
        end = self._file.end(self.limit)
        if self._claimed_end(offset, end) is not None:
            return False
        work = 0
        for at, claimed in self._claims(offset + 1, end):
            work += claimed
            if work > self.SEARCH_BYTES_MAX or self._frame_at(at, end) is not None:
                return False
        return True

    def _frame_at(self, offset: int, end: int) -> Frame | None:
        claimed = self._claimed_end(offset, end)
        if claimed is None:
            return None
        data = memoryview(self._file.pread(claimed - offset, offset))
        body = data[format1.FRAME_HEADER_LEN :]
        if len(data) < claimed - offset or not 0 < len(body) <= format1.PAYLOAD_LEN_MAX:
            return None
        stored = format1.decode_at(data, 0)[1]
        return _frame(offset, stored, body) if format1.payload_matches(stored, body) else None

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


def _frame(offset: int, stored: int, body: memoryview) -> Frame:
    header = FrameHeader(KIND_RECORDS, 0, len(body), stored, 0, 0, 1, 0)
    return Frame(offset, offset + format1.FRAME_HEADER_LEN + len(body), header, body)
