"""Committing: what a cursor passes is durable before the cursor is, so it is never ahead of its log.

A disk may take its time. So a commit has two halves: one that looks at the log, for the thread
that reads it, and one that waits for the disk, for whichever thread has the time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from aolog.cursor import CursorFile, Position
    from aolog.log import Log
    from aolog.storage import File

__all__ = ["Commits"]


class Commits:
    """Those of a reader's cursor. To be closed once none is under way."""

    def __init__(self, log: Log, cursor: CursorFile) -> None:
        self._log = log
        self._cursor = cursor
        self._last: tuple[int, File] | None = None  # slab: base and a file that only this closes

    def prepare(self, position: Position) -> Callable[[], None]:
        """What makes the position durable when it is called: one at a time, in their order.
        Raises StorageError, as does what it returns."""
        published = list(self._log.published.values())
        last = self._last_slab(position.address)

        def commit() -> None:
            if published:  # by a job that may have been killed before that was durable
                from aolog.manifest import sync_roots

                sync_roots(self._log.path, published, self._log.storage)
            if last is not None:
                last.datasync()
            self._cursor.commit(position)

        return commit

    def _last_slab(self, address: int) -> File | None:
        """The log's last, if the position is there; those before it are sealed, and durable. None
        where the writer does not sync: format 1 does not say whether it does, and counts as if."""
        log = self._log
        i = log.position(address)
        if i < 0 or i + 1 < len(log.bases):
            return None
        try:
            slab = log.slab(i)
            if slab.header is not None and not slab.header.synced:
                return None
            if self._last is None or self._last[0] != slab.base:
                self._last = slab.base, log.open_file(slab.base)
        except FileNotFoundError:  # pruned since it was listed
            return None
        return self._last[1]

    def close(self) -> None:
        """Idempotent; gives the cursor to the next reader."""
        if self._last is not None:
            self._last[1].close()
            self._last = None
        self._cursor.close()
