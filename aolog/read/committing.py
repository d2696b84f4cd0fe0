"""Committing: what a cursor passes is durable before the cursor is, so it is never ahead of its log.

A disk may take its time. So a commit has two halves: one that looks at the log, for the thread
that reads it, and one that waits for the disk, for whichever thread has the time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from aolog.log.cursor_file import CursorFile, Position
    from aolog.log.directory import Log
    from aolog.storage.files import File

__all__ = ["Commits"]


class Commits:
    """Those of a reader's cursor, which it owns. To be closed once none is under way."""

    def __init__(self, log: Log, cursor: CursorFile) -> None:
        self._log = log
        self._cursor = cursor
        self._last: tuple[int, File] | None = None  # slab: its base, and a file of our own

    @property
    def position(self) -> Position | None:
        """What is committed; None if nothing ever was."""
        return self._cursor.position

    def prepare(self, position: Position) -> Callable[[], None]:
        """What makes the position durable when it is called: one at a time, in their order.
        Raises StorageError, as does what it returns, which raises LogClosed behind `close`, and
        where it is the cursor's first CursorLocked."""
        published = list(self._log.published.values())
        last = self._last_slab(position.address)

        def commit() -> None:
            if published:  # by a job that may have been killed before that was durable
                from aolog.log.manifest import sync_roots

                sync_roots(self._log.path, published, self._log.storage)
            if last is not None:
                last.datasync()
            self._cursor.commit(position)

        return commit

    def _last_slab(self, address: int) -> File | None:
        """The log's last, if the position is there; those before it are sealed, and durable. None
        where the writer does not sync: format 1 does not say whether it does, and counts as if."""
        log, last, self._last = self._log, self._last, None  # one that is removed keeps its room
        i = log.position(address)
        if i < 0 or i + 1 < len(log.bases):
            return None
        try:
            slab = log.slab(i)
            if slab.header is not None and not slab.header.synced:
                return None
            if last is None or last[0] != slab.base:
                last = slab.base, log.open_file(slab.base)
        except FileNotFoundError:  # pruned since it was listed
            return None
        self._last = last
        return last[1]

    def close(self) -> None:
        """Idempotent; gives the cursor to the next reader."""
        self._last = None
        self._cursor.close()
