"""Walking a slab of format 1: as walk.py, but no header binds a frame to its place.

Only a length and a hash precede a payload, so a frame that a search finds after a broken chain is a
guess. No reader returns it. Recovery searches, to cut nothing that may be intact.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aolog.log.walk import CHUNK_BYTES, Outcome, Walker
from aolog.queuefka import format1

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aolog.format.frame import Frame
    from aolog.storage.file import File


class QueuefkaWalker(Walker):
    """The frames of a format-1 slab from `offset` on.

    Nothing protects a length. If a payload's hash is wrong, the walker follows the chain only if the
    next frame is intact. Otherwise the rest of the slab is a tail.
    """

    header_len = format1.FRAME_HEADER_LEN
    SEARCH_BYTES_MAX = 16 << 20  # hashed in a search: takes seconds, not hours, on hostile input

    def __init__(self, file: File, offset: int, *, limit: int | None = None) -> None:
        super().__init__(file, 0, offset, limit=limit)

    def _frame_len(self, offset: int) -> int:
        return self.header_len + format1.decode_at(self._chunk, offset - self._chunk_at)[0]

    def _intact(self, offset: int, most: int) -> list[Frame]:
        return format1.intact_records(self._chunk, self._chunk_view, self._chunk_at, offset, most)

    def _bad(self) -> Outcome:
        begin, claimed = self.offset, self._claimed_end(self.offset)
        self._forget()
        is_followed = claimed is not None and self._frame_at(claimed) is not None
        self._forget()
        if (again := self._frame_at(begin)) is not None:  # it was finished meanwhile
            self.offset = again.end
            return again
        if claimed is None or not is_followed:
            return self._tail(begin, self._file.end(self.limit))
        return self._damage(begin, claimed)

    def _claimed_end(self, offset: int) -> int | None:
        """The end of the frame at `offset` by its length; None if that is after the slab's end."""
        head = self._file.pread(self.header_len, offset)
        if len(head) < self.header_len:
            return None
        claimed = offset + self.header_len + format1.decode_at(head, 0)[0]
        return claimed if claimed <= self._file.end(self.limit) else None

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

    def _claims(self, begin: int, end: int) -> Iterator[tuple[int, int]]:
        """(offset, length) of each possible frame in [begin, end): its length fits. numpy excludes most
        offsets."""
        import numpy as np

        for at in range(begin, end - self.header_len, CHUNK_BYTES):
            octets = np.frombuffer(self._file.pread(CHUNK_BYTES + 3, at), np.uint8)
            count = min(len(octets) - 3, end - self.header_len - at)
            if count <= 0:
                return
            lengths = np.zeros(count, np.int64)
            for i in range(4):
                lengths |= octets[i : i + count].astype(np.int64) << (8 * i)
            room = end - self.header_len - at - np.arange(count)
            fitting = np.flatnonzero((lengths > 0) & (lengths <= room))
            for i in fitting.tolist():
                yield at + i, self.header_len + int(lengths[i])
