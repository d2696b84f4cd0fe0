"""Writes the files of a clean copy of a log: slabs, cursors, the manifest. Only reads the log.

    header     both copies, and the seal's, from the intact one
    frames     byte for byte, at the same offsets
    damage     zeros; a reader of the copy reports the same gap, counted from the same ordinals
    tail       bytes after the last intact frame of the log's last slab: kept, because the next
               writer has to report them as a torn end. The remains of a damaged seal are left out:
               a seal holds no record. If a writer changes the slab meanwhile, all of it is left out
    no header  zeros after the magic: nothing in such a slab can be read. A slab of another log or
               of another base keeps the headers that show it
    queuefka   byte for byte: it has no header and no seal that could be damaged
    cursors    the position, in two fresh copies. One without an intact copy is copied as it is, so
               that its reader gets an error and does not start again from the beginning

With a new UUID all slab headers and cursors that have the log's UUID get the new one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aolog.errors import StorageFailed
from aolog.format.cursor_copy import encode_copies
from aolog.format.names import BRIDGE_SUFFIXES, CURSOR_DIRECTORY
from aolog.format.slab import (
    DATA_BEGIN,
    HEADER_COPIES,
    MAGIC,
    TRAILER_LEN,
    SlabHeader,
    encode_seal_again,
    slab_name,
)
from aolog.log.cursor_file import cursor_names, cursor_path, position_in
from aolog.log.slab_file import seal_at_end

if TYPE_CHECKING:
    from collections.abc import Callable

    from aolog.format.cursor_copy import CursorPosition
    from aolog.log.directory import Log
    from aolog.maintenance.audit import Audit, SlabAudit
    from aolog.storage.directory import Directory, Inside
    from aolog.storage.file import File
    from aolog.storage.storage import Storage


def copied_bytes(found: Audit) -> int:
    """Upper bound of the size of the copy's slabs. Damage becomes holes, which take no space."""
    size = found.tail_bytes
    for slab in found.slabs:
        if slab.has_headers:
            size += DATA_BEGIN + sum(end - begin for begin, end in slab.runs)
        else:
            size += slab.size
    return size


def copy_slabs(
    log: Log,
    slabs: list[SlabAudit],
    to: Directory,
    *,
    old_uuid: bytes | None,
    new_uuid: bytes | None,
    links: bool,
) -> int:
    """Copies the slabs, durable on return except for their names. Returns the base of the first one.
    new_uuid: replaces old_uuid, the log's, if not None. links: gives sealed slabs without damage a second name where
    possible, instead of a copy: nothing changes a sealed slab.

    The last slab comes first: retention removes slabs from the front, so all slabs before one that
    was pruned meanwhile are pruned too, and the copy has no hole.
    """
    for i in reversed(range(len(slabs))):
        slab = slabs[i]
        try:
            original = log.open_file(slab.base)
        except FileNotFoundError:  # pruned since the audit
            _require_pruned(log, slabs[:i])
            return slabs[min(i + 1, len(slabs) - 1)].base
        with original:
            if links and new_uuid is None and i + 1 < len(slabs) and _is_plain(slab):
                original.datasync()  # a writer with sync="never" seals slabs too
                if log.storage.link(log.slab_path(slab.base), to / slab_name(slab.base)):
                    continue
            with log.storage.create(to / slab_name(slab.base)) as copy:
                _copy_slab(original, slab, copy, old_uuid, new_uuid)
                copy.adopt(original)
                copy.datasync()
    return slabs[0].base


def _is_plain(slab: SlabAudit) -> bool:
    """Whether a copy would have the same bytes: sealed, nothing damaged, nothing else in the file."""
    return (
        slab.header is not None
        and slab.seal_header == slab.header
        and not slab.differences
        and all(copy == slab.header for copy in slab.copies)
        and slab.runs == [(slab.data_begin, slab.size)]
    )


def _require_pruned(log: Log, slabs: list[SlabAudit]) -> None:
    """Raises StorageFailed if one of the slabs still exists: the copy would lose it."""
    for slab in slabs:
        if log.storage.exists(log.slab_path(slab.base)):
            raise StorageFailed(
                "a slab was removed while the log was copied, and one before it was not",
                hint="run the repair again",
                path=log.path,
            )


def _copy_slab(
    original: File, slab: SlabAudit, copy: File, old_uuid: bytes | None, new_uuid: bytes | None
) -> None:
    def renewed(header: SlabHeader) -> SlabHeader:
        if new_uuid is None or header.topic_uuid != old_uuid:
            return header
        return header._replace(topic_uuid=new_uuid)

    if not slab.has_headers:
        _copy_ranges(original, [(0, slab.size)], copy)
    elif slab.header is None:
        copy.pwrite_all([MAGIC[: slab.size]], 0)
        kept = _copy_headers(original, slab, copy, renewed)
        copy.truncate(max(slab.size, kept))
    else:
        header = renewed(slab.header)
        copy.pwrite_all([header.encode_prelude()], 0)
        _copy_ranges(original, slab.runs, copy)
        if slab.seal_header != header and (sealed := seal_at_end(copy, slab.end)) is not None:
            copy.pwrite_all(encode_seal_again(*sealed, header), sealed[1].offset)
        if slab.limit is not None:
            copy.truncate(max(slab.size, DATA_BEGIN))
        else:
            _copy_tail(original, slab, copy)


def _copy_headers(
    original: File, slab: SlabAudit, copy: File, renewed: Callable[[SlabHeader], SlabHeader]
) -> int:
    """Copies the headers that show what an unreadable slab is, which its readers report as the gap's
    reason. They may be past the slab's end by its successor's name. Returns the end of the copied
    bytes."""
    assert slab.stat is not None
    kept = min(DATA_BEGIN, slab.stat.size) if any(slab.copies) else 0
    _copy_ranges(original, [(0, kept)], copy)
    uuids = set()
    for at, found in zip(HEADER_COPIES, slab.copies, strict=True):
        if isinstance(found, SlabHeader):
            uuids.add(found.topic_uuid)
            copy.pwrite_all([renewed(found).encode()], at)
    only_by_seal = slab.foreign is not None and slab.foreign not in uuids
    if only_by_seal and (sealed := seal_at_end(original, slab.size)) is not None:
        copy.pwrite_all([sealed[0].header.encode()], HEADER_COPIES[1])
    return kept


def _copy_ranges(original: File, ranges: list[tuple[int, int]], copy: File) -> None:
    for begin, end in ranges:
        for at, piece in original.pieces(begin, end):
            copy.pwrite_all([piece], at)


def _copy_tail(original: File, slab: SlabAudit, copy: File) -> None:
    end = slab.size
    if slab.trailer is not None:  # a damaged seal begins there
        end = max(slab.end, min(end - TRAILER_LEN, slab.trailer))
    if original.is_blank(slab.end, end):
        return
    _copy_ranges(original, [(slab.end, end)], copy)
    if original.stat() != slab.stat:  # a writer is appending: this may be part of a frame
        copy.truncate(slab.end)


def copy_cursors(
    log: Log,
    to: Directory,
    *,
    first_base: int,
    old_uuid: bytes | None,
    new_uuid: bytes | None,
    positions: dict[str, CursorPosition | None] | None,
) -> list[str]:
    """Copies the cursors, durable on return, and returns their names. new_uuid: replaces old_uuid, if not
    None. The bridge's notes belong to the old UUID: with a new one they are not copied. positions: these
    cursors with these positions, and no notes, which may be later than the positions. A position
    below first_base, the copy's first slab, is replaced by the cursor's position now, which allowed the
    pruning."""
    storage = log.storage
    names = cursor_names(log.path, storage) if positions is None else list(positions)
    if not names:
        return []
    directory = to / CURSOR_DIRECTORY
    storage.make_directory(directory)
    copied = []
    for name in names:
        try:
            original = storage.open_read(cursor_path(log.path, name))
        except FileNotFoundError:  # deleted since the listing
            continue
        with original:
            position = None if positions is None else positions[name]
            if position is None or position.address < first_base:
                position = position_in(original)
            if position is not None and new_uuid is not None and position.topic_uuid == old_uuid:
                position = position._replace(topic_uuid=new_uuid)
            parts = None if position is None else encode_copies(position)
            copy_file(original, directory / f"{name}.cursor", storage, parts)
        copied.append(name)
        if new_uuid is None and positions is None:
            _copy_notes(log, name, directory)
    with (
        storage.open_directory(log.directory / CURSOR_DIRECTORY) as originals,
        storage.open_directory(directory) as copies,
    ):
        copies.adopt(originals)
    return copied


def _copy_notes(log: Log, name: str, directory: Inside) -> None:
    for suffix in BRIDGE_SUFFIXES:
        try:
            original = log.storage.open_read(cursor_path(log.path, name, suffix))
        except FileNotFoundError:
            continue
        with original:
            copy_file(original, directory / f"{name}{suffix}", log.storage)


def copy_file(
    original: File, to: Inside, storage: Storage, parts: list[bytes] | None = None
) -> None:
    """Writes a file with the original's owner, mode and times, durable on return. parts: its
    contents, if not the original's."""
    pieces = original.pieces(0, original.stat().size)
    storage.write_file(to, (piece for _, piece in pieces) if parts is None else parts)
    with storage.open_write(to) as copy:
        copy.adopt(original)
