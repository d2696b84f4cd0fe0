"""Walking a slab: from bytes to frames, and over damage to the next intact frame.

A walker begins at the offset of a frame (a slab's first frame, or a point of its index) and follows the
chain. It trusts a place that a search found only if header and body are intact. It returns values:

    Frame    an intact frame
    Damage   [begin, end) is not intact, and an intact frame begins at `end`
    Tail     nothing is intact from `begin` on: an unfinished write, zeros, or the end

The caller decides what a tail means: not yet written, torn, or corrupt. The walker reads a bad place
that an intact frame follows once more before it returns Damage: the writer may have finished the
frame meanwhile.

The time is linear in the bytes. A search reads each byte once, and hashes a body only if its header is
intact.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple, TypeAlias, TypeVar

from aolog.format.frame import FRAME_HEADER_LEN, Frame
from aolog.format.framing import CHUNK_BYTES
from aolog.format.slab import NO_TIMESTAMP
from aolog.format.stretch import Window, gather, survey

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from aolog.format.framing import Framing
    from aolog.format.stretch import Stretch, Survey
    from aolog.storage.file import File

_CHUNK_BYTES_MAX = 4 << 20  # the header of a longer frame is read alone first
_RUN_FRAMES_MAX = CHUNK_BYTES // FRAME_HEADER_LEN  # of the shortest frames, as a read has
# The first read, as a seek wants one record; each later one is four times it.
_FIRST_BYTES = 4 << 10


class Damage(NamedTuple):
    """[begin, end) in the slab is not intact."""

    begin: int
    end: int


class Tail(NamedTuple):
    """Nothing is intact from `begin` to `end`, the end of the slab."""

    begin: int
    end: int


Outcome: TypeAlias = Frame | Damage | Tail
_Found = TypeVar("_Found")


def outcomes(walker: Walker) -> Iterator[Outcome]:
    """All frames and damage from the walker's offset on, up to a tail, which is the last outcome."""
    while True:
        frames = walker.run()
        yield from frames
        if not frames:
            found = walker.next()
            yield found
            if isinstance(found, Tail):
                return


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
        self._chunk_view = memoryview(b"")
        self._chunk_at = offset
        self._once_bytes, self._once_frames = _FIRST_BYTES, 1  # of a read and a run; they grow
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
        `next`. Takes half the time of `next` for each frame. The first runs are short: a read may
        contain thousands of frames."""
        most = self._once_frames
        self._once_frames = min(2 * most, _RUN_FRAMES_MAX)
        frames = self._from_chunk(lambda: self._intact(self.offset, most))
        if frames:
            self.offset = frames[-1].end
        return frames or []

    def survey(self, indexed: int, greatest_us: int, *, headers: bool = False) -> Survey | None:
        """The plain frames from `offset` on that one read contains, in numbers; moves after them. None: call
        `next`. The arguments are those of stretch.survey."""
        found = self._from_chunk(
            lambda: survey(self._window(), indexed, greatest_us, headers=headers)
        )
        if found is not None:
            self.offset = found.end
        return found

    def skip(self, end: int) -> Survey | None:
        """Moves past the plain frames that end at this offset or before it, as far as one read contains them.
        None: there is none."""

        def take() -> Survey | None:
            return survey(self._window(end), end, NO_TIMESTAMP, headers=False)

        is_read = self._chunk_at <= self.offset <= end <= self._chunk_at + len(self._chunk)
        found = take() if is_read else self._from_chunk(take)
        if found is not None:
            self.offset = found.end
        return found

    def gather(self, base: int) -> list[Stretch]:
        """The stretches from `offset` on that one read contains; moves after them. Empty: call `next`.
        base: the slab's."""
        found = self._from_chunk(lambda: gather(self._window(), base))
        if found:
            self.offset = found[-1].end
        return found or []

    def _window(self, end: int | None = None) -> Window:
        """What was read from `offset` on, up to `end`."""
        chunk, view, at, offset = self._chunk, self._chunk_view, self._chunk_at, self.offset
        if end is not None:
            chunk = chunk[: max(0, end - at)]
            view = memoryview(chunk)
        intact = partial(self._framing.intact, chunk, view, at, offset, -1)  # all
        return Window(chunk, view, at, offset, self._framing.salt, intact)

    def _from_chunk(self, take: Callable[[], _Found | None]) -> _Found | None:
        """What `take` finds from `offset` on in the chunk, or in the next one if the chunk is used up."""
        found = (
            take() if self._chunk_at <= self.offset < self._chunk_at + len(self._chunk) else None
        )
        if not found and (not self._chunk or self._chunk_at < self.offset):
            read = self._chunk
            if self._load_frame(self.offset) and self._chunk is not read:
                found = take()
        return found

    def _intact(self, offset: int, most: int) -> list[Frame]:
        return self._framing.intact(self._chunk, self._chunk_view, self._chunk_at, offset, most)

    def _load(self, offset: int, size: int) -> int:
        """Reads `size` bytes at `offset` into the chunk, fewer at the end. Returns their number."""
        at = offset - self._chunk_at
        if at >= 0 and at + size <= len(self._chunk):
            return size
        want = max(size, self._once_bytes)
        if self.limit is not None:
            want = min(want, self.limit - offset)
        self._chunk = self._file.pread(want, offset) if want > 0 else b""
        # New frames at the end are short: a large buffer costs more than reading one record.
        at_end = len(self._chunk) < want
        self._once_bytes = _FIRST_BYTES if at_end else min(4 * self._once_bytes, CHUNK_BYTES)
        self._chunk_view = memoryview(self._chunk)
        self._chunk_at = offset
        return min(size, len(self._chunk))

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
        frames = self._intact(offset, most=1) if self._load_frame(offset) else []
        return frames[0] if frames else None

    def _forget(self) -> None:
        self._chunk, self._chunk_view = b"", memoryview(b"")

    def _bad(self) -> Outcome:
        """Nothing is intact at `offset`: a tail, damage, or a frame that was finished meanwhile."""
        begin = self.offset
        state = self._file.stat()
        seen = (begin, state.size, state.changed_ns)
        end = state.size if self.limit is None else min(state.size, self.limit)
        if seen == self._searched:  # nothing was written since the last search
            return self._tail(begin, end)
        if (near := self._near(begin)) is not None:
            return self._damage(begin, near)
        self._forget()
        if (again := self._frame_at(begin)) is not None:
            self.offset = again.end
            return again
        found = self._search(begin, end)
        self._forget()
        if found is None:
            self._searched = seen
            return self._tail(begin, end)
        if (again := self._frame_at(begin)) is not None:
            self.offset = again.end
            return again
        return self._damage(begin, found)

    def _tail(self, begin: int, end: int) -> Tail:
        self._forget()
        self._once_bytes = _FIRST_BYTES
        return Tail(begin, max(begin, end))

    def _damage(self, begin: int, found: int) -> Damage:
        self.offset = found
        return Damage(begin, found)

    def _near(self, begin: int) -> int | None:
        """The next intact frame in the chunk, if the file still has the same bad bytes before it.
        Without this, each damaged place would read a chunk again."""
        at = begin - self._chunk_at
        offset = self._framing.near(self._chunk, self._chunk_view, self._chunk_at, begin)
        if offset is None:
            return None
        bad = self._chunk_view[at : at + offset - begin]
        return offset if self._file.pread(len(bad), begin) == bad else None

    def _search(self, begin: int, end: int) -> int | None:
        """The offset of the next intact frame after the bad bytes at `begin`, before `end`."""
        for offset in self._framing.search(self._file.pread, begin, end):
            if self._frame_at(offset) is not None:
                return offset
        return None
