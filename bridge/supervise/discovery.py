"""The logs of a tree of directories: which there are, and which may have grown.

A log is a directory with a slab in it; nothing is looked for inside of one. Its name is its path
below the root, "." for the root itself. Symbolic links are not followed. inotify tells of logs
that come and of parked logs that grow, with one descriptor for all of them; going through the
tree now and then finds what it missed, and everything where there is no inotify.
"""

from __future__ import annotations

import contextlib
import os
import re
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, NamedTuple

from aolog.errors import AologError
from aolog.log.names import PENDING_SUFFIX, slab_base, slab_name
from aolog.storage.storage import Storage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from inotify_simple import INotify

__all__ = ["Growth", "Tree", "find_logs", "growth", "is_gone", "missing"]

_GONE = (FileNotFoundError, NotADirectoryError)
_UNTOLD = (OSError, AologError)  # the second: by the manifest, which of its pending slabs count


class Growth(NamedTuple):
    """What a log's last slab looked like; another look that differs means that it grew."""

    name: str
    bytes: int
    changed_ns: int


def find_logs(
    root: str, include: Sequence[str] = ("*",), exclude: Sequence[str] = ()
) -> dict[str, str]:
    """Name and path of each log under the root, sorted. What cannot be listed holds none."""
    return _walk(root, include, exclude)[0]


def missing(root: str) -> str | None:
    """Why nothing is to be found there; None where there is a directory that can be listed."""
    try:
        os.scandir(root).close()
    except OSError as error:
        none = isinstance(error, FileNotFoundError)
        return "no such directory" if none else os.strerror(error.errno or 0)
    return None


def _walk(
    root: str, include: Sequence[str], exclude: Sequence[str]
) -> tuple[dict[str, str], list[str], dict[str, str]]:
    """The logs, the directories that are none, and names of those that cannot be listed, with
    the reasons, unless the patterns leave alone all that could be there."""
    found: dict[str, str] = {}
    unlisted: dict[str, str] = {}
    others: list[str] = []
    todo = [(root, ".")]
    while todo:
        path, name = todo.pop()
        children: list[tuple[str, str]] = []
        pending: list[str] = []
        is_log = False
        try:
            with os.scandir(path) as entries:
                for entry in entries:
                    if slab_base(entry.name) is not None:
                        is_log = True
                        break
                    if entry.name.endswith(PENDING_SUFFIX):
                        pending.append(entry.name)
                    if entry.is_dir(follow_symlinks=False):
                        below = entry.name if name == "." else f"{name}/{entry.name}"
                        children.append((entry.path, below))
            is_log = is_log or bool(_published(path, pending))
        except _GONE:
            continue
        except _UNTOLD as error:
            if _may_be_wanted(name, include, exclude):
                unlisted[name] = _reason(error)
            continue
        if not is_log:
            others.append(path)
            todo += children
        elif _wanted(name, include, exclude):
            found[name] = path
    return dict(sorted(found.items())), others, unlisted


def _wanted(name: str, include: Sequence[str], exclude: Sequence[str]) -> bool:
    return any(fnmatchcase(name, p) for p in include) and not any(
        fnmatchcase(name, p) for p in exclude
    )


def _may_be_wanted(name: str, include: Sequence[str], exclude: Sequence[str]) -> bool:
    """Whether the directory, or one below it, may be a log that is wanted; rather yes than no."""
    if name == ".":
        return True
    if any(p.endswith("*") and fnmatchcase(name, p) for p in exclude):  # and all that is below
        return False
    plain = [re.split(r"[*?[]", p, maxsplit=1)[0] for p in include]
    return any(p.startswith(f"{name}/") or f"{name}/".startswith(p) for p in plain)


def _published(path: str, pending: list[str]) -> dict[int, str]:
    """Those of a directory's pending slabs that are published and not renamed yet, by base. Raises
    AologError."""
    if not pending:
        return {}
    from aolog.log.manifest import resolve

    return resolve(path, pending, Storage())


def _reason(error: OSError | AologError) -> str:
    return str(error) if isinstance(error, AologError) else os.strerror(error.errno or 0)


def growth(path: str) -> Growth | None:
    """How the log looks now; None if it is gone. Raises OSError or AologError where that cannot be
    told."""
    try:
        with os.scandir(path) as entries:
            names = [entry.name for entry in entries]
        last = max((name for name in names if slab_base(name) is not None), default=None)
        try:
            published = _published(path, [name for name in names if name.endswith(PENDING_SUFFIX)])
        except AologError:  # whoever opens the log is told
            if last is None:
                raise
            published = {}
        if published and (last is None or last < slab_name(max(published))):
            last = published[max(published)]
        if last is None:
            return None
        seen = os.stat(f"{path}/{last}")  # noqa: PTH116 -- of thousands of logs, a path object each
    except _GONE:
        return None
    return Growth(last, seen.st_size, seen.st_mtime_ns)


def is_gone(path: str) -> bool:
    """Whether there is no log; what cannot be listed may be one."""
    try:
        return growth(path) is None
    except _UNTOLD:
        return False


class Tree:
    """Watches a root, or single logs. Not thread-safe. Close it.

    logs: single ones, by their names, in place of what a root holds. unlisted: what the last scan
    could not list, and why, by name: a log may be there, or below.
    """

    def __init__(
        self,
        root: str | None,
        logs: dict[str, str] | None = None,
        *,
        include: Sequence[str] = ("*",),
        exclude: Sequence[str] = (),
    ) -> None:
        self.root = root
        self.logs = logs or {}
        self.include = include
        self.exclude = exclude
        self.unlisted: dict[str, str] = {}
        self._parked: dict[str, Growth | None] = {}
        self._watched: dict[str, int] = {}
        self._paths: dict[int, str] = {}
        self._inotify = _inotify()

    def scan(self) -> dict[str, str]:
        """Name and path of the logs that there are now. New directories are watched from now
        on."""
        if self.root is None:
            return self._scan_single()
        found, others, self.unlisted = _walk(self.root, self.include, self.exclude)
        wanted = {*others, *self._parked}
        for path in self._watched.keys() - wanted:
            self._unwatch(path)
        new = [path for path in others if path not in self._watched]
        for path in new:
            self._watch(path)
        if new:  # what came before the watch did
            found, _, self.unlisted = _walk(self.root, self.include, self.exclude)
        return found

    def _scan_single(self) -> dict[str, str]:
        """One that cannot be listed is named, so it is there: whoever opens it is told more."""
        found: dict[str, str] = {}
        self.unlisted = {}
        for name, path in self.logs.items():
            try:
                if growth(path) is None:
                    continue
            except _UNTOLD as error:
                self.unlisted[name] = _reason(error)
            found[name] = path
        return found

    def may_hold(self, name: str) -> bool:
        """Whether the last scan could not list that log's directory, or one above it."""
        above = name.split("/") if self.root is not None else []
        names = {".", name, *("/".join(above[:n]) for n in range(1, len(above)))}
        return not names.isdisjoint(self.unlisted)

    def park(self, path: str) -> None:
        """From now on growth of the log is told. Whoever parks it looks at it once more after
        this, so that nothing falls in between."""
        self._watch(path)
        if path in self._parked:  # by another task: what it was not told yet is news still
            return
        self._parked[path] = None
        with contextlib.suppress(*_UNTOLD):  # then it differs from the next look
            self._parked[path] = growth(path)

    def unpark(self, path: str) -> None:
        """Its growth is no news any more."""
        if self._parked.pop(path, None) is not None or path in self._watched:
            self._unwatch(path)

    def told(self) -> tuple[set[str], bool]:
        """Paths of parked logs that may have grown, and whether logs may have come or gone."""
        if self._inotify is None:
            return set(), False
        from inotify_simple import flags

        grown: set[str] = set()
        changed = False
        for event in self._inotify.read(timeout=0):
            path = self._paths.get(event.wd)
            if path is not None and event.mask & flags.IGNORED:  # it went, and its watch with it
                del self._paths[event.wd], self._watched[path]
            if path in self._parked:
                grown.add(path)
            else:  # of a directory, or the queue was too short for what happened
                changed = True
                grown |= self._parked.keys() if event.wd < 0 else set()
        return grown, changed

    def grown(self) -> set[str]:
        """Paths of parked logs that look different from when they were parked, or told last."""
        grown: set[str] = set()
        for path, before in self._parked.items():
            with contextlib.suppress(*_UNTOLD):  # the next look may tell
                if (now := growth(path)) != before:
                    grown.add(path)
                    self._parked[path] = now
        return grown

    def close(self) -> None:
        """Idempotent."""
        if self._inotify is not None:
            self._inotify.close()
            self._inotify = None

    def _watch(self, path: str) -> None:
        if self._inotify is None or path in self._watched:
            return
        from inotify_simple import flags

        events = flags.MODIFY | flags.CREATE | flags.MOVED_TO | flags.MOVED_FROM
        events |= flags.DELETE | flags.DELETE_SELF | flags.ONLYDIR
        with contextlib.suppress(OSError):  # gone, or no more watches: the scan will see
            number = self._inotify.add_watch(path, events)
            self._watched[path] = number
            self._paths[number] = path

    def _unwatch(self, path: str) -> None:
        number = self._watched.pop(path, None)
        if number is None or self._inotify is None:
            return
        self._paths.pop(number, None)
        with contextlib.suppress(OSError):  # it went with its directory
            self._inotify.rm_watch(number)


def _inotify() -> INotify | None:
    try:
        from inotify_simple import INotify

        return INotify(nonblocking=True)
    except (ImportError, OSError):  # not Linux, or its limit is reached
        return None
