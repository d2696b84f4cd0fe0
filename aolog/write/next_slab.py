"""The next slab of a log: what its header says of the slabs before it, and how its file is created.

A slab appears under its name by a rename, after its header is durable. A format-1 slab has no header
and is created under its name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from aolog.errors import StorageFull, UsageError
from aolog.format.slab import ADDRESS_END, NO_PREDECESSOR, NO_TIMESTAMP, SlabHeader
from aolog.log.names import slab_name
from aolog.storage import clock
from aolog.write.active_slab import FormatOneSlab, FormatTwoSlab

if TYPE_CHECKING:
    from aolog.storage.directory import Directory
    from aolog.storage.storage import Storage
    from aolog.write.options import WriterOptions

_EPOCH_MAX = (1 << 32) - 1  # a header's field
# How far an address may be past a slab's begin, besides slab_bytes: one frame and the seal.
REACH_SPARE = (1 << 32) + (1 << 24)


class Predecessor(NamedTuple):
    """What the next slab's header says of the slabs before it. The defaults: there are none."""

    next_base: int
    topic_uuid: bytes
    topic: str | None
    epoch: int = 1
    ordinal: int = 0
    ordinal_unsure: bool = False
    base: int = NO_PREDECESSOR
    end: int = 0
    cut: int = 0
    greatest_us: int = NO_TIMESTAMP

    def followed_by(self, size: int, records: int, greatest_us: int) -> Predecessor:
        """The same after a sealed slab of this size, which begins at `next_base`."""
        end = self.next_base + size
        return self._replace(
            next_base=end,
            ordinal=self.ordinal + records,
            base=self.next_base,
            end=end,
            cut=0,
            greatest_us=max(self.greatest_us, greatest_us),
        )


def reach_of(path: str, base: int, slab_bytes: int) -> int:
    """The bound for addresses of a slab that begins at `base`, relative to it. Raises UsageError if
    addresses would pass 2^63."""
    reach = slab_bytes + slab_bytes // 8 + REACH_SPARE
    if base + reach > ADDRESS_END:
        raise UsageError("addresses end at 2^63", hint="begin a new log", path=path)
    return reach


def next_header(before: Predecessor, **own: Any) -> SlabHeader:
    """The header of the next slab. own: the fields that the slabs before do not decide. Raises UsageError
    if a field would overflow."""
    if before.ordinal >= ADDRESS_END or before.epoch > _EPOCH_MAX:
        raise UsageError(
            f"no slab can follow {before.ordinal} records and epoch {before.epoch}",
            hint="no writer makes such headers: begin a new log",
        )
    return SlabHeader(
        topic_uuid=before.topic_uuid,
        base=before.next_base,
        base_ordinal=before.ordinal,
        epoch=before.epoch,
        created_us=clock.now_us(),
        predecessor_base=before.base,
        predecessor_end=before.end,
        predecessor_cut=before.cut,
        greatest_before_us=before.greatest_us,
        ordinal_unsure=before.ordinal_unsure,
        topic=before.topic,
        **own,
    )


def begin_slab(
    directory: Directory, storage: Storage, before: Predecessor, options: WriterOptions
) -> FormatTwoSlab:
    """Creates the next slab; its header and its name are durable on return. May be repeated after
    StorageError, but not after SyncFailed: a reader may have the slab open by then."""
    reach = reach_of(directory.path, before.next_base, options.slab_bytes)
    name = directory / slab_name(before.next_base)
    temporary = name + ".tmp"
    file = storage.create(temporary)
    try:
        header = next_header(
            before,
            salt=int.from_bytes(storage.system.random_bytes(4), "little"),
            slab_bytes=options.slab_bytes,
            reach=reach,
            boot_id=storage.system.boot_id(),
            inode=file.identity(),
            synced=options.sync != "never",
            compressed=options.compression != "none",
        )
        file.pwrite_all([header.encode_prelude()], 0)
        if options.preallocate:
            file.fill_zeros(options.slab_bytes)
        file.datasync()
        storage.rename(temporary, name)
        storage.sync_directory(directory)
    except BaseException as error:
        file.close()
        if isinstance(error, StorageFull):
            storage.unlink(temporary)  # it would occupy the space that is left
        raise
    file.path = name
    return FormatTwoSlab(file, header, options.slab_bytes if options.preallocate else 0)


def begin_format_1_slab(
    directory: Directory, storage: Storage, base: int, offset: int | None, slab_bytes: int
) -> FormatOneSlab:
    """A new format-1 slab at `base`, its name durable on return. offset: continue the existing slab
    at this offset instead."""
    name = directory / slab_name(base)
    file = storage.create(name) if offset is None else storage.open_write(name)
    try:
        storage.sync_directory(directory)  # its creator may have been killed before this
    except BaseException:
        file.close()
        raise
    return FormatOneSlab(file, base, offset or 0, slab_bytes)
