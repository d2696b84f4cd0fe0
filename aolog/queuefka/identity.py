"""To which log of format 1 a cursor belongs: there is no UUID. The base of the log's first slab, and the hash and
length of its first frame, replace it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aolog.queuefka.format1 import FRAME_HEADER_LEN

if TYPE_CHECKING:
    from aolog.storage.file import File

_BASE_LEN = 8


def identity_of(base: int, first: File) -> bytes:
    """The 16 bytes for a log with this first slab."""
    return base.to_bytes(_BASE_LEN, "little") + _head(first)


def base_in(identity: bytes) -> int:
    """The base of the slab that it was made with."""
    return int.from_bytes(identity[:_BASE_LEN], "little")


def may_be_of(identity: bytes, slab: File) -> bool:
    """Whether it was made with this slab, or before the slab had a frame."""
    return identity[_BASE_LEN:] in {_head(slab), bytes(FRAME_HEADER_LEN)}


def _head(slab: File) -> bytes:
    return slab.pread(FRAME_HEADER_LEN, 0).ljust(FRAME_HEADER_LEN, b"\0")
