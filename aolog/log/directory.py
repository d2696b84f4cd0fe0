"""`Log`: the slabs of a log, opened as they are needed. Reads only: readers, the opener of a writer, verify and
retention share it.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections import OrderedDict
from typing import TYPE_CHECKING

from aolog.errors import NewerFormat, StorageError
from aolog.format.slab import NO_PREDECESSOR
from aolog.log.identity import Identity
from aolog.log.interruption import pass_on
from aolog.log.log_format import LogFormat, find_format, opened
from aolog.log.slab_list import SlabList
from aolog.record import Gap, count_between
from aolog.storage.file import refuse_others

if TYPE_CHECKING:
    from collections.abc import Callable

    from aolog.format.slab import SlabHeader
    from aolog.log.slab_file import Slab
    from aolog.storage.directory import Directory
    from aolog.storage.storage import Storage

_OPEN_SLABS_MAX = 16  # descriptors and indexes kept for seeks back and forth


class Log(SlabList):
    """See the module. identity: to which log its slabs belong. Not thread-safe."""

    def __init__(self, path: str | Directory, storage: Storage) -> None:
        self._slabs: OrderedDict[int, Slab] = OrderedDict()
        self._format: LogFormat | None = None  # None: nothing has asked for it yet
        self.identity = Identity(self, lambda: self.known_format.has_headers)
        super().__init__(path, storage)

    def close(self) -> None:
        """As SlabList."""
        for slab in self._slabs.values():
            slab.file.close()
        self._slabs.clear()
        super().close()

    # --- the listing --------------------------------------------------------------------------

    def is_replaced(self, slab: Slab | None = None) -> bool:
        """Whether its path now has another directory or another last slab than the open ones: the log
        was removed and created again or put back. False if nothing is there. slab: the caller's last."""
        if self.directory.is_elsewhere():
            return True
        last = slab or (self._slabs.get(self.bases[-1]) if self.bases else None)
        if last is None:
            return False
        try:
            there = self.directory.system.lstat(self.slab_path(last.base))
        except OSError as error:
            refuse_others(error)
            return False
        return there.st_ino != last.file.stat().inode

    def refresh(self, *, force: bool = False) -> bool:
        """As SlabList."""
        if not super().refresh(force=force):
            return False
        if self._format is not None and self._format.shown is None:
            self._format = None  # the new listing may show it
        for base, slab in list(self._slabs.items()):
            i = self.index_of(base)
            if i >= 0 and self.bases[i] == base:
                slab.limit = self.limit(base)
            else:
                self.forget(base)  # a scan in it goes on to its end
        return True

    def refresh_after(self, slab: Slab) -> None:
        """As `refresh`, for a caller that has read this slab to its end. Without a listed successor it does
        not rely on the directory's time. (Nor does it look for the successor by name: overlay and NFS
        remember that there was none, and would hide it.)"""
        if self.refresh() or self.after(slab.base) is not None:
            return
        has_ended = not slab.has_headers or slab.seal() is not None  # others do not show it
        if self._listing.is_old(time.monotonic(), has_ended=has_ended):
            self.refresh(force=True)

    def refresh_end(self) -> None:
        """As `refresh`, for a caller that asks for the log's end: see `refresh_after`."""
        if self.refresh() or not self.bases:
            return
        try:
            last = self.slab(len(self.bases) - 1)
        except (FileNotFoundError, NewerFormat, StorageError) as error:
            pass_on(error)
            return  # a caller that needs this slab gets the error
        self.refresh_after(last)

    # --- its format ---------------------------------------------------------------------------

    # Not a cached_property: in CPython 3.11 all of a class share one lock, which a forked child may inherit held.
    @property
    def known_format(self) -> LogFormat:
        """What is known of it. A writer that knows better may set it."""
        if self._format is None:
            self._format = find_format(self)
        return self._format

    @known_format.setter
    def known_format(self, known: LogFormat) -> None:
        self._format = known

    @property
    def has_headers(self) -> bool:
        """Whether its slabs have headers, marks and seals, and count records: format 2."""
        self.require_slabs()
        return self.known_format.has_headers

    # --- its slabs ----------------------------------------------------------------------------

    def slab(self, i: int) -> Slab:
        """The i-th slab, opened. It is kept until 16 others are opened, and as long as the caller uses
        it. Raises FileNotFoundError if it was pruned since the listing."""
        base = self.bases[i]
        slab = self._slabs.get(base)
        if slab is None or not self.identity.still_has(slab.header):
            with self.open_file(base).closed_on_error() as file:
                slab = opened(
                    file, base, self.limit(base), lambda: self.known_format, self.identity.is_ours
                )
            self._slabs[base] = slab
        self._slabs.move_to_end(base)
        if len(self._slabs) > _OPEN_SLABS_MAX:
            self._slabs.popitem(last=False)  # it is closed once nobody uses it
        return slab

    def forget(self, base: int) -> None:
        """Does not keep a slab that was read to its end."""
        self._slabs.pop(base, None)

    def find(self, reached: Callable[[SlabHeader], bool]) -> int:
        """The index of the last slab whose header satisfies a condition that, once false, stays
        false; 0 if none does. Reads O(log n) headers. A slab without a header counts as its
        predecessor does, and is never the result."""

        def is_past(i: int) -> bool:
            header = next(filter(None, map(self.header, range(i, -1, -1))), None)
            return header is not None and not reached(header)

        i = bisect_left(range(1, len(self.bases)), True, key=is_past)
        while i > 0 and self.header(i) is None:
            i -= 1
        return i

    def pruned_before(self, address: int, ordinal: int | None, *, first: int = 0) -> Gap | None:
        """The unread records that retention removed: a gap from the position to the log's first slab, with
        reason "pruned". None if no record was removed. Computed, never stored, so that lag, the list of
        cursors, the writer's warning and the bridge report the same number.

        ordinal: records of the log before the position; None if unknown. first: index of the slab to
        treat as the log's first, to compute a loss before the removal. The count is exact; it is None
        without headers, after damage whose records cannot be counted, and if the first slab's header is
        lost. Raises FileNotFoundError if a slab is pruned meanwhile.
        """
        begin = self.bases[first]
        if address >= begin:
            return None
        header = self.slab(first).header
        if header is not None and header.predecessor_base == NO_PREDECESSOR:
            return None  # the log never had a slab before this one
        lost = None if header is None else count_between(ordinal, header.known_ordinal)
        return None if lost == 0 else Gap(address, begin, "pruned", lost)

    def header(self, i: int) -> SlabHeader | None:
        """The header of the i-th slab; None if it has none, or was pruned since the listing."""
        try:
            return self.slab(i).header
        except FileNotFoundError:
            return None

    def last_header(self) -> SlabHeader | None:
        """The last header that is intact; None if there is none."""
        headers = map(self.header, reversed(range(len(self.bases))))
        return next(filter(None, headers), None)
