"""Walking a slab: from bytes to frames, and over damage to the next intact one.

A walker is given a place that is known to be a frame's begin (a slab's first frame, or a mark
of its index) and follows the chain forward; a place found by searching for a magic is never
believed unless header and body are right. It answers with values:

    Frame    intact, header and body
    Damage   [begin, end) is not intact, and at `end` is an intact frame
    Tail     from `begin` on nothing is intact: an unfinished write, zeros, or the end

What a tail means (not yet written, torn, or corrupt) the walker does not know; its caller does.
A bad place with something intact behind it is read once more before it counts as damage: the
writer may have finished it in between.

Time is linear in the bytes: a search reads each byte once and hashes a body only behind a
right header, whose hash binds it to its place.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from aolog.format.frame import (
    ALIGNMENT,
    FRAME_HEADER_LEN,
    MAGIC_BYTES,
    Frame,
    FrameHeader,
    body_matches,
    decode_header,
    hop_headers,
    intact_frames,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aolog.storage.file import File

__all__ = ["Damage", "Outcome", "Tail", "Walker"]

# A read: 4 frames of 64 KiB, or one of 256, with their headers. Two of them and what is made of them
# stay in a core's second cache: reads of 1 MiB took half as long again, the bytes and all behind.
CHUNK_BYTES = (256 << 10) + (8 << 10)
CHUNK_BYTES_MAX = 4 << 20  # a longer frame's header is read by itself, with a chunk
_RUN_FRAMES_MAX = CHUNK_BYTES // FRAME_HEADER_LEN  # about what a read of the shortest frames holds
FIRST_BYTES = 4 << 10  # the first read: who seeks wants a record; each further one is four times it
HOP_BYTES = 32 << 10  # a read when only headers are wanted: two index entries' distance


class Damage(NamedTuple):
    """Not intact: [begin, end) in the slab. durable: it was, as a later mark proves."""

    begin: int
    end: int
    durable: bool


class Tail(NamedTuple):
    """Nothing intact from `begin` to `end`, the end of what is there. blank: only zeros."""

    begin: int
    end: int
    blank: bool


Outcome: TypeAlias = Frame | Damage | Tail


class Walker:
    """Frames of a format-2 slab from `offset` on. Not thread-safe; one thread at a time.

    limit: offset at which the slab ends by its successor's name; None: where the file ends.
    bodies: False hops from header to header: bodies are neither read nor checked, and are empty
    in the frames returned.
    """

    def __init__(
        self, file: File, salt: int, offset: int, *, limit: int | None = None, bodies: bool = True
    ) -> None:
        self.offset = offset
        self.limit = limit
        self._file = file
        self._salt = salt
        self._bodies = bodies
        self._chunk = b""
        self._chunk_view = memoryview(b"")
        self._chunk_at = offset
        self._once_bytes, self._once_frames = FIRST_BYTES, 1  # of a read and a run; they grow
        self._searched: tuple[int, int, int] | None = None  # tail begin, size, mtime_ns
        self._mark = -1  # offset of the last header seen that says "durable"
        self._unmarked_to = 0  # no other is there from it to here

    def next(self) -> Outcome:
        """What stands at `offset`; moves behind it unless it is a tail. A tail may be asked for
        again: it is looked at afresh."""
        found = self._frame_at(self.offset)
        if found is None:
            return self._bad()
        self.offset = found.end
        return found

    def run(self) -> list[Frame]:
        """The intact frames from `offset` on, as many as one read holds, and moves behind them;
        none if `next` is to be asked. Frame after frame in one loop: half the cost of asking for
        each. The first runs are short: a read holds thousands of frames of one record."""
        most = self._once_frames
        self._once_frames = min(2 * most, _RUN_FRAMES_MAX)
        frames = self._intact(self.offset, most)
        if not frames and (not self._chunk or self._chunk_at < self.offset):  # all is walked
            read = self._chunk
            if self._whole(self.offset) is not None and self._chunk is not read:
                frames = self._intact(self.offset, most)
        if frames:
            self.offset = frames[-1].end
        return frames

    def hop(self, offset: int) -> int | None:
        """Moves behind the frames that end before an offset or at it, by headers alone, as far as
        one read shows them: the ordinal behind the last of them, None if there is none. Only
        where bodies are not wanted."""
        assert not self._bodies
        self._load(self.offset, FRAME_HEADER_LEN)
        self.offset, ordinal = hop_headers(
            self._chunk, self._chunk_at, self.offset, self._salt, offset
        )
        return ordinal

    def _intact(self, offset: int, most: int | None = None) -> list[Frame]:
        return intact_frames(
            self._chunk, self._chunk_view, self._chunk_at, offset, self._salt, most
        )

    def _end(self) -> int:
        size = self._file.stat().size
        return size if self.limit is None else min(size, self.limit)

    def _load(self, offset: int, size: int) -> int:
        """Makes `size` bytes at `offset` available, or fewer at the end; how many are."""
        at = offset - self._chunk_at
        if at >= 0 and at + size <= len(self._chunk):
            return size
        want = max(size, self._once_bytes if self._bodies else HOP_BYTES)
        if self.limit is not None:
            want = min(want, self.limit - offset)
        self._chunk = self._file.pread(want, offset) if want > 0 else b""
        # At the end, what comes next is short: room for a MiB costs more than to read a record.
        at_end = len(self._chunk) < want
        self._once_bytes = FIRST_BYTES if at_end else min(4 * self._once_bytes, CHUNK_BYTES)
        self._chunk_view = memoryview(self._chunk)
        self._chunk_at = offset
        return min(size, len(self._chunk))

    def _whole(self, offset: int) -> FrameHeader | None:
        """The header at `offset`, its frame read as a whole; None if there is none, or if the
        frame ends behind what is there."""
        if self._load(offset, FRAME_HEADER_LEN) < FRAME_HEADER_LEN:
            return None
        header = decode_header(self._chunk, offset - self._chunk_at, offset, self._salt)
        if header is None:
            return None
        length = header.frame_len
        if offset + length - self._chunk_at > len(self._chunk):
            # Asked of the file's size first: no length allocates what is not there.
            if (length > CHUNK_BYTES or not self._bodies) and offset + length > self._end():
                return None
            if self._bodies and self._load(offset, length) < length:
                return None
            self._fit(length)
        return header

    def _fit(self, length: int) -> None:
        """A frame reached over what was read: the next reads end where frames of its length do, so
        that none is begun and read again. Unless the end was near, or it is too long for that."""
        if length <= CHUNK_BYTES_MAX and self._once_bytes > FIRST_BYTES:
            frames = max(1, CHUNK_BYTES // length)
            self._once_bytes = frames * length + length // 32  # as long as that, or a little longer

    def _frame_at(self, offset: int) -> Frame | None:
        """The intact frame at `offset`, else None."""
        header = self._whole(offset)
        if header is None:
            return None
        if not self._bodies:
            return Frame(offset, offset + header.frame_len, header, memoryview(b""))
        frames = self._intact(offset, most=1)
        return frames[0] if frames else None

    def _forget(self) -> None:
        self._chunk, self._chunk_view = b"", memoryview(b"")

    def _bad(self) -> Outcome:
        """Nothing intact at `offset`: a tail, damage, or a write that has been finished since."""
        begin = self.offset
        state = self._file.stat()
        seen = (begin, state.size, state.mtime_ns)
        end = state.size if self.limit is None else min(state.size, self.limit)
        if seen == self._searched:  # nothing was written since the last search
            self._forget()
            return Tail(begin, max(begin, end), self._blank)
        if (near := self._near(begin)) is not None:
            return self._damage(begin, near, end)
        self._forget()
        if (again := self._frame_at(begin)) is not None:
            self.offset = again.end
            return again
        found = self._search(begin + ALIGNMENT, end)
        self._forget()
        if found is None:
            self._searched = seen
            self._blank = self._file.is_blank(begin, end)
            return Tail(begin, max(begin, end), self._blank)
        if (again := self._frame_at(begin)) is not None:
            self.offset = again.end
            return again
        return self._damage(begin, found, end)

    def _damage(self, begin: int, found: int, end: int) -> Damage:
        self.offset = found
        return Damage(begin, found, self._marked_behind(found, end))

    def _near(self, begin: int) -> int | None:
        """The next intact frame in the bytes at hand, if the file still holds the same bad ones
        before it. Without this, each damaged place would cost a chunk to be read again."""
        at = begin - self._chunk_at
        for offset, header in _headers(self._chunk, self._chunk_at, begin + ALIGNMENT, self._salt):
            body = self._chunk_view[offset - self._chunk_at :][: header.frame_len]
            if len(body) < header.frame_len or not body_matches(header, body[FRAME_HEADER_LEN:]):
                continue
            bad = self._chunk_view[at : at + offset - begin]
            return offset if self._file.pread(len(bad), begin) == bad else None
        return None

    _blank = True

    def _chunks(self, begin: int, end: int) -> Iterator[tuple[bytes, int]]:
        """What stands in [begin, end), so that each header is whole in one of the pieces; small
        pieces first, as what is looked for is mostly near."""
        at, size = begin, HOP_BYTES
        while at + FRAME_HEADER_LEN <= end:
            chunk = self._file.pread(min(size, end - at), at)
            yield chunk, at
            if len(chunk) < FRAME_HEADER_LEN:
                return
            at += (len(chunk) - FRAME_HEADER_LEN) // ALIGNMENT * ALIGNMENT + ALIGNMENT
            size = min(2 * size, CHUNK_BYTES)

    def _search(self, begin: int, end: int) -> int | None:
        """The first intact frame in [begin, end): header and body both right."""
        bodies, self._bodies = self._bodies, True
        try:
            for chunk, at in self._chunks(begin, end):
                for offset, _ in _headers(chunk, at, at, self._salt):
                    if self._frame_at(offset) is not None:
                        return offset
        finally:
            self._bodies = bodies
        return None

    def _marked_behind(self, offset: int, end: int) -> bool:
        """Whether a frame from `offset` on says that all before it was durable.

        Headers suffice: a header's own hash vouches for its flag. Each byte is looked at once in
        a walker's life, so that many damaged places do not make it quadratic.
        """
        if offset <= self._mark:
            return True
        at = max(offset, self._unmarked_to)
        pieces = chain([(self._chunk, self._chunk_at)], self._chunks(at, end))
        for chunk, chunk_at in pieces:
            for place, header in _headers(chunk, chunk_at, max(at, chunk_at), self._salt):
                if header.durable:
                    self._mark, self._unmarked_to = place, place + ALIGNMENT
                    return True
        self._unmarked_to = max(at, end)
        return False


def _headers(
    chunk: bytes, chunk_at: int, begin: int, salt: int
) -> Iterator[tuple[int, FrameHeader]]:
    """Right headers at `begin` or behind it, with their offsets, in bytes from `chunk_at` on."""
    i = chunk.find(MAGIC_BYTES, begin - chunk_at)
    while 0 <= i <= len(chunk) - FRAME_HEADER_LEN:
        offset = chunk_at + i
        if offset % ALIGNMENT == 0:
            header = decode_header(chunk, i, offset, salt)
            if header is not None:
                yield offset, header
        i = chunk.find(MAGIC_BYTES, i + 1)
