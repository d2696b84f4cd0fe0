"""The next slab of a log: what its header says of the slabs before it, and how its file is created.

A slab appears under its name by a rename, after its header is durable. A format-1 slab has no header
and is created under its name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aolog.errors import UsageError
from aolog.format.slab import ADDRESS_END, slab_name
from aolog.queuefka import slab as queuefka
from aolog.storage import clock
from aolog.write.active_slab import FormatTwoSlab

if TYPE_CHECKING:
    from aolog.format.slab import SlabHeader
    from aolog.storage.directory import Directory
    from aolog.storage.storage import Storage
    from aolog.write.active_slab import ActiveSlab
    from aolog.write.options import WriterOptions

_EPOCH_MAX = (1 << 32) - 1  # a header's field
# How far an address may be above a slab's base, besides slab_bytes: one frame and the seal.
REACH_SPARE = (1 << 32) + (1 << 24)


def header_after(header: SlabHeader, size: int, records: int, greatest_us: int) -> SlabHeader:
    """What the next slab's header says of the slabs before it, after a sealed slab of this size with
    this header. `next_header` sets the other fields."""
    end = header.base + size
    return header._replace(
        base=end,
        base_ordinal=header.base_ordinal + records,
        predecessor_base=header.base,
        predecessor_end=end,
        predecessor_cut=0,
        greatest_before_us=max(header.greatest_before_us, greatest_us),
    )


def reach_of(path: str, base: int, slab_bytes: int) -> int:
    """The bound for addresses of a slab that begins at `base`, relative to it. Raises UsageError if
    addresses would pass 2^63."""
    reach = slab_bytes + slab_bytes // 8 + REACH_SPARE
    if base + reach > ADDRESS_END:
        raise UsageError("addresses end at 2^63", hint="begin a new log", path=path)
    return reach


def next_header(following: SlabHeader, **own: Any) -> SlabHeader:
    """The header of the next slab. following: what it says of the slabs before it. own: the fields that
    they do not decide. Raises UsageError if a field would overflow."""
    if following.base_ordinal >= ADDRESS_END or following.epoch > _EPOCH_MAX:
        raise UsageError(
            f"no slab can follow {following.base_ordinal} records and epoch {following.epoch}",
            hint="no writer makes such headers: begin a new log",
        )
    return following._replace(created_us=clock.now_us(), **own)


def begin_slab(
    directory: Directory,
    storage: Storage,
    following: SlabHeader,
    options: WriterOptions,
    offset: int | None = None,
) -> ActiveSlab:
    """Creates the next slab; its header, if it has one, and its name are durable on return. offset: continues
    the existing slab, which has no header, at this offset instead. May be repeated after StorageError, but not
    after SyncFailed: a reader may have the slab open by then."""
    base = following.base
    name = directory / slab_name(base)
    reach = reach_of(directory.path, base, max(options.full_bytes, offset or 0))
    if not options.has_headers:
        return queuefka.begin_slab(directory, storage, name, base, offset, options.full_bytes)
    with storage.appearing(name) as file:
        header = next_header(
            following,
            salt=int.from_bytes(storage.system.random_bytes(4), "little"),
            slab_bytes=options.full_bytes,
            reach=reach,
            boot_id=storage.system.boot_id(),
            inode=file.identity(),
            synced=options.sync != "never",
            compressed=options.compression != "none",
        )
        file.pwrite_all([header.encode_prelude()], 0)
    return FormatTwoSlab(file, header)
