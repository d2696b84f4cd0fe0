"""The bytes of one object, read in ranges: large ones ahead of a scan, small ones elsewhere.

A read at a new place takes 64 KiB: a header, or what a seek needs. A read near the object's end takes its
last part, in which a slab's seal and index are. A read that continues where an earlier range ended is a scan's: it
takes 8 MiB, and the next two ranges are requested before they are asked for. `start` requests the first range of a
scan before it reads. When a scan has requested the end of an object, the beginning of the next one is requested, too.

In memory are at most five ranges, 40 MiB, and 8 MiB of the next object.
"""

from __future__ import annotations

from collections import OrderedDict
from threading import Lock
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future, ThreadPoolExecutor

    from aolog.format.frame import Buffer

RANGE_BYTES = 8 << 20  # at 30 ms a request, two ahead carry 500 MB/s; larger ones no more
_AHEAD = 2
_PLACE_BYTES = 64 << 10
# An index has 20 bytes for 16 KiB of frames: with this part of the object the seal comes with the trailer.
_TAIL_BYTES_MIN, _TAIL_PART = 64 << 10, 512
# Around what is wanted. A scan that begins inside walks from a point of the index, at most 16 KiB and a frame before
# that; after the last frame that is wanted it has read half a MiB more.
_AROUND_BYTES = 2 << 20
_KEPT = 5  # ranges: the one that is read, two ahead, and two others


class _Range(NamedTuple):
    """Bytes [begin, end) that were requested. of_scan: what follows them is requested ahead."""

    begin: int
    end: int
    of_scan: bool
    data: Future[Buffer]


class ReadAhead:
    """Thread-safe. fetch: the bytes [begin, end) of the object. at_end: called once, when a scan has requested
    the object's end."""

    def __init__(
        self,
        size: int,
        fetch: Callable[[int, int], Buffer],
        pool: ThreadPoolExecutor,
        at_end: Callable[[], None] | None = None,
    ) -> None:
        self._size = size
        self._fetch = fetch
        self._pool = pool
        self._at_end = at_end
        self._lock = Lock()
        self._until = size  # nothing is requested ahead from here on
        # By begin. Those that a scan needs next are the last ones: they are not dropped.
        self._ranges: OrderedDict[int, _Range] = OrderedDict()

    def start(self, begin: int, end: int) -> None:
        """Requests at once what a scan of these bytes reads first. If it begins inside, that is the header, the
        index, in which it looks up its place, and what probably is that place."""
        with self._lock:
            if self._ranges:
                return
            self._until = min(self._size, end + _AROUND_BYTES)
            if not begin:
                self._request(0, self._stop(0), of_scan=True)
                return
            header = self._request(*self._small(0, 0))
            if header.end < self._size:
                self._request(*self._small(self._size - 1, self._size))
            at = max(header.end, begin - _AROUND_BYTES)
            if max(at, begin) < self._until and self._range_at(at) is None:
                self._request(at, self._stop(at), of_scan=True)

    def read(self, size: int, offset: int) -> bytes:
        """Up to `size` bytes at `offset`; fewer only at the end. Raises what `fetch` raises."""
        end = min(offset + size, self._size)
        parts = []
        while offset < end:
            found, data = self._at(offset, end)
            upto = min(end, found.end)
            parts.append(memoryview(data)[offset - found.begin : upto - found.begin])
            offset = upto
        return bytes(parts[0]) if len(parts) == 1 else b"".join(parts)

    def _at(self, offset: int, end: int) -> tuple[_Range, Buffer]:
        """A range that contains the byte at `offset`, and its bytes. end: of the bytes wanted."""
        at_end = None
        with self._lock:
            found = self._range_at(offset)
            if found is None:
                if any(each.end == offset for each in self._ranges.values()):  # it goes on
                    found = self._request(offset, self._stop(offset), of_scan=True)
                else:
                    found = self._request(*self._small(offset, end))
            if found.of_scan:
                self._request_ahead(found.end)
                at_end = self._take_at_end(found.end)
            self._ranges.move_to_end(found.begin)
            while len(self._ranges) > _KEPT:
                self._ranges.popitem(last=False)
        if at_end is not None:
            at_end()
        try:
            return found, found.data.result()
        except BaseException:
            with self._lock:  # the next read asks again
                self._ranges.pop(found.begin, None)
            raise

    def _range_at(self, offset: int) -> _Range | None:
        """The range that contains the byte."""
        return next((r for r in self._ranges.values() if r.begin <= offset < r.end), None)

    def _small(self, offset: int, end: int) -> tuple[int, int]:
        """What to request for a read that is no scan's."""
        tail = max(_TAIL_BYTES_MIN, self._size // _TAIL_PART)
        if offset >= self._size - tail:
            return max(0, self._size - tail), self._size
        return offset, min(self._size, max(end, offset + _PLACE_BYTES))

    def _stop(self, begin: int) -> int:
        """The end of a scan's range: at most where another one begins."""
        limit = self._until if begin < self._until else self._size
        after = (each.begin for each in self._ranges.values() if each.begin > begin)
        return min(begin + RANGE_BYTES, limit, *after)

    def _request_ahead(self, at: int) -> None:
        for _ in range(_AHEAD):
            if at >= self._until:
                return
            found = self._range_at(at) or self._request(at, self._stop(at), of_scan=True)
            self._ranges.move_to_end(found.begin)
            at = found.end

    def _take_at_end(self, stop: int) -> Callable[[], None] | None:
        """What to call now, if the end is requested by a scan that is in the range before `stop`; once."""
        if stop + _AHEAD * RANGE_BYTES < self._size:
            return None
        at_end, self._at_end = self._at_end, None
        return at_end

    def _request(self, begin: int, end: int, *, of_scan: bool = False) -> _Range:
        made = _Range(begin, end, of_scan, self._pool.submit(self._fetch, begin, end))
        self._ranges[begin] = made
        return made
