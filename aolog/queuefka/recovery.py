"""What a writer does with the last slab of format 1.

Recovery cuts a tail only if it is one frame whose end was not written. Nothing in the format shows that:
it searches the tail, to cut nothing that may be intact.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aolog.queuefka.format1 import FRAME_HEADER_LEN, intact_records
from aolog.queuefka.framing import claimed_end

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aolog.storage.file import File

SEARCH_BYTES_MAX = 16 << 20  # hashed in a search: takes seconds, not hours, on hostile input
_CHUNK_BYTES = 256 << 10


def is_unfinished(file: File, begin: int, end: int) -> bool:
    """Whether the bytes from `begin` to `end`, the end of the file, can be a frame whose end was not
    written. False if the search for a frame after it stopped at its bound."""
    if claimed_end(file.pread, begin, end) is not None:
        return False
    work = 0
    for at, length in _claims(file, begin + 1, end):
        work += length
        if work > SEARCH_BYTES_MAX:
            return False
        frame = file.pread(length, at)
        if intact_records(frame, memoryview(frame), at, at, 1):
            return False
    return True


def _claims(file: File, begin: int, end: int) -> Iterator[tuple[int, int]]:
    """(offset, length) of each possible frame in [begin, end): its length fits. numpy excludes most
    offsets."""
    import numpy as np

    for at in range(begin, end - FRAME_HEADER_LEN, _CHUNK_BYTES):
        octets = np.frombuffer(file.pread(_CHUNK_BYTES + 3, at), np.uint8)
        count = min(len(octets) - 3, end - FRAME_HEADER_LEN - at)
        if count <= 0:
            return
        lengths = np.zeros(count, np.int64)
        for i in range(4):
            lengths |= octets[i : i + count].astype(np.int64) << (8 * i)
        room = end - FRAME_HEADER_LEN - at - np.arange(count)
        fitting = np.flatnonzero((lengths > 0) & (lengths <= room))
        for i in fitting.tolist():
            yield at + i, FRAME_HEADER_LEN + int(lengths[i])
