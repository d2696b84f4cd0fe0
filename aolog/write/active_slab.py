"""The slab that is being written: frames go into memory, from there into the file.

`written` is how far the file goes, `offset` where the next frame begins; between them lie
frames whose bytes are fixed and not yet written. A write that fails is repeated with the same
bytes at the same offset, so a full disk costs nothing but time.

One class a format, with the same face. The writer above them owns locks, policies and syncs.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

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
from aolog.format.slab import DATA_BEGIN, NO_TIMESTAMP, ORDINALS_MAX, Seal, SlabHeader, encode_seal
from aolog.storage import clock

if TYPE_CHECKING:
    from aolog.storage.file import File

__all__ = ["FormatOneSlab", "FormatTwoSlab"]

# A slab takes no further batch once its ordinals might not suffice for two of a gigabyte.
_ORDINALS_FULL = ORDINALS_MAX - (1 << 30)
_HEADERS_ONCE = 64  # are hashed together: alone, each costs as much as ten

# Zeros ahead of frames, for a writer that syncs often and little at a time.
ZEROS_BYTES = 256 << 10
_SYNCS_MIN = 8  # in a row, in a second, each of less than
_SYNC_BYTES_MAX = 16 << 10
_SYNCS_US = 1_000_000


class _Pending:
    """Frames that are fixed and wait to be written. full_at: from this offset on the next frame
    belongs into another slab."""

    def __init__(self, file: File, base: int, offset: int, full_at: int) -> None:
        self.file = file
        self.base = base
        self.offset = offset
        self.written = offset
        self.full_at = full_at
        self._pending: list[Buffer] = []

    def _add(self, parts: list[Buffer], length: int) -> int:
        """Appends a frame; its address."""
        address = self.base + self.offset
        self._pending += parts
        self.offset += length
        return address

    def write_pending(self) -> None:
        """Everything is in the page cache on return. After an error: call again."""
        if self._pending:
            self.file.pwrite_all(self._pending, self.written)
            self._pending = []
            self.written = self.offset


class FormatTwoSlab(_Pending):
    """A slab of format 2, created by this writer and by nobody else."""

    data_begin = DATA_BEGIN

    def __init__(self, file: File, header: SlabHeader, zeros_end: int = 0) -> None:
        """zeros_end: up to where the file is filled with zeros."""
        # One frame at least.
        super().__init__(file, header.base, DATA_BEGIN, max(header.slab_bytes, DATA_BEGIN + 1))
        self.header = header
        self._salt = header.salt
        self.records = 0
        self._sealed = Seal(header)
        self._headers_hash = xxhash.xxh3_64()
        self._headers: list[Buffer] = []  # that are not in it yet
        self._last_kind = KIND_MARK
        self._has_seal = False
        self._zeros_end = zeros_end
        self._syncs = 0
        self._synced_to = DATA_BEGIN
        self._syncs_since_us = 0

    @property
    def greatest_us(self) -> int:
        """Greatest timestamp in the slab; NO_TIMESTAMP if it has no record."""
        return self._sealed.greatest_us

    @property
    def least_us(self) -> int:
        """Least timestamp in the slab; NO_TIMESTAMP if it has no record."""
        return self._sealed.least_us

    @property
    def marked(self) -> bool:
        """Whether the last frame is a mark (or there is none): another would say nothing new. A
        seal, which says the same, stays the last."""
        return self._has_seal or self._last_kind == KIND_MARK

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
        """A frame of records; its address. codec: by which `parts` are. timestamp_us: the batch's,
        or the greatest of its column. durable: before which address every byte is."""
        offset, ordinal, sealed = self.offset, self.records, self._sealed
        address = self.base + offset
        greatest_us = sealed.greatest_us
        if timestamp_us > greatest_us:  # noqa: PLR1730 -- max() takes ten times as long
            greatest_us = timestamp_us
        if ordinal and sealed.least_us < least_us:
            least_us = sealed.least_us
        flags = codec << CODEC_SHIFT | (FLAG_DURABLE if durable == address else 0)
        # No names: a call with them takes twice as long.
        frame, length = encode_frame(
            offset, self._salt, parts, KIND_RECORDS, flags, timestamp_us, ordinal, count, columns
        )
        sealed.index.note(offset, ordinal, sealed.greatest_us)
        if len(self._headers) >= _HEADERS_ONCE:
            self._hash_headers()
        # From here on nothing is called: signals are handled between calls. So a frame is there or
        # it is not, also where a signal's handler raises (KeyboardInterrupt).
        self._headers += frame[:1]
        self._pending += frame
        self._last_kind = KIND_RECORDS
        sealed.frames += 1
        sealed.least_us = least_us
        sealed.greatest_us = greatest_us
        self.records = ordinal + count
        if ordinal > _ORDINALS_FULL:
            self.full_at = 0
        self.offset = offset + length
        return address

    def add_mark(self, now_us: int) -> None:
        """A frame that says that every byte before it is durable."""
        mark, length = encode_frame(
            self.offset,
            self._salt,
            [],
            kind=KIND_MARK,
            flags=FLAG_DURABLE,
            timestamp_us=now_us,
            ordinal=self.records,
        )
        sealed = self._sealed
        sealed.index.note(self.offset, self.records, sealed.greatest_us)
        self._headers += mark  # from here on as above
        self._pending += mark
        self._last_kind = KIND_MARK
        sealed.frames += 1
        self.offset += length

    def fill_ahead(self) -> None:
        """Before a sync of what is written. Where such syncs come often, after few bytes each, the
        file is filled with zeros ahead: a sync then writes blocks that are there, and no length,
        which takes 0.7 times as long (`python -m bench --only durability`). Never raises."""
        at = self.written
        if at <= self._zeros_end:
            return
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
        except StorageError:  # no room: what is asked for is the frames, and they are written
            self._zeros_end = self.header.slab_bytes
            with suppress(StorageError):
                self.file.truncate(at)
        else:
            self._zeros_end = end

    def _hash_headers(self) -> None:
        headers_hash = self._headers_hash.copy()
        headers_hash.update(b"".join(self._headers))
        self._headers_hash, self._headers = headers_hash, []  # both: nothing is called in between

    def seal(self, now_us: int) -> None:
        """Ends the slab: everything written is durable already; the seal is in the page cache
        on return. After an error: call again."""
        if not self._has_seal:
            assert not self._pending
            sealed = self._sealed
            sealed.records = self.records
            self._hash_headers()
            sealed.headers_hash = self._headers_hash.intdigest()
            parts = encode_seal(sealed, self.offset, flags=FLAG_DURABLE, timestamp_us=now_us)
            self._add(parts, sum(map(len, parts)))
            self._has_seal = True
            self.full_at = 0
        self.write_pending()
        if self.file.stat().size > self.offset:
            self.file.truncate(self.offset)  # what was pre-allocated and not used


class FormatOneSlab(_Pending):
    """A slab of format 1: one record a frame, no header, no seal."""

    data_begin = 0
    greatest_us = NO_TIMESTAMP
    marked = True
    records = 0  # the format does not count

    def __init__(self, file: File, base: int, offset: int, slab_bytes: int) -> None:
        # Once it has grown past the hint, as the Go program counts.
        super().__init__(file, base, offset, slab_bytes + 1)

    def fill_ahead(self) -> None:
        """Nothing: who reads the format would take zeros for records."""

    def add_payload(self, payload: bytes) -> int:
        """A frame of one record; its address."""
        return self._add(format1.encode_record(payload), format1.FRAME_HEADER_LEN + len(payload))

    def seal(self, now_us: int) -> None:
        """Nothing: the format has none."""
        del now_us
        self.write_pending()
