"""How frames of format 1 follow one another, for the walker (log/walk.py).

Nothing protects a length, and no header binds a frame to its place. If a payload's hash is wrong, the
walker follows the chain only if the next frame is intact. Otherwise the rest of the slab is a tail: a
frame that a search would find is a guess, which no reader returns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aolog.format.stretch import NO_SALT
from aolog.queuefka.format1 import FRAME_HEADER_LEN, decode_at, intact_records

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from aolog.format.frame import Frame


class Chained:
    """Frames that only their lengths chain. See format/framing.py."""

    header_len = FRAME_HEADER_LEN
    salt = NO_SALT

    def frame_len(self, chunk: bytes, at: int, offset: int) -> int:
        """As Framing: any length may be right."""
        del offset
        return FRAME_HEADER_LEN + decode_at(chunk, at)[0]

    def intact(
        self, chunk: bytes, view: memoryview, chunk_at: int, offset: int, most: int
    ) -> list[Frame]:
        """As Framing."""
        return intact_records(chunk, view, chunk_at, offset, most)

    def near(self, *_: object) -> None:
        """As Framing: none, as `search` reads little."""

    def search(self, pread: Callable[[int, int], bytes], begin: int, end: int) -> Iterator[int]:
        """As Framing: the end of the bad frame by its length."""
        claimed = claimed_end(pread, begin, end)
        return iter(()) if claimed is None else iter((claimed,))


CHAINED = Chained()


def claimed_end(pread: Callable[[int, int], bytes], begin: int, end: int) -> int | None:
    """The end of the frame at `begin` by its length; None if that is after `end`."""
    head = pread(FRAME_HEADER_LEN, begin)
    if len(head) < FRAME_HEADER_LEN:
        return None
    claimed = begin + FRAME_HEADER_LEN + decode_at(head, 0)[0]
    return claimed if claimed <= end else None
