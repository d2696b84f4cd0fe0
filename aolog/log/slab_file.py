"""`Slab`: one slab file, opened for reading: its header, its seal, its index, its end.

A slab ends where its successor's name begins; bytes after that are never read. Nothing here is
written. The bytes are decoded by aolog/format, frames and damage are found by walk.py. Which slabs
a log has is directory.py's subject.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aolog.errors import CodecUnavailable, NewerFormat, counted
from aolog.format.frame import KIND_RECORDS, KIND_SEAL, Frame
from aolog.format.slab import (
    DATA_BEGIN,
    HEADER_COPIES,
    HEADER_LEN,
    MAGIC,
    NO_TIMESTAMP,
    TRAILER_LEN,
    VERSION,
    Index,
    Mark,
    NewerVersion,
    Seal,
    SlabHeader,
    decode_seal_body,
    decode_slab_header,
    decode_trailer,
)
from aolog.log.walk import Damage, Tail, Walker
from aolog.log.walk_format1 import QueuefkaWalker

if TYPE_CHECKING:
    from collections.abc import Callable

    from aolog.storage.file import File, Stat

__all__ = ["Slab"]


class Slab:
    """An opened slab file. Not thread-safe.

    format: 1 or 2. header: None in format 1, and if no copy is valid because all are lost or all are
    another log's: then the whole slab is damage. foreign: the UUID of that other log. limit: the
    offset at which the slab ends by its successor's name; None for the log's last slab. seal_offset:
    of the seal, after one was found. is_ours: tells whether a header that was found in the slab at
    a base has the log's UUID.
    """

    def __init__(
        self,
        file: File,
        base: int,
        *,
        limit: int | None,
        log_format: Callable[[], int],
        is_ours: Callable[[int, SlabHeader], bool] = lambda _base, _header: True,
    ) -> None:
        self.file = file
        self.base = base
        self.limit = limit
        self.header: SlabHeader | None = None
        self.foreign: bytes | None = None
        self._is_ours = is_ours
        self._seal: Seal | None = None
        self.seal_offset = 0
        self._walked: Index | None = None
        self._walked_to = DATA_BEGIN
        self._walked_greatest = NO_TIMESTAMP
        self._hops: Walker | None = None  # at _walked_to; remembers where it found no frame
        self._intact = Mark(DATA_BEGIN, 0, NO_TIMESTAMP)  # after the last intact frame
        self._none_after: tuple[int, Stat] | None = (
            None  # _walked_to and file: no further intact frame
        )
        # A log has one format. A slab that is too short or too damaged to show its format has the
        # log's: a damaged header of format 2 is never read as format 1, nor a torn length as 2.
        first = file.pread(HEADER_LEN, 0)
        self.format = 2 if first.startswith(MAGIC[:4]) else log_format()
        if self.format == 2:
            self._read_header(first)

    def close(self) -> None:
        """Idempotent."""
        self.file.close()

    @property
    def data_begin(self) -> int:
        """The offset of the first frame."""
        return DATA_BEGIN if self.format == 2 else 0

    @property
    def compressed(self) -> bool:
        """Whether its frames may be compressed."""
        return self.header is not None and self.header.compressed

    @property
    def end_offset(self) -> int:
        """The offset at which the slab ends: by its successor's name, or the size of the file."""
        size = self.file.stat().size
        return size if self.limit is None else min(size, self.limit)

    def _read_header(self, first: bytes) -> None:
        newer: NewerVersion | None = None
        for at in HEADER_COPIES:
            found = decode_slab_header(self.file.pread(HEADER_LEN, at) if at else first)
            if isinstance(found, NewerVersion):
                newer = found
            elif found is not None and self._counts(found):
                self.header, self.foreign = found, None
                return
        if self.header is None and (seal := self.seal()) is not None:
            self.header, self.foreign = seal.header, None
        if self.header is None and self.foreign is None and newer is not None:
            raise NewerFormat(
                f"format version {newer.version}, this release reads up to {VERSION}",
                hint="upgrade aolog",
                path=self.file.path,
            )

    def _counts(self, header: SlabHeader) -> bool:
        """Whether an intact copy of a header belongs to this slab and this log."""
        uuid = header.topic_uuid
        if self.header is not None:
            return uuid == self.header.topic_uuid and header.base == self.base
        if not self._is_ours(self.base, header):
            self.foreign = uuid
            return False
        return header.base == self.base

    def seal(self) -> Seal | None:
        """The slab's seal; None if it has no intact one."""
        if self._seal is not None or self.format == 1:
            return self._seal
        end = self.end_offset
        found = decode_trailer(self.file.pread(TRAILER_LEN, max(0, end - TRAILER_LEN)))
        if found is None:
            return None
        offset, salt = found
        frame = Walker(self.file, salt, offset, limit=end).next()
        if isinstance(frame, Frame) and frame.header.kind == KIND_SEAL and frame.end == end:
            seal = decode_seal_body(frame.body)
            if seal is not None and self._counts(seal.header):
                self._seal, self.seal_offset = seal, offset
        return self._seal

    def located(self, error: CodecUnavailable, frame: Frame) -> CodecUnavailable:
        """The same error with the address and number of the records."""
        address = self.base + frame.offset
        return CodecUnavailable(
            f"{counted(frame.header.records, 'record')} at address {address} cannot be read: "
            f"{error.reason}",
            hint=error.hint,
            **error.details,
            path=self.file.path,
            address=address,
            end=self.base + frame.end,
        )

    def walker(self, offset: int | None = None, *, resync: bool = False) -> Walker | QueuefkaWalker:
        """A walker over the frames from the beginning of a frame on (default: the slab's first frame).
        Needs a header in format 2."""
        offset = self.data_begin if offset is None else offset
        if self.format == 1:
            return QueuefkaWalker(self.file, offset, limit=self.limit, resync=resync)
        assert self.header is not None
        return Walker(self.file, self.header.salt, offset, limit=self.limit)

    def index(self) -> Index:
        """The seal's index, or one made by a walk over the headers, which each call continues."""
        if (seal := self.seal()) is not None:
            return seal.index
        if self._walked is None:
            self._walked = Index()
        if self.header is None:
            return self._walked
        hops, self._hops = self._hops, None  # after an exception the next call starts again
        if hops is None or hops.limit != self.limit:
            salt = self.header.salt
            hops = Walker(self.file, salt, self._walked_to, limit=self.limit, bodies=False)
        while not isinstance(found := hops.next(), Tail):
            if isinstance(found, Frame) and found.header.kind != KIND_SEAL:
                head = found.header
                self._walked.note(found.offset, head.ordinal, self._walked_greatest)
                if head.kind == KIND_RECORDS:
                    self._walked_greatest = max(self._walked_greatest, head.timestamp_us)
        self._walked_to, self._hops = found.begin, hops
        return self._walked

    def end(self) -> Mark:
        """The end of the intact frames: the offset after the last one, the number of records in the
        slab before it, and their greatest timestamp. After a seal this is the end of the slab. If
        the header is lost, the whole slab is damage and ends at its `end_offset`. Format 1 counts
        no records."""
        if self.format == 1:
            walker = self.walker()
            while not isinstance(tail := walker.next(), Tail):
                pass
            return Mark(tail.begin, 0, NO_TIMESTAMP)
        if self.header is None:
            return Mark(self.end_offset, 0, NO_TIMESTAMP)
        index = self.index()  # looks for a seal too, which may be written between two calls
        if (seal := self._seal) is not None:
            return Mark(self.end_offset, seal.records, seal.greatest_us)
        # After a power cut headers may exist without their bodies: the frames end in the last
        # stretch between two marks that holds an intact frame, nearly always the last of all.
        begin = self._walked_to
        searched = (begin, self.file.stat())
        # The body of a half-written frame may arrive without a new time of change: check each time
        # whether the frame after the last intact one is intact now.
        if searched == self._none_after and not self._frames(self._intact.offset, begin).run():
            return self._intact
        while begin > self._intact.offset:
            stretch = index.at_offset(begin - 1)
            if stretch is None or stretch.offset <= self._intact.offset:
                stretch = self._intact
            if (found := self._intact_from(stretch, begin)) is not None:
                self._intact = found
                break
            begin = stretch.offset
        self._none_after = searched
        return self._intact

    def _frames(self, begin: int, end: int) -> Walker:
        """A walker over the frames in [begin, end), which reads their bodies."""
        assert self.header is not None
        limit = end if self.limit is None else min(end, self.limit)
        return Walker(self.file, self.header.salt, begin, limit=limit)

    def _intact_from(self, begin: Mark, end: int) -> Mark | None:
        """The mark after the last intact frame in [begin, end); None if there is none. Bytes from
        `end` on are not read: they were searched before."""
        offset, ordinal, greatest_us = begin
        frames = self._frames(offset, end)
        last = None
        while frames.offset < end and not isinstance(found := frames.next(), Tail):
            if isinstance(found, Frame):
                head = found.header
                ordinal = head.ordinal + head.records
                if head.kind == KIND_RECORDS:
                    greatest_us = max(greatest_us, head.timestamp_us)
                last = Mark(found.end, ordinal, greatest_us)
        return last

    def sealed_by_trailer(self) -> bool:
        """Whether it ends with a trailer, even if the seal before that is damaged."""
        end = self.end_offset
        return decode_trailer(self.file.pread(TRAILER_LEN, max(0, end - TRAILER_LEN))) is not None

    def chain_before(self, offset: int) -> tuple[int, int, Frame | None]:
        """Follows the chain to `offset`: (begin, ordinal in slab, frame) of the frame that contains
        or follows the offset. The frame has no body; it is None if damage or the end is at
        `begin`."""
        mark = self.index().at_offset(offset)
        at, ordinal = (mark.offset, mark.ordinal) if mark else (self.data_begin, 0)
        if self.header is None:
            return at, ordinal, None
        hops = Walker(self.file, self.header.salt, at, limit=self.limit, bodies=False)
        passed = hops.hop(offset)
        ordinal = ordinal if passed is None else passed
        while True:
            begin = hops.offset
            found = hops.next()
            if isinstance(found, Tail):
                return found.begin, ordinal, None
            if isinstance(found, Damage):
                if offset < found.end:
                    return begin, ordinal, None
                continue
            ordinal = found.header.ordinal
            if offset < found.end:
                return found.offset, ordinal, found
            ordinal += found.header.records
