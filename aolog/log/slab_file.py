"""`Slab`: one slab file, opened for reading: its index and its end; and `HeadedSlab`: its header and its seal.

A slab ends where its successor's name begins; bytes after that are never read. Reads only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aolog.errors import NewerFormat
from aolog.format.frame import KIND_SEAL, Frame
from aolog.format.framing import Salted
from aolog.format.slab import (
    ADDRESS_END,
    DATA_BEGIN,
    HEADER_COPIES,
    HEADER_LEN,
    NO_TIMESTAMP,
    ORDINALS_MAX,
    TRAILER_LEN,
    VERSION,
    Index,
    NewerVersion,
    Point,
    Seal,
    SlabHeader,
    decode_seal_body,
    decode_slab_header,
    decode_trailer,
)
from aolog.format.stretch import NO_SALT, survey_of
from aolog.log.walk import Damage, Tail, Walker

if TYPE_CHECKING:
    from collections.abc import Callable

    from aolog.format.framing import Framing
    from aolog.storage.file import File


def seal_at_end(file: File, end: int) -> tuple[Seal, Frame] | None:
    """The intact seal that ends at this offset, and its frame."""
    found = decode_trailer(file.pread(TRAILER_LEN, max(0, end - TRAILER_LEN)))
    if found is None:
        return None
    offset, salt = found
    frame = Walker(file, Salted(salt), offset, limit=end).next()
    if not isinstance(frame, Frame) or frame.header.kind != KIND_SEAL or frame.end != end:
        return None
    seal = decode_seal_body(frame.body)
    return None if seal is None else (seal, frame)


class Slab:
    """An opened slab file, as far as each format has it: frames that follow one another. Format 1 has nothing
    else. Not thread-safe.

    framing: of the frames; None if its header is lost.
    """

    has_headers = False  # whether its format has headers, marks and seals, and counts records
    data_begin = 0  # offset of the first frame
    # None if its format has none, or if no copy is valid: then the whole slab is damage.
    header: SlabHeader | None = None
    foreign: bytes | None = None  # the UUID of another log, if all intact copies are its

    def __init__(
        self, file: File, base: int, framing: Framing | None, *, limit: int | None
    ) -> None:
        self.file = file
        self.base = base
        self.limit = limit  # offset at which it ends by its successor's name; None: the log's last
        self.framing = framing
        self._walker: Walker | None = None  # at the end of the frames that `_walk` has seen
        self._index = Index([], [], [])  # of those frames
        self._end = Point(self.data_begin, 0, NO_TIMESTAMP)  # their end
        self._marked = 0  # offset of the last of them that has the durable flag
        self.is_sealed = False  # whether the last of them is a seal

    @property
    def lacks_header(self) -> bool:
        """Whether nothing in it can be read: its format has a header, and no copy is valid."""
        return self.framing is None

    @property
    def salt(self) -> int:
        """Of its frames' headers; NO_SALT if its format has none."""
        return NO_SALT if self.framing is None else self.framing.salt

    @property
    def compressed(self) -> bool:
        """Whether its frames may be compressed."""
        return self.header is not None and self.header.compressed

    @property
    def end_offset(self) -> int:
        """The offset at which the slab ends: by its successor's name, or the size of the file."""
        return self.file.end(self.limit)

    def seal(self) -> Seal | None:
        """The slab's seal; None if it has no intact one."""
        return None

    def walker(self, offset: int | None = None) -> Walker:
        """A walker over the frames from the beginning of a frame on (default: the slab's first frame)."""
        assert self.framing is not None
        offset = self.data_begin if offset is None else offset
        return Walker(self.file, self.framing, offset, limit=self.limit)

    def index(self) -> Index:
        """The seal's index, or the index of the intact frames. Each call walks over the new frames."""
        self.end()
        return self._index

    def end(self) -> Point:
        """The end of the intact frames, the seal included: the offset after the last one, the number of
        records in the slab before it, and their greatest timestamp. Reads bodies too: after a crash a
        header may exist without its body. If the slab's header is lost, the whole slab is damage and
        ends at its `end_offset`. Without headers only the offset has a meaning. Each call walks over the
        new frames."""
        if (seal := self.seal()) is not None:
            return Point(self.end_offset, seal.records, seal.greatest_us)
        if self.framing is None:
            return Point(self.end_offset, 0, NO_TIMESTAMP)
        return self._walk()

    def marked(self) -> int:
        """The offset of the last frame with the durable flag; 0 if there is none. Each call walks over the
        new frames."""
        self.end()
        return self._marked

    def _walk(self) -> Point:
        """Walks over the frames that were written since the last call, and indexes them."""
        if self._walker is None:
            self._walker = self.walker()
        self._walker.limit = self.limit
        index, end = self._index, self._end
        while True:
            seen = index.last_offset, end.greatest_before_us
            is_sealed, survey = False, self._walker.survey(*seen)
            if survey is None:
                found = self._walker.next()
                if isinstance(found, Tail):
                    return end
                if isinstance(found, Damage):
                    continue
                is_sealed = found.header.kind == KIND_SEAL
                survey = survey_of([(found, None)], self.salt, *seen)
            for point in survey.points:
                index.note(*point)
            self.is_sealed = is_sealed
            self._marked = max(self._marked, survey.durable)
            end = self._end = Point(survey.end, survey.ordinal, survey.greatest_us)

    def chain(
        self, point: Point | None, *, after: int = ADDRESS_END, until: int = ORDINALS_MAX
    ) -> tuple[int, int, Frame | None]:
        """Walks from a point of the index (None: from the first frame) past the frames that end at the offset
        `after` or before it, and before the record `until` of the slab: (end of the last one, records of the
        slab before that, the next intact frame). None: there is none. If it does not begin at that end, damage
        is between."""
        at, ordinal, _ = point or Point(self.data_begin, 0, NO_TIMESTAMP)
        walker = self.walker(at)
        while at < after and (passed := walker.skip(after, until)) is not None:
            at, ordinal = passed.end, passed.ordinal
        while not isinstance(found := walker.next(), Tail):
            if isinstance(found, Frame):
                before = found.header.ordinal + found.header.records
                if found.end > after or before > until:
                    return at, ordinal, found
                at, ordinal = found.end, before
        return at, ordinal, None


class HeadedSlab(Slab):
    """One with a header, and a seal once it is finished: format 2.

    first: its first HEADER_LEN bytes; None: reads them. is_ours: whether a header that was found in the slab
    at a base has the log's UUID.
    """

    has_headers = True
    data_begin = DATA_BEGIN

    def __init__(
        self,
        file: File,
        base: int,
        *,
        limit: int | None,
        first: bytes | None = None,
        is_ours: Callable[[int, SlabHeader], bool] = lambda _base, _header: True,
    ) -> None:
        super().__init__(file, base, None, limit=limit)
        self._is_ours = is_ours
        self._seal: Seal | None = None
        self._read_header(first)

    def _read_header(self, first: bytes | None) -> None:
        newer: NewerVersion | None = None
        for at in HEADER_COPIES:
            copy = first if at == 0 and first is not None else self.file.pread(HEADER_LEN, at)
            found = decode_slab_header(copy)
            if isinstance(found, NewerVersion):
                newer = found
            elif found is not None and self._counts(found):
                self._take(found)
                return
        if (seal := self.seal()) is not None:
            self._take(seal.header)
        elif self.foreign is None and newer is not None:
            raise NewerFormat(
                f"format version {newer.version}, this release reads up to {VERSION}",
                hint="upgrade aolog",
                path=self.file.path,
            )

    def _take(self, header: SlabHeader) -> None:
        self.header, self.foreign, self.framing = header, None, Salted(header.salt)

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
        """As Slab."""
        if self._seal is None:
            found = seal_at_end(self.file, self.end_offset)
            if found is not None and self._counts(found[0].header):
                self._seal, self._marked, self.is_sealed = found[0], found[1].offset, True
                self._index = found[0].index
        return self._seal
