"""Plain frames that follow one another: counted (`survey`), or gathered as columns (`gather`). Pure.

A frame is *plain* if it is intact, and a mark or a frame of records; without a codec; its columns are not
malformed; and its texts, which are names of headers and topics, are ASCII. Both functions stop at the first
frame that is not plain: the caller walks over it frame by frame.

Reading a frame takes microseconds in Python, as much as all else with 64 KiB of it. So `gather` puts frames
together as one *stretch*: columns with an address and a timestamp a record. A long frame, or one with more columns
than values, is a stretch of its own, without a copy. The rules:

    frames of at most SMALL_BYTES join each other, and so do those of at most MOVED_BYTES with nothing but values
    a stretch of several frames has at most GATHERED_BYTES of the slab, or as few as the caller wants
    its records are counted without a hole, so that record i has the ordinal of the first one plus i
    topics that differ become a column of at most GATHERED_BYTES
    a mark joins the frames before it; it cannot be the first

Compiled in native/_walk.c, if the build found the system's xxhash.h; the Python twins are the reference.
"""

from __future__ import annotations

import struct
from array import array
from itertools import pairwise, takewhile
from typing import TYPE_CHECKING, Any, NamedTuple

from aolog.format.columns import (
    VALUES,
    BinaryColumn,
    Columns,
    HeaderColumn,
    bitmap,
    decode_run,
    lone,
    offsets_of,
)
from aolog.format.frame import (
    FLAGS_WITH_CODEC,
    KIND_MARK,
    KIND_RECORDS,
    KIND_SEAL,
    Frame,
    encode_header,
)
from aolog.format.framing import CHUNK_BYTES
from aolog.format.native.speed import compiled
from aolog.format.slab import INDEX_SPACING, NO_TIMESTAMP, Point

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from aolog.format.frame import FrameHeader
    from aolog.format.framing import Framing

SMALL_BYTES = 16 << 10  # copying a longer frame costs more than a stretch of its own
MOVED_BYTES = 128 << 10  # moving the values of a longer one takes as long
GATHERED_BYTES = CHUNK_BYTES  # as one read of a walker


class Survey(NamedTuple):
    """Plain frames of a slab, in numbers. Offsets are relative to the slab."""

    end: int  # offset after the last one
    frames: int
    batches: int  # frames of records
    records: int
    before: (
        int  # records of the slab before the first frame; without a meaning where there is no salt
    )
    ordinal: int  # and before the end
    durable: int  # offset of the last frame with the durable flag; -1 if there is none
    least_us: int  # of the records' timestamps; NO_TIMESTAMP if there is none
    greatest_us: int  # of them, and of those before the survey
    points: list[Point]  # of the index, where there is a salt
    # Of the frames, if they were asked for; without a salt each has its offset before it.
    headers: bytes

    def stretch(self, begin: int) -> Stretch:
        """The frames, from `begin` on, as a stretch without their records."""
        numbers = self.batches, self.records, self.before
        return Stretch(begin, self.end, *numbers, NO_TIMESTAMP, None, Columns(self.records))


class Stretch(NamedTuple):
    """Plain frames of records that follow one another, as one set of columns."""

    begin: int  # offset of the first frame in the slab
    end: int  # offset after the last one
    frames: int  # of records
    records: int
    ordinal: int  # records of the slab before it; 0 without a salt
    timestamp_us: int  # the greatest; of a frame alone that of its header
    addresses: memoryview | None  # of the records, an i64 each; None: those of one frame
    columns: Columns

    @classmethod
    def alone(cls, frame: Frame, columns: Columns | None) -> Stretch:
        """One intact frame, plain or not. columns: None if it has no records."""
        offset, end, head, _ = frame
        columns = columns or Columns(0)
        return cls(offset, end, 1, head.records, head.ordinal, head.timestamp_us, None, columns)


# --- compiled, or the twin ------------------------------------------------------------------

NO_SALT = -1  # in place of a salt, where headers have none: in the room queuefka
_compiled_survey: Any = getattr(compiled, "survey", None)
_compiled_gather: Any = getattr(compiled, "gather", None)
_compiled_read: Any = getattr(compiled, "read_gather", None)


class Window(NamedTuple):
    """Bytes of a slab, in which a walk goes on at `offset`. chunk_at: offset of their first byte."""

    chunk: bytes
    view: memoryview
    chunk_at: int
    offset: int
    framing: Framing

    def intact(self) -> list[Frame]:
        """The intact frames from `offset` on."""
        return self.framing.intact(self.chunk, self.view, self.chunk_at, self.offset, -1)  # all


def survey(
    window: Window, indexed: int, greatest_us: int, *, headers: bool, until: int = -1
) -> Survey | None:
    """The plain frames from the window's offset on; None if there is none. indexed: offset of the index's last
    point; -1 if there is none. greatest_us: the greatest timestamp before. headers: whether they are wanted.
    until: ends before the frame with this record of the slab; -1: at none."""
    if _compiled_survey is None:
        return python_survey(window, indexed, greatest_us, headers=headers, until=until)
    chunk, _, chunk_at, offset, framing = window
    numbers = offset - chunk_at, offset, framing.salt, indexed, greatest_us
    found = _compiled_survey(chunk, *numbers, headers, until)
    if found[1] == 0:
        return None
    *numbers, points, kept = found
    return Survey._make([*numbers, [Point(*point) for point in points], kept])


def gather(window: Window, base: int, most: int = GATHERED_BYTES) -> list[Stretch]:
    """The stretches from the window's offset on. base: the slab's. most: bytes of a stretch of several frames."""
    if _compiled_gather is None:
        return python_gather(window, base, most)
    chunk, view, chunk_at, offset, framing = window
    found: list[Stretch] = _compiled_gather(
        chunk, view, offset - chunk_at, offset, framing.salt, base, most, _CLASSES
    )
    return found


def read_gather(
    fd: int, size: int, offset: int, framing: Framing, base: int, most: int = GATHERED_BYTES
) -> tuple[bytes, list[Stretch]] | None:
    """So many bytes of an open file, fewer at its end, and the stretches in them, without the interpreter's lock
    until both are there. The bytes before the end of the last stretch are not those of the file. None if there is
    no stretch, if the bytes cannot be read, or in Python: read them, and call `gather`."""
    if _compiled_read is None:
        return None
    found = _compiled_read(fd, size, offset, framing.salt, base, most, _CLASSES)
    return found if found[1] else None


_CLASSES = Stretch, Columns, BinaryColumn, HeaderColumn


# --- the twins ------------------------------------------------------------------------------


def _plain(frames: list[Frame]) -> Iterator[tuple[Frame, Columns | None]]:
    """The first frames, as far as they are plain, with their columns. None: of a mark."""
    for frame in frames:
        head = frame.header
        if head.flags >= FLAGS_WITH_CODEC:
            return
        if head.kind == KIND_MARK and head.records == head.body_len == 0:
            yield frame, None
            continue
        (columns,) = decode_run([frame])
        if columns is None or not _is_plain(columns):
            return
        yield frame, columns


def _is_plain(columns: Columns) -> bool:
    _, _, _, _, _, topic, topics, headers = columns
    if topic is not None and topics is not None:
        return False
    texts = [(topic or "").encode()]
    texts += [bytes(column.data) for column in (topics, headers and headers.names) if column]
    return all(text.isascii() for text in texts)


def python_survey(
    window: Window, indexed: int, greatest_us: int, *, headers: bool, until: int = -1
) -> Survey | None:
    """See `survey`."""
    frames = takewhile(
        lambda each: until < 0 or each[0].header.ordinal + each[0].header.records <= until,
        _plain(window.intact()),
    )
    found = survey_of(frames, window.framing.salt, indexed, greatest_us, headers=headers)
    return found if found.frames else None


def survey_of(
    frames: Iterable[tuple[Frame, Columns | None]],
    salt: int,
    indexed: int,
    greatest_us: int,
    *,
    headers: bool = False,
) -> Survey:
    """Intact frames that follow one another, plain or not, each with its columns if they can be decoded. The
    other arguments are those of `survey`."""
    end = before = ordinal = count = batches = records = 0
    durable, least_us = -1, NO_TIMESTAMP
    points: list[Point] = []
    kept: list[bytes] = []
    for (offset, end, head, _), columns in frames:  # noqa: B007 -- the last one's end counts
        is_in_index = salt != NO_SALT and head.kind != KIND_SEAL
        if is_in_index and (indexed < 0 or offset - indexed >= INDEX_SPACING):
            points.append(Point(offset, head.ordinal, greatest_us))
            indexed = offset
        if head.durable:
            durable = offset
        if head.kind == KIND_RECORDS:
            least, stamp_us = _range_us(head, columns, salt)
            least_us = min(least, least_us) if batches else least
            greatest_us = max(greatest_us, stamp_us)
            batches += 1
        if headers and salt == NO_SALT:
            kept.append(struct.pack("<QII", offset, head.body_len, head.body_hash))
        elif headers:
            kept.append(encode_header(head, offset, salt))
        before = before if count else head.ordinal
        count += 1
        records += head.records
        ordinal = head.ordinal + head.records
    numbers = end, count, batches, records, before, ordinal, durable, least_us, greatest_us
    return Survey(*numbers, points, b"".join(kept))


def _range_us(head: FrameHeader, columns: Columns | None, salt: int) -> tuple[int, int]:
    """The least timestamp of a frame of records, and the greatest by its header."""
    if salt == NO_SALT:
        return NO_TIMESTAMP, NO_TIMESTAMP
    if columns is None or columns.timestamps is None:
        return head.timestamp_us, head.timestamp_us
    return min(columns.timestamps.cast("q")), head.timestamp_us


class _Open:
    """A stretch that grows."""

    def __init__(self, frame: Frame, columns: Columns, salt: int) -> None:
        self.frames, self.columns, self.salt = [frame], [columns], salt
        self.end = frame.end
        self.is_small = frame.end - frame.offset <= SMALL_BYTES
        self.is_bare = _is_bare(frame)
        self.records = columns.records
        self.topics_bytes = _topics_bytes(columns)
        self.has_topics = columns.topics is not None

    def takes(self, frame: Frame, columns: Columns | None, most: int) -> bool:
        """Adds a frame, if it joins."""
        first = self.frames[0]
        if self.salt != NO_SALT and frame.header.ordinal != first.header.ordinal + self.records:
            return False
        if columns is not None:
            are_small = self.is_small and frame.end - frame.offset <= SMALL_BYTES
            are_bare = self.is_bare and _is_bare(frame)
            if not (are_small or are_bare) or frame.end - first.offset > most:
                return False
            differ = self.has_topics or columns[5:7] != (self.columns[0].topic, None)
            topics_bytes = self.topics_bytes + _topics_bytes(columns)
            if differ and topics_bytes > GATHERED_BYTES:
                return False
            self.has_topics, self.topics_bytes = differ, topics_bytes
            self.is_small, self.is_bare = are_small, are_bare
            self.frames.append(frame)
            self.columns.append(columns)
            self.records += columns.records
        self.end = frame.end
        return True

    def stretch(self, base: int) -> Stretch:
        """What it is now."""
        first, is_alone = self.frames[0], len(self.frames) == 1
        stamps_us = [frame.header.timestamp_us for frame in self.frames]
        addresses = None
        if not is_alone:
            each = zip(self.frames, self.columns, strict=True)
            listed = [base + f.offset + i for f, columns in each for i in range(columns.records)]
            addresses = memoryview(array("q", listed).tobytes())
        return Stretch(
            first.offset,
            self.end,
            len(self.frames),
            self.records,
            first.header.ordinal,
            NO_TIMESTAMP if self.salt == NO_SALT else max(stamps_us),
            addresses,
            self.columns[0] if is_alone else self._joined(stamps_us),
        )

    def _joined(self, stamps_us: list[int]) -> Columns:
        each, timestamps = self.columns, None
        if self.salt != NO_SALT:
            pairs = zip(each, stamps_us, strict=True)
            parts = [
                bytes(c.timestamps or array("q", [us]).tobytes() * c.records) for c, us in pairs
            ]
            timestamps = memoryview(b"".join(parts))
        topics = None
        if self.has_topics:
            topics = _join([(c.records, c.topics or _repeated(c)) for c in each])
        headers = None
        if any(c.headers for c in each):
            given = [c.headers for c in each if c.headers is not None]
            counts = [
                length
                for c in each
                for length in (_lengths(c.headers.offsets) if c.headers else [0] * c.records)
            ]
            names = _join([(h.names.entries, h.names) for h in given])
            contents = _join([(h.values.entries, h.values) for h in given])
            headers = HeaderColumn(memoryview(offsets_of(counts)), names, contents)
        return Columns(
            self.records,
            None,
            _join([(c.records, c.values or lone(c.value)) for c in each]),
            timestamps,
            _join([(c.records, c.keys) for c in each]) if any(c.keys for c in each) else None,
            None if self.has_topics else each[0].topic,
            topics,
            headers,
        )


def _is_bare(frame: Frame) -> bool:
    """Whether its records have nothing but values, none of them null, and it is not long."""
    return frame.header.columns in {0, VALUES} and frame.end - frame.offset <= MOVED_BYTES


def _topics_bytes(columns: Columns) -> int:
    """The bytes of its topics in a column of them."""
    if columns.topics is not None:
        return len(columns.topics.data)
    return len(columns.topic or "") * columns.records


def _repeated(columns: Columns) -> BinaryColumn | None:
    if columns.topic is None:
        return None
    data = columns.topic.encode()
    offsets = offsets_of([len(data)] * columns.records)
    return BinaryColumn(None, memoryview(offsets), memoryview(data * columns.records))


def _lengths(offsets: memoryview) -> list[int]:
    return [end - begin for begin, end in pairwise(offsets.cast("I"))]


def _join(pieces: Sequence[tuple[int, BinaryColumn | None]]) -> BinaryColumn:
    """Columns, each with its entries, as one. None: all of them are null."""
    lengths: list[int] = []
    present: list[bool] = []
    for entries, column in pieces:
        lengths += [0] * entries if column is None else _lengths(column.offsets)
        bits = None if column is None else column.validity
        present += [
            column is not None and (bits is None or bool(bits[i >> 3] >> (i & 7) & 1))
            for i in range(entries)
        ]
    some_absent = any(column is None or column.validity is not None for _, column in pieces)
    return BinaryColumn(
        memoryview(bitmap([bit or None for bit in present])) if some_absent else None,
        memoryview(offsets_of(lengths)),
        memoryview(b"".join(column.data for _, column in pieces if column is not None)),
    )


def python_gather(window: Window, base: int, most: int = GATHERED_BYTES) -> list[Stretch]:
    """See `gather`."""
    grown: list[_Open] = []
    for frame, columns in _plain(window.intact()):
        if grown and grown[-1].takes(frame, columns, most):
            continue
        if columns is None:
            break
        grown.append(_Open(frame, columns, window.framing.salt))
    return [each.stretch(base) for each in grown]
