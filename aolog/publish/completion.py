"""Completes a pending slab's header: the slab's base and its log.

The two header copies and the one in the seal are overwritten in place; no reader opens the file yet. The
seal's frame keeps its offset and length, and gets a new hash.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aolog.errors import StorageFailed
from aolog.format.slab import encode_seal_again
from aolog.log.slab_file import seal_at_end
from aolog.publish.pending import log_path
from aolog.storage.directory import Inside
from aolog.write.next_slab import header_after, next_header, reach_of

if TYPE_CHECKING:
    from aolog.format.frame import Frame
    from aolog.format.slab import Seal, SlabHeader
    from aolog.publish.pending import PendingSlab
    from aolog.storage.file import File
    from aolog.storage.storage import Storage


def complete(root: str, slab: PendingSlab, following: SlabHeader, storage: Storage) -> SlabHeader:
    """Puts the slab after the slabs that `following` (next_slab.py) names; durable on return, still
    under its pending name. Returns the same for the next slab. May be repeated with another `following`.
    Raises StorageError if the file is missing or is not what the task wrote."""
    path = Inside(log_path(root, slab.log), slab.name)
    try:
        file = storage.open_write(path)
    except FileNotFoundError:
        raise StorageFailed(
            "a slab that a task wrote is gone",
            hint="nothing was published: run the job again",
            path=path,
        ) from None
    with file:
        seal, frame = _sealed(file, slab)
        header = next_header(
            following,
            salt=slab.salt,
            slab_bytes=seal.header.slab_bytes,
            reach=reach_of(path, following.base, seal.header.slab_bytes),
            boot_id=storage.system.boot_id(),
            inode=file.identity(),
            synced=True,
            compressed=seal.header.compressed,
        )
        parts = encode_seal_again(seal, frame, header)
        assert frame.offset + sum(map(len, parts)) == slab.bytes
        file.pwrite_all([header.encode_prelude()], 0)
        file.pwrite_all(parts, frame.offset)
        file.datasync()
    return header_after(header, slab.bytes, seal.records, seal.greatest_us)


def _sealed(file: File, slab: PendingSlab) -> tuple[Seal, Frame]:
    """The seal and its frame."""
    found = seal_at_end(file, slab.bytes) if file.stat().size == slab.bytes else None
    if found is not None:
        seal = found[0]
        if seal.header.salt == slab.salt and seal.records == slab.records:
            return found
    raise StorageFailed(
        f"is not the slab of {slab.bytes} bytes and {slab.records} records that a task wrote",
        hint="nothing was published: check the device or what synchronises it, then run the job again",
        path=file.path,
    )
