"""The slab that is being written: frames go into memory, from there into the file.

`written` is how far the file goes, `offset` where the next frame begins; between them lie
frames whose bytes are fixed and not yet written. A write that fails is repeated with the same
bytes at the same offset, so a full disk costs nothing but time.

One class a format, with the same face. The writer above them owns locks, policies and syncs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import xxhash

from aolog import queuefka
from aolog.frame import (
    CODEC_SHIFT,
    FLAG_DURABLE,
    KIND_MARK,
    KIND_RECORDS,
    Buffer,
    encode_frame,
)
from aolog.slab import DATA_BEGIN, NO_TIMESTAMP, ORDINALS_MAX, Seal, SlabHeader, encode_seal

if TYPE_CHECKING:
    from aolog.storage import File

__all__ = ["FormatOneSlab", "FormatTwoSlab"]

# A slab takes no further batch once its ordinals might not suffice for one of a gigabyte.
_ORDINALS_SPARE = 1 << 29


class _Pending:
    """Frames that are fixed and wait to be written."""

    def __init__(self, file: File, base: int, offset: int) -> None:
        self.file = file
        self.base = base
        self.offset = offset
        self.written = offset
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

    def __init__(self, file: File, header: SlabHeader) -> None:
        super().__init__(file, header.base, DATA_BEGIN)
        self.header = header
        self.records = 0
        self._sealed = Seal(header)
        self._headers_hash = xxhash.xxh3_64()
        self._last_kind = KIND_MARK
        self._has_seal = False

    def is_full(self, slab_bytes: int) -> bool:
        """Whether the next frame belongs into another slab."""
        return (
            self._has_seal
            or (self.offset >= slab_bytes and self.offset > DATA_BEGIN)  # one frame at least
            or self.records > ORDINALS_MAX - _ORDINALS_SPARE
        )

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
        parts: list[Buffer],
        *,
        timestamp_us: int,
        least_us: int | None = None,
        durable: bool,
        codec: int = 0,
    ) -> int:
        """A frame of records; its address. timestamp_us: the batch's, or the greatest of its
        column. durable: whether every byte before the frame is. codec: by which `parts` are."""
        sealed, greatest_us = self._sealed, timestamp_us
        if least_us is None:
            least_us = timestamp_us
        if self.records and sealed.least_us < least_us:
            least_us = sealed.least_us
        greatest_us = max(greatest_us, sealed.greatest_us)
        bounds = least_us, greatest_us
        flags = codec << CODEC_SHIFT | (FLAG_DURABLE if durable else 0)
        return self._frame(KIND_RECORDS, count, columns, parts, timestamp_us, bounds, flags=flags)

    def add_mark(self, now_us: int) -> None:
        """A frame that says that every byte before it is durable."""
        bounds = self._sealed.least_us, self._sealed.greatest_us
        self._frame(KIND_MARK, 0, 0, [], now_us, bounds, flags=FLAG_DURABLE)

    def _frame(
        self,
        kind: int,
        count: int,
        columns: int,
        parts: list[Buffer],
        timestamp_us: int,
        bounds: tuple[int, int],
        *,
        flags: int,
    ) -> int:
        """bounds: least and greatest timestamp of the slab with it. A frame is there or it is
        not, also where a signal's handler raises (KeyboardInterrupt)."""
        frame, length = encode_frame(
            self.offset,
            self.header.salt,
            parts,
            kind=kind,
            flags=flags,
            timestamp_us=timestamp_us,
            ordinal=self.records,
            count=count,
            columns=columns,
        )
        sealed, address = self._sealed, self.base + self.offset
        sealed.index.note(self.offset, self.records, sealed.greatest_us)
        headers_hash = self._headers_hash.copy()
        headers_hash.update(frame[0])
        # From here on nothing is called: signals are handled between calls.
        self._headers_hash = headers_hash
        self._last_kind = kind
        sealed.frames += 1
        sealed.least_us, sealed.greatest_us = bounds
        self.records += count
        self._pending += frame
        self.offset += length
        return address

    def seal(self, now_us: int) -> None:
        """Ends the slab: everything written is durable already; the seal is in the page cache
        on return. After an error: call again."""
        if not self._has_seal:
            assert not self._pending
            sealed = self._sealed
            sealed.records = self.records
            sealed.headers_hash = self._headers_hash.intdigest()
            parts = encode_seal(sealed, self.offset, flags=FLAG_DURABLE, timestamp_us=now_us)
            self._add(parts, sum(map(len, parts)))
            self._has_seal = True
        self.write_pending()
        if self.file.stat().size > self.offset:
            self.file.truncate(self.offset)  # what was pre-allocated and not used


class FormatOneSlab(_Pending):
    """A slab of format 1: one record a frame, no header, no seal."""

    data_begin = 0
    greatest_us = NO_TIMESTAMP
    marked = True
    records = 0  # the format does not count

    def is_full(self, slab_bytes: int) -> bool:
        """Once it has grown past the hint, as the Go program counts."""
        return self.offset > slab_bytes

    def add_payload(self, payload: bytes) -> int:
        """A frame of one record; its address."""
        return self._add(queuefka.encode_record(payload), queuefka.FRAME_HEADER_LEN + len(payload))

    def seal(self, now_us: int) -> None:
        """Nothing: the format has none."""
        del now_us
        self.write_pending()
