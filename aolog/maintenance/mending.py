"""What a clean slab in place of a damaged one holds. Pure: an audit in, a plan out.

The clean slab has the same base, the same intact frames at the same offsets, and the same header
fields. So a reader is told the same records at the same addresses and the same gaps, whichever
of the two it opens, and whatever its neighbours are: each slab can be replaced by itself.

    header     both copies, and the seal's, from the one that is intact
    frames     byte for byte where they are; a damaged region becomes zeros, which every reader
               tells as the same gap, counted from the ordinal of what stands behind it
    seal       kept; one that was lost is made anew where it is known where it ended and how
               many records it sealed: the gap over it ends where it begins
    tail       of the log's last slab: kept, it is the next writer's to cut
    no header  a slab of which no header copy is left says nothing: all of it becomes zeros behind
               the magic, and the gap over it is counted by the slab behind it, as it was

No gap ever becomes records: a reader that passed it was told that they are lost.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from aolog.format.frame import FLAG_DURABLE
from aolog.format.slab import DATA_BEGIN, MAGIC, Seal, SlabHeader, encode_seal

if TYPE_CHECKING:
    from aolog.maintenance.audit import SlabAudit
    from aolog.storage.inside import Inside

__all__ = ["NewSeal", "SlabPlan", "damaged_ranges", "plan_slab"]


class NewSeal(NamedTuple):
    """A seal that is made anew. It ends where the slab does."""

    seal: Seal
    offset: int
    end: int


class SlabPlan(NamedTuple):
    """A slab that is to be replaced. keep: ranges that are copied; the rest of `size` is zeros.
    header: for its copies; None: it has none, and begins with the magic alone. reseal: a seal is there, and gets the new header's
    copy. why: what is mended."""

    base: int
    path: Inside
    size: int
    keep: list[tuple[int, int]]
    header: SlabHeader | None
    new_seal: NewSeal | None
    reseal: bool
    why: list[str]


def damaged_ranges(slab: SlabAudit, *, last: bool) -> list[tuple[int, int]]:
    """Where nothing is intact, from the first frame's place on; not the last slab's tail."""
    if slab.header is None:
        return [(len(MAGIC), slab.size)] if slab.format == 2 else []
    found = []
    at = slab.data_begin
    for begin, end in slab.runs:
        if begin > at:
            found.append((at, begin))
        at = end
    if not last and slab.size > at:
        found.append((at, slab.size))
    return found


def plan_slab(
    slab: SlabAudit, successor: SlabHeader | None, *, last: bool, dirty: bool, is_damaged: bool
) -> SlabPlan | None:
    """What is to be done; None: nothing. dirty: whether the damaged ranges hold anything but
    zeros. is_damaged: whether a seal was there and is not."""
    if slab.format == 1:
        return None
    if slab.header is None:
        if slab.foreign is not None or any(copy is not None for copy in slab.copies):
            return None  # another log's or slab's, or of a newer version: not ours to empty
        if slab.is_emptied and not dirty:
            return None
        return SlabPlan(
            slab.base, slab.path, slab.size, [], None, None, False, ["no header is left: emptied"]
        )
    why = []
    if any(copy != slab.header for copy in slab.copies):
        why.append("header copies")
    if slab.seal_header is not None and slab.seal_header != slab.header:
        why.append("the seal's copy of the header")
    new_seal = _lost_seal(slab, successor) if is_damaged else None
    if new_seal is not None:
        why.append("the seal and its index")
    if dirty:
        why.append("damaged bytes: zeros now")
    if not why:
        return None
    keep = list(slab.runs)
    size = slab.size
    if new_seal is not None:
        size = new_seal.end
    elif last and slab.size > slab.end:
        keep.append((slab.end, slab.size))
    reseal = slab.seal_at is not None
    return SlabPlan(slab.base, slab.path, size, keep, slab.header, new_seal, reseal, why)


def _lost_seal(slab: SlabAudit, successor: SlabHeader | None) -> NewSeal | None:
    """The seal that was there, as far as intact frames tell; None where its end or the number of
    records is not known, or where it does not fit."""
    assert slab.header is not None
    if (
        successor is not None
        and slab.limit is not None
        and not successor.ordinal_unsure
        and successor.predecessor_base == slab.base
        and successor.predecessor_end == slab.base + slab.limit
    ):
        begin, end = None, slab.limit
        records = successor.base_ordinal - slab.header.base_ordinal
    elif slab.trailer is not None and slab.trailer == slab.end and slab.is_whole:
        begin, end, records = slab.trailer, slab.size, slab.next_ordinal
    else:
        return None
    if records < slab.next_ordinal:
        return None
    seal = Seal(
        slab.header,
        records,
        slab.frames,
        slab.least_us,
        slab.greatest_us,
        slab.headers_hash,
        slab.index,
    )
    length = sum(map(len, encode_seal(seal, 0, flags=FLAG_DURABLE, timestamp_us=0)))
    # A trailer says where the seal began; its file may have grown or shrunk since.
    offset = end - length if begin is None else begin
    if offset < max(slab.end, DATA_BEGIN) or offset % 8 or offset + length > end:
        return None
    return NewSeal(seal, offset, offset + length)
