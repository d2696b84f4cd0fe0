"""Walking a slab: from bytes to frames, and over damage to the next intact frame.

A walker begins at the offset of a frame (a slab's first frame, or a point of its index) and follows the
chain. It trusts a place that a search found only if header and body are intact. It returns values:

    Frame    an intact frame
    Damage   [begin, end) is not intact, and an intact frame begins at `end`
    Tail     nothing is intact from `begin` on: an unfinished write, zeros, or the end

The caller decides what a tail means: not yet written, torn, or corrupt. The time is linear in the bytes: a search
reads each byte once, and hashes a body only if its header is intact.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeAlias, TypeVar

from aolog.format.frame import Frame
from aolog.format.framing import CHUNK_BYTES
from aolog.format.slab import ADDRESS_END, NO_TIMESTAMP, ORDINALS_MAX
from aolog.format.stretch import Window, gather, read_gather, survey

if TYPE_CHECKING:
    from collections.abc import Callable

    from aolog.format.framing import Framing
    from aolog.format.stretch import Stretch, Survey
    from aolog.storage.file import File

_CHUNK_BYTES_MAX = 4 << 20  # the header of a longer frame is read alone first
# The first read, as a seek wants one record; each later one is four times it.
_FIRST_BYTES = 4 << 10
_COPIED_BYTES = 64 << 10  # gathered from a chunk that Python read, of which nothing can be moved
# A smaller part of a read is left over without a look at the frame that begins there: it is read again, in C.
_LEFT_PART = 8


class Damage(NamedTuple):
    """[begin, end) in the slab is not intact."""

    begin: int
    end: int


class Tail(NamedTuple):
    """Nothing is intact from `begin` to `end`, the end of the slab."""

    begin: int
    end: int


Outcome: TypeAlias = Frame | Damage | Tail
_Found = TypeVar("_Found", "list[Frame]", "list[Stretch]", "Survey")


class Walker:
    """The frames of a slab from `offset` on. Not thread-safe.

    limit: the offset at which the slab ends by its successor's name; None: at the end of the file.
    """

    def __init__(
        self, file: File, framing: Framing, offset: int, *, limit: int | None = None
    ) -> None:
        self.offset = offset
        self.limit = limit
        self._file = file
        self._framing = framing
        self._chunk = b""
        self._chunk_at = offset
        self._once_bytes = _FIRST_BYTES  # of a read; it grows
        self._gathered = -1  # where the last stretch of the chunk ends
        # Of the last tail: begin, size, changed_ns.
        self._searched: tuple[int, int, int] | None = None

    def next(self) -> Outcome:
        """The outcome at `offset`; moves after it unless it is a tail. After a tail each call looks
        again."""
        found = self._frame_at(self.offset)
        if found is None:
            return self._bad()
        self.offset = found.end
        return found

    def run(self) -> list[Frame]:
        """The intact frames from `offset` on that one read contains; moves after them. Empty: call
        `next`. Takes half the time of `next` for each frame."""
        return self._from_chunk(lambda: self._window().intact()) or []

    def survey(self, indexed: int, greatest_us: int, *, headers: bool = False) -> Survey | None:
        """The plain frames from `offset` on that one read contains, in numbers; moves after them. None: call
        `next`. The arguments are those of stretch.survey."""
        return self._from_chunk(
            lambda: survey(self._window(), indexed, greatest_us, headers=headers)
        )

    def skip(self, end: int, ordinal: int = ORDINALS_MAX) -> Survey | None:
        """Moves past the plain frames that end at this offset or before it, and before this record of the slab,
        as far as one read contains them. None: there is none."""

        def take() -> Survey | None:
            indexed = self._chunk_at + len(self._chunk)  # past all of them: no points are made
            return survey(self._window(end), indexed, NO_TIMESTAMP, headers=False, until=ordinal)

        is_read = self._chunk_at <= self.offset <= end <= self._chunk_at + len(self._chunk)
        found = take() if is_read else self._from_chunk(take)
        if found is not None:
            self.offset = found.end
        return found

    def gather(self, base: int, most: int) -> list[Stretch]:
        """The stretches from `offset` on that one read contains; moves after them. Empty: call `next`.
        base: the slab's. most: bytes of a stretch of several frames."""
        found = self._read_on(base, most)
        most = min(most, _COPIED_BYTES)
        found = found or self._from_chunk(lambda: gather(self._window(), base, most))
        if found:
            self._gathered = self.offset
        return found or []

    def _read_on(self, base: int, most: int) -> list[Stretch] | None:
        """As `gather`, in one call with the next large read of a plain file. None: use both."""
        offset, size, file = self.offset, self._once_bytes, self._file
        left = self._chunk_at + len(self._chunk) - offset
        if size == _FIRST_BYTES or offset != self._gathered or left >= size // _LEFT_PART:
            return None
        size = min(size, (self.limit or ADDRESS_END) - offset)
        if not file.is_plain or size <= 0:
            return None
        self._chunk = b""  # freed first, so that the read takes the same memory
        if (read := read_gather(file.fd, size, offset, self._framing, base, most)) is None:
            return None
        self._chunk, found = read
        self._chunk_at, self.offset = offset, found[-1].end
        self._grow(size)
        return found

    def _window(self, end: int | None = None) -> Window:
        """What was read from `offset` on, up to `end`."""
        at = self._chunk_at
        chunk = self._chunk if end is None else self._chunk[: max(0, end - at)]
        return Window(chunk, memoryview(chunk), at, self.offset, self._framing)

    def _from_chunk(self, take: Callable[[], _Found | None]) -> _Found | None:
        """What `take` finds from `offset` on in the chunk, or in the next one if the chunk is used up. Moves
        after it."""
        found, offset = None, self.offset
        left = self._chunk_at + len(self._chunk) - offset
        if offset == self._gathered:  # none of what is left is plain: perhaps a frame begins there
            self._gathered, left = -1, 0
        if 0 < left <= len(self._chunk):
            found = take()
        if not found and (not self._chunk or self._chunk_at < offset):
            read = self._chunk
            if self._load_frame(offset) and self._chunk is not read:
                found = take()
        if found:
            self.offset = (found[-1] if isinstance(found, list) else found).end
        return found

    def _load(self, offset: int, size: int) -> int:
        """Reads `size` bytes at `offset` into the chunk, fewer at the end. Returns their number."""
        at = offset - self._chunk_at
        if at >= 0 and at + size <= len(self._chunk):
            return size
        want = max(size, self._once_bytes)
        if self.limit is not None:
            want = min(want, self.limit - offset)
        self._chunk = self._file.pread(want, offset) if want > 0 else b""
        self._chunk_at = offset
        self._grow(want)
        return min(size, len(self._chunk))

    def _grow(self, want: int) -> None:
        """Sets the size of the next read, after one of so many bytes. New frames at the end are short: a large
        buffer costs more than reading one record."""
        at_end = len(self._chunk) < want
        self._once_bytes = _FIRST_BYTES if at_end else min(4 * self._once_bytes, CHUNK_BYTES)

    def _load_frame(self, offset: int) -> bool:
        """Whether there is a header at `offset`, and the frame ends before the end. Then the whole frame
        is in the chunk."""
        header_len = self._framing.header_len
        if self._load(offset, header_len) < header_len:
            return False
        length = self._framing.frame_len(self._chunk, offset - self._chunk_at, offset)
        if length is None:
            return False
        if offset + length - self._chunk_at > len(self._chunk):
            # Compare with the file's size first: a length in a header must not allocate memory.
            if length > CHUNK_BYTES and offset + length > self._file.end(self.limit):
                return False
            if self._load(offset, length) < length:
                return False
            self._fit(length)
        return True

    def _fit(self, length: int) -> None:
        """Makes the next reads end at the end of a frame of this length, which exceeded the chunk, so
        that no frame is read twice. Not near the end, and not for a very long frame."""
        if length <= _CHUNK_BYTES_MAX and self._once_bytes > _FIRST_BYTES:
            frames = max(1, CHUNK_BYTES // length)
            self._once_bytes = frames * length + length // 32  # frames that are a little longer fit

    def _frame_at(self, offset: int) -> Frame | None:
        """The intact frame at `offset`; None if there is none."""
        if not self._load_frame(offset):
            return None
        view = memoryview(self._chunk)
        frames = self._framing.intact(self._chunk, view, self._chunk_at, offset, 1)
        return frames[0] if frames else None

    def _bad(self) -> Outcome:
        """Nothing is intact at `offset`: a tail, damage, or a frame that was finished meanwhile."""
        begin = self.offset
        state = self._file.stat()
        seen = (begin, state.size, state.changed_ns)
        end = state.size if self.limit is None else min(state.size, self.limit)
        if seen == self._searched:  # nothing was written since the last search
            return self._tail(begin, end)
        found = self._near(begin)
        if found is None:
            self._chunk = b""
            if (again := self._frame_at(begin)) is not None:
                self.offset = again.end
                return again
            offsets = self._framing.search(self._file.pread, begin, end)
            found = next((at for at in offsets if self._frame_at(at) is not None), None)
            self._chunk = b""
            if found is None:
                self._searched = seen
                return self._tail(begin, end)
            if (again := self._frame_at(begin)) is not None:
                self.offset = again.end
                return again
        self.offset = found
        return Damage(begin, found)

    def _tail(self, begin: int, end: int) -> Tail:
        self._chunk = b""
        self._once_bytes = _FIRST_BYTES
        return Tail(begin, max(begin, end))

    def _near(self, begin: int) -> int | None:
        """The next intact frame in the chunk, if the file still has the same bad bytes before it.
        Without this, each damaged place would read a chunk again."""
        at, view = begin - self._chunk_at, memoryview(self._chunk)
        offset = self._framing.near(self._chunk, view, self._chunk_at, begin)
        if offset is None:
            return None
        bad = view[at : at + offset - begin]
        return offset if self._file.pread(len(bad), begin) == bad else None
