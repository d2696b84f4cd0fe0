"""The present state of a stream's logs, found cheaply.

A look reads two directory entries for each log: its directory's, whose time changes with its slabs,
and its last slab's, whose size or time changes with an append. Only changed logs are opened. An entry
that may change without a new time (aolog/log/slab_list.py) proves nothing: its log is opened each time.
Every second the names of all slabs are listed, which no time can hide.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from aolog.errors import AologError, NotALog
from aolog.format.names import MANIFEST_NAME
from aolog.format.slab import slab_name
from aolog.log.directory import Log
from aolog.read import seek
from aolog.spark.listing import (
    Found,
    all_logs,
    is_wanted,
    look,
    look_at_all,
    steadily_all,
)
from aolog.storage.listing import shows_changes
from aolog.storage.objects.url import archive_of, is_url
from aolog.storage.storage import Storage

if TYPE_CHECKING:
    from collections.abc import Callable
    from collections.abc import Set as AbstractSet

    from aolog.spark.listing import Listed
    from aolog.spark.options import Options

_T = TypeVar("_T")

LOOK_EVERY_S = 0.02  # and at most a quarter of the time: Spark asks every 11 ms
LIST_EVERY_S = 1.0  # look for new logs in the tree
_REST = 4  # times the duration of a look
_OPEN_MAX = 64  # logs whose last slab stays open, so that its frames are not walked again


class _State(NamedTuple):
    """Inodes and times of change. name: of the last slab."""

    name: str
    directory: tuple[int, int]
    slab: tuple[int, int]
    slab_bytes: int


class Watching:
    """The logs that the options select. Not thread-safe. Opens nothing until the first look."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._storage = Storage()
        self._found: list[Found] = []
        self._states: dict[str, _State] = {}
        self._manifests: dict[str, tuple[int, int]] = {}
        self._open: OrderedDict[str, Log] = OrderedDict()
        self._look_at = self._list_at = 0.0
        self.known: dict[str, Listed] = {}
        self.unselected: set[str] = set()  # names of the logs that the options exclude
        self.is_away = False  # whether a path holds no log any more: perhaps a mount is missing

    def close(self) -> None:
        """Idempotent."""
        for log in self._open.values():
            log.close()
        self._open.clear()

    def look(self, *, force: bool = False) -> dict[str, Listed]:
        """The logs by name, sorted. Unless forced, may return the result of a moment ago. Omits deleted
        logs. Raises StorageError, and UsageError if there is no log at all."""
        begun = time.monotonic()
        if begun < self._look_at and not force:
            return self.known
        if not self._found:  # the looks start again when they find another directory
            self._list()
            force = True
        if force:
            self._list_at = begun
        self.known = known = steadily_all(
            self._options.paths, self._found, self._look, self._storage
        )
        ended = time.monotonic()
        self._look_at = ended + max(LOOK_EVERY_S, _REST * (ended - begun))
        return known

    def _look(self, roots: AbstractSet[str]) -> tuple[dict[str, Listed], list[Found]]:
        found = {root: self._manifest(root) for root in roots}
        manifests = {root: state for root, state in found.items() if state is not None}
        is_published = manifests != self._manifests
        if is_published:  # new slabs and logs, without a change of their entries
            self._states.clear()
            self._manifests = manifests
        is_listed = is_published or time.monotonic() >= self._list_at
        if is_listed:
            self._list()
        seen = self._all_seen()
        if len(seen) < len(self._found) and not is_listed:  # deleted, or renamed
            self._list()
            seen = self._all_seen()
        return seen, self._found

    def _all_seen(self) -> dict[str, Listed]:
        seen: dict[str, Listed] = {}
        changed: list[tuple[Found, _State | None]] = []
        for found in self._found:
            before = self.known.get(found.name)
            if before is not None and not _is_at(before.path, found.path):
                before = None
            # Before the look, so that the next one sees a later change.
            state = self._state(found, before)
            same = state is not None and state == self._states.get(found.name)
            if before is not None and same and found.in_listing(before.bases):
                seen[found.name] = before
            else:
                changed.append((found, state))
        seen |= self._looked([found for found, _ in changed])
        for found, state in changed:
            now = seen.get(found.name)
            self._states.pop(found.name, None)
            if now is None:
                self._forget(found.name)
            elif state is not None and state.name == slab_name(now.bases[-1]):
                self._states[found.name] = state
        return {found.name: seen[found.name] for found in self._found if found.name in seen}

    def _looked(self, changed: list[Found]) -> dict[str, Listed]:
        if len(changed) > _OPEN_MAX:
            return look_at_all(changed, self._storage)
        looked = ((found.name, self._seen(found)) for found in changed)
        return {name: log for name, log in looked if log is not None}

    def _manifest(self, root: str) -> tuple[int, int] | None:
        """A new manifest is a new file."""
        try:
            # In a store a look at a name that is not there takes two requests.
            if is_url(root) and MANIFEST_NAME not in self._storage.list_names(root):
                return None
            found = self._storage.on(root).lstat(f"{root}/{MANIFEST_NAME}")
        except (FileNotFoundError, NotADirectoryError, NotALog):
            return None
        return found.st_ino, found.st_mtime_ns

    def _list(self) -> None:
        begun = time.monotonic()
        try:
            logs = all_logs(self._options)
        except NotALog:
            if not self._found:
                raise
            self.is_away = True  # `_seen` finds which of the known logs are left
        else:
            self.is_away = False
            self._found = [log for log in logs if is_wanted(log.name, self._options)]
            self.unselected = {log.name for log in logs} - {log.name for log in self._found}
        listed = time.monotonic()
        self._list_at = listed + max(LIST_EVERY_S, _REST * (listed - begun))

    def _seen(self, found: Found) -> Listed | None:
        """None if it is deleted."""
        with suppress(NotALog, FileNotFoundError):
            log = self._opened(found)
            if found.in_listing(log.bases):
                log.refresh_end()
            else:
                log.refresh(force=True)
            return look(found, log) if log.bases else None
        return None

    def _state(self, found: Found, before: Listed | None) -> _State | None:
        """None if it may change without a new time, or the last slab is not known by its name."""
        last = max(found.last, slab_name(before.bases[-1]) if before is not None else "")
        if not last:
            return None
        lstat = self._storage.on(found.path).lstat
        try:
            directory, slab = lstat(found.path), lstat(f"{found.path}/{last}")
        except (FileNotFoundError, NotADirectoryError):  # deleted, or published and not renamed yet
            return None
        times = directory.st_ctime_ns, slab.st_ctime_ns
        if not all(shows_changes(changed_ns, time.time_ns()) for changed_ns in times):
            return None
        own = (directory.st_ino, times[0]), (slab.st_ino, times[1])
        return _State(last, *own, slab.st_size)

    def _opened(self, found: Found) -> Log:
        log = self._open.pop(found.name, None)
        if log is not None and (not _is_at(log.path, found.path) or log.is_replaced()):
            log.close()
            log = None
        self._open[found.name] = log = log or Log(found.path, self._storage)
        while len(self._open) > _OPEN_MAX:
            self._open.popitem(last=False)[1].close()
        return log

    def _forget(self, name: str) -> None:
        self._states.pop(name, None)
        log = self._open.pop(name, None)
        if log is not None:
            log.close()

    def has_records(self, log: Listed, since: int, end: int, ordinal: int | None) -> bool:
        """Whether there may be a record in `[since, end)`. Reads no bodies. Marks, seals and headers
        move a log's end too. ordinal: at `since` when it was read; it proves nothing if it is above the
        log's, which may have lost its end with the page cache."""
        if log.ordinal is None or end != log.end or (ordinal is not None and ordinal < log.ordinal):
            return True
        begin = self.ordinal_at(log, since)  # if it is unknown, the task that reads it reports why
        return begin is None or begin < log.ordinal

    def ordinal_at(self, log: Listed, address: int) -> int | None:
        """Records of the log before the address; None if unknown or pruned."""
        return self.ask(log, lambda opened: seek.at_address(opened, address).ordinal)

    def ask(self, log: Listed, question: Callable[[Log], _T]) -> _T | None:
        """The answer of the opened log; None if it cannot be read now."""
        try:
            opened = self._opened(Found(log.name, log.path))
            return opened.listed(lambda: question(opened))
        except (AologError, FileNotFoundError):
            return None


def _is_at(path: str, other: str) -> bool:
    """Whether two paths are the same, read with the same archive."""
    return path == other and archive_of(path) == archive_of(other)
