"""The bytes of one object, read in ranges: large ones ahead of a reader that goes on, small ones elsewhere.

A read at a new place takes 64 KiB: a header, or what a seek needs. A read near the object's end takes its
last part, in which a slab's seal and index are. A read that continues where an earlier range ended takes
8 MiB, and the next two ranges are requested before they are asked for. When a scan has requested the end of
an object, the beginning of the next one is requested, too.
"""

from __future__ import annotations

from collections import OrderedDict
from threading import Lock
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future, ThreadPoolExecutor

    from aolog.format.frame import Buffer

RANGE_BYTES = 8 << 20  # at 30 ms a request, two ahead carry 500 MB/s; larger ones no more
_AHEAD = 2
_PLACE_BYTES = 64 << 10
# An index has 20 bytes for 16 KiB of frames: with this part of the object the seal comes with the trailer.
_TAIL_BYTES_MIN, _TAIL_PART = 64 << 10, 512
_KEPT = 5  # ranges: the one that is read, two ahead, the first and the last


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
        self._ranges: OrderedDict[tuple[int, int], Future[Buffer]] = OrderedDict()

    def start(self, *, inside: bool = False) -> None:
        """Requests what a scan from the beginning reads first. inside: from another place, which it looks up in
        the index."""
        with self._lock:
            if not self._ranges:
                first = self._span(0, 0)
                self._request(first)
                if first[1] < self._size:
                    begin = self._size - 1 if inside else first[1]
                    self._request(self._span(begin, begin))

    def read(self, size: int, offset: int) -> bytes:
        """Up to `size` bytes at `offset`; fewer only at the end. Raises what `fetch` raises."""
        end = min(offset + size, self._size)
        parts = []
        while offset < end:
            (begin, stop), data = self._at(offset, end)
            upto = min(end, stop)
            parts.append(memoryview(data)[offset - begin : upto - begin])
            offset = upto
        return bytes(parts[0]) if len(parts) == 1 else b"".join(parts)

    def _at(self, offset: int, end: int) -> tuple[tuple[int, int], Buffer]:
        """A range that contains the byte at `offset`, and its bytes. end: of the bytes wanted."""
        at_end = None
        with self._lock:
            span = next((s for s in self._ranges if s[0] <= offset < s[1]), None)
            if span is None:
                span = self._span(offset, end)
                self._request(span)
            self._ranges.move_to_end(span)
            future = self._ranges[span]
            if span[1] - span[0] == RANGE_BYTES:
                self._request_ahead(span[1])
                at_end = self._take_at_end(span[1])
            while len(self._ranges) > _KEPT:
                self._ranges.popitem(last=False)
        if at_end is not None:
            at_end()
        try:
            return span, future.result()
        except BaseException:
            with self._lock:  # the next read asks again
                self._ranges.pop(span, None)
            raise

    def _span(self, offset: int, end: int) -> tuple[int, int]:
        tail = max(_TAIL_BYTES_MIN, self._size // _TAIL_PART)
        if any(stop == offset for _, stop in self._ranges):  # it goes on
            return offset, min(offset + RANGE_BYTES, self._size)
        if offset >= self._size - tail:
            return self._size - tail if self._size > tail else 0, self._size
        return offset, min(self._size, max(end, offset + _PLACE_BYTES))

    def _request_ahead(self, begin: int) -> None:
        for at in range(begin, min(self._size, begin + _AHEAD * RANGE_BYTES), RANGE_BYTES):
            span = at, min(at + RANGE_BYTES, self._size)
            if span not in self._ranges:
                self._request(span)

    def _take_at_end(self, stop: int) -> Callable[[], None] | None:
        """What to call now, if the end is requested by a scan that is in the range before `stop`; once."""
        if stop + _AHEAD * RANGE_BYTES < self._size:
            return None
        at_end, self._at_end = self._at_end, None
        return at_end

    def _request(self, span: tuple[int, int]) -> None:
        self._ranges[span] = self._pool.submit(self._fetch, *span)
