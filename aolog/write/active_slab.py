"""The slab that grows: frames are gathered in memory and then written to the file.

`written` is how far the file goes, `offset` is where the next frame begins. The frames between them
are fixed and not yet written. A write that fails is repeated with the same bytes at the same offset,
so a full disk costs nothing but time.

One class a format, with the same methods. The writer owns locks, policies and syncs.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, TypeAlias

import xxhash

from aolog.errors import StorageError
from aolog.format import format1
from aolog.format.frame import (
    CODEC_SHIFT,
    FLAG_DURABLE,
    KIND_MARK,
    KIND_RECORDS,
    Buffer,
    encode_frame,
)
from aolog.format.slab import (
    DATA_BEGIN,
    NO_TIMESTAMP,
    ORDINALS_MAX,
    Index,
    Seal,
    SlabHeader,
    encode_seal,
)
from aolog.storage import clock

if TYPE_CHECKING:
    from aolog.storage.file import File

# A slab takes no further batch once its ordinals might not suffice for two of a gigabyte.
_ORDINALS_FULL = ORDINALS_MAX - (1 << 30)
_HEADERS_ONCE = 64  # headers hashed together; hashing them one by one costs ten times as much

# Zeros ahead of the frames, for a writer that syncs often and little at a time.
ZEROS_BYTES = 256 << 10
_SYNCS_MIN = 8  # in a row, in a second, each of less than
_SYNC_BYTES_MAX = 16 << 10
_SYNCS_US = 1_000_000


class _Pending:
    """Frames that are fixed and wait to be written. full_at: a frame at this offset or later belongs
    to the next slab. zeros_end: the file is filled with zeros up to here."""

    def __init__(self, file: File, base: int, offset: int, full_at: int) -> None:
        self.file = file
        self.base = base
        self.offset = offset
        self.written = offset
        self.full_at = full_at
        self.zeros_end = 0
        self._pending: list[Buffer] = []

    def write_pending(self) -> None:
        """Everything is in the page cache on return. After StorageError: call again."""
        if self._pending:
            self.file.pwrite_all(self._pending, self.written)
            self._pending = []
            self.written = self.offset


class FormatTwoSlab(_Pending):
    """A slab of format 2, created by this writer. least_us, greatest_us: of its records' timestamps;
    NO_TIMESTAMP if it has no record."""

    data_begin = DATA_BEGIN

    def __init__(self, file: File, header: SlabHeader, zeros_end: int = 0) -> None:
        # full_at: a slab holds at least one frame
        super().__init__(file, header.base, DATA_BEGIN, max(header.slab_bytes, DATA_BEGIN + 1))
        self.header = header
        self.records = 0
        self.zeros_end = zeros_end
        self._salt = header.salt
        self.least_us = self.greatest_us = NO_TIMESTAMP
        self._frames = 0
        self._index = Index([], [], [])
        self._headers_hash = xxhash.xxh3_64()
        self._headers: list[Buffer] = []  # not hashed yet
        self._last_kind = KIND_MARK
        self._has_seal = False
        self._syncs = 0
        self._synced_to = DATA_BEGIN
        self._syncs_since_us = 0

    @property
    def lacks_mark(self) -> bool:
        """Whether the last frame is neither a mark nor a seal."""
        return not self._has_seal and self._last_kind != KIND_MARK

    def add_records(
        self,
        count: int,
        columns: int,
        codec: int,
        parts: list[Buffer],
        timestamp_us: int,
        least_us: int,
        durable: int,
    ) -> int:
        """Adds a frame of records. Returns its address. codec: of `parts`. timestamp_us: the batch's, or the
        greatest of its column. durable: every byte before this address is on the device."""
        offset, ordinal = self.offset, self.records
        address = self.base + offset
        flags = codec << CODEC_SHIFT | (FLAG_DURABLE if durable == address else 0)
        # Positional: keywords take twice as long.
        frame, length = encode_frame(
            offset, self._salt, parts, KIND_RECORDS, flags, timestamp_us, ordinal, count, columns
        )
        self._index.note(offset, ordinal, self.greatest_us)
        self.greatest_us = max(self.greatest_us, timestamp_us)
        if not ordinal or least_us < self.least_us:
            self.least_us = least_us
        self._frames += 1
        self._headers += frame[:1]
        if len(self._headers) > _HEADERS_ONCE:
            self._hash_headers()
        self._pending += frame
        self._last_kind = KIND_RECORDS
        self.records = ordinal + count
        self.offset = offset + length
        if ordinal > _ORDINALS_FULL:
            self.full_at = 0
        return address

    def add_mark(self, now_us: int) -> None:
        """Adds a mark: every byte before it is durable."""
        mark, length = encode_frame(
            self.offset,
            self._salt,
            [],
            kind=KIND_MARK,
            flags=FLAG_DURABLE,
            timestamp_us=now_us,
            ordinal=self.records,
        )
        self._index.note(self.offset, self.records, self.greatest_us)
        self._frames += 1
        self._headers += mark
        self._pending += mark
        self._last_kind = KIND_MARK
        self.offset += length

    def fill_ahead(self) -> None:
        """Before a sync of what is written past `zeros_end`. If such syncs come often, after few bytes
        each, fills the file with zeros ahead: a sync then writes existing blocks and no new length,
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
        except StorageError:  # no room for zeros: the frames are written, which is what matters
            self.zeros_end = self.header.slab_bytes
            with suppress(StorageError):
                self.file.truncate(at)
        else:
            self.zeros_end = end

    def _hash_headers(self) -> None:
        self._headers_hash.update(b"".join(self._headers))
        self._headers = []

    def seal(self, now_us: int) -> None:
        """Ends the slab: everything written must be durable; the seal is in the page cache on return.
        After StorageError: call again."""
        if not self._has_seal:
            assert not self._pending
            self._hash_headers()
            hashed = self._headers_hash.intdigest()
            range_us = self.least_us, self.greatest_us
            seal = Seal(self.header, self.records, self._frames, *range_us, hashed, self._index)
            parts = encode_seal(seal, self.offset, flags=FLAG_DURABLE, timestamp_us=now_us)
            self._pending += parts
            self.offset += sum(map(len, parts))
            self._has_seal = True
            self.full_at = 0
        self.write_pending()
        if self.file.stat().size > self.offset:
            self.file.truncate(self.offset)  # the unused rest of a pre-allocated file


class FormatOneSlab(_Pending):
    """A slab of format 1: one record a frame, no header, no seal."""

    data_begin = 0
    greatest_us = NO_TIMESTAMP
    records = 0  # the format does not count
    lacks_mark = False  # nor does it have marks

    def __init__(self, file: File, base: int, offset: int, slab_bytes: int) -> None:
        # full_at: the Go program begins the next slab once this one is larger than its size
        super().__init__(file, base, offset, slab_bytes + 1)
        self.zeros_end = 1 << 63  # none: a reader of the format would take zeros for records

    def add_records(
        self, count: int, columns: int, codec: int, parts: list[Buffer], *_: int
    ) -> int:
        """Adds a frame of one value, which is all that the format can hold. Returns its address."""
        assert (count, columns, codec, len(parts)) == (1, 0, 0, 1)
        address = self.base + self.offset
        self._pending += format1.encode_record(bytes(parts[0]))
        self.offset += format1.FRAME_HEADER_LEN + len(parts[0])
        return address

    def fill_ahead(self) -> None:
        """Nothing: see zeros_end."""

    def seal(self, now_us: int) -> None:
        """Nothing but a write: the format has no seal."""
        del now_us
        self.write_pending()


ActiveSlab: TypeAlias = FormatTwoSlab | FormatOneSlab
