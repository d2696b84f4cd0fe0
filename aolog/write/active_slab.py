"""The slab that grows: frames are gathered in memory and then written to the file.

The frames between the offsets `written` and `offset` are in memory only, and do not change any more. A
write that fails is repeated with the same bytes at the same offset, so a full disk costs only time.

A slab without a header has the same methods (queuefka/slab.py). The writer owns locks, policies and syncs.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, TypeAlias

from aolog.errors import StorageError
from aolog.format.frame import (
    FLAG_DURABLE,
    KIND_MARK,
    KIND_RECORDS,
    encode_frame,
)
from aolog.format.native.inlet import Frames
from aolog.format.slab import (
    DATA_BEGIN,
    NO_BASE,
    Index,
    Seal,
    SlabHeader,
    encode_seal,
)
from aolog.log.interruption import pass_on
from aolog.queuefka.slab import QueuefkaSlab
from aolog.storage import clock

if TYPE_CHECKING:
    from aolog.storage.file import File

# Zeros ahead of the frames, for a writer that syncs often and little at a time: after this many syncs
# in a row, each of at most so many bytes, within so many microseconds.
ZEROS_BYTES = 256 << 10
_SYNCS_MIN, _SYNC_BYTES_MAX, _SYNCS_US = 8, 16 << 10, 1_000_000


class FormatTwoSlab(Frames):
    """A slab of format 2, created by this writer."""

    data_begin = DATA_BEGIN
    rolls_at_once = False  # the next slab begins with the next record

    def __init__(self, file: File, header: SlabHeader) -> None:
        full_at = max(header.slab_bytes, DATA_BEGIN + 1)  # a slab holds at least one frame
        base = 0 if header.base == NO_BASE else header.base  # a pending slab has no address yet
        Frames.__init__(self, base, DATA_BEGIN, full_at, header.salt, Index([], [], []))
        self.file = file
        self.header = header
        self._has_seal = False  # the seal is in memory or in the file
        self._syncs = 0  # in a row, of few bytes each
        self._synced_to = DATA_BEGIN  # offset of the last of them
        self._syncs_since_us = 0  # time of the first of them

    @property
    def lacks_mark(self) -> bool:
        """Whether the last frame is one of records."""
        return not self._has_seal and self.last_kind == KIND_RECORDS

    def write_pending(self) -> None:
        """Everything is in the page cache on return. After StorageError: call again."""
        if self.pending:
            self.file.pwrite_all(self.pending, self.written)
            self.written = self.offset
            self.flushed_records = self.records
            self.pending.clear()

    def add_mark(self, now_us: int) -> None:
        """Adds a mark: every byte before it is durable."""
        mark, length = encode_frame(
            self.offset,
            self.header.salt,
            [],
            kind=KIND_MARK,
            flags=FLAG_DURABLE,
            timestamp_us=now_us,
            ordinal=self.records,
        )
        self.index.note(self.offset, self.records, self.greatest_us)
        self.frames += 1
        self.last_kind = KIND_MARK
        self.put(mark, length)

    def fill_ahead(self) -> None:
        """Call it before a sync of bytes past `zeros_end`. If such syncs come often, after few bytes each,
        it fills the file with zeros ahead: then a sync writes existing blocks and no new length,
        which takes 0.7 times as long (`python -m bench --only durability`). Never raises
        StorageError."""
        at = self.written
        if at - self._synced_to > _SYNC_BYTES_MAX or not self._syncs:
            self._syncs, self._syncs_since_us = 0, clock.now_us()
        self._syncs += 1
        self._synced_to = at
        if self._syncs < _SYNCS_MIN:
            return
        self._syncs = 0
        if clock.now_us() - self._syncs_since_us > _SYNCS_US:
            return
        end = min(at + ZEROS_BYTES, self.header.slab_bytes)
        try:
            self.file.fill_zeros(end)
        except (
            StorageError
        ) as error:  # no room for zeros: the frames are written, which is what matters
            pass_on(error)
            self.zeros_end = self.header.slab_bytes
            with suppress(StorageError):
                self.file.truncate(at)
        else:
            self.zeros_end = end

    def seal(self, now_us: int) -> None:
        """Ends the slab: everything written must be durable; the seal is in the page cache on return.
        After StorageError: call again."""
        if not self._has_seal:
            assert not self.pending
            range_us = self.least_us, self.greatest_us
            hashed = self.headers_hash()
            seal = Seal(self.header, self.records, self.frames, *range_us, hashed, self.index)
            parts = encode_seal(seal, self.offset, flags=FLAG_DURABLE, timestamp_us=now_us)
            self.put(parts, sum(map(len, parts)))
            self._has_seal = True
            self.full_at = 0
        self.write_pending()
        if self.file.stat().size > self.offset:
            self.file.truncate(self.offset)  # the unused rest of the zeros ahead


ActiveSlab: TypeAlias = FormatTwoSlab | QueuefkaSlab
