"""Logs in a tree of directories: which exist, and which may have grown.

A log is a directory with a slab in it; directories inside a log are not searched. Its name is its path
below the root, "." for the root itself. Symbolic links are not followed. inotify reports new logs and
parked logs that grow, with one descriptor for all of them. A scan of the tree now and then finds what
inotify missed, and everything where there is no inotify.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import NamedTuple

from aolog.errors import AologError
from aolog.format.names import PENDING_SUFFIX
from aolog.format.slab import slab_base
from aolog.log.log_tree import holds_slabs
from aolog.log.manifest import resolve
from aolog.storage.storage import Storage

try:
    from inotify_simple import INotify, flags
except ImportError:  # not Linux
    INotify = None

_GONE = (FileNotFoundError, NotADirectoryError)
_UNREADABLE = (OSError, AologError)  # AologError: a damaged manifest of pending slabs


class Growth(NamedTuple):
    """A log's last slab. Another value: the log grew, or another one is in its place."""

    name: str
    bytes: int
    changed_ns: int


class Tree(NamedTuple):
    """What is below a root."""

    logs: dict[str, str]  # name and path of each, sorted
    others: list[str]  # paths of the other directories
    unlisted: dict[str, str]  # by name, why it cannot be listed; unless it is excluded


def missing(root: str) -> str | None:
    """Why the root cannot be listed; None if it can."""
    try:
        os.scandir(root).close()
    except OSError as error:
        none = isinstance(error, FileNotFoundError)
        return "no such directory" if none else os.strerror(error.errno or 0)
    return None


def find_logs(
    root: str, include: Sequence[str] = ("*",), exclude: Sequence[str] = ()
) -> dict[str, str]:
    """Name and path of each log below the root, sorted. Skips directories that cannot be listed."""
    return walk(root, include, exclude).logs


def walk(root: str, include: Sequence[str] = ("*",), exclude: Sequence[str] = ()) -> Tree:
    """What is below the root."""
    found: dict[str, str] = {}
    unlisted: dict[str, str] = {}
    others: list[str] = []
    todo = [(root, ".")]
    while todo:
        path, name = todo.pop()
        try:
            with os.scandir(path) as listed:
                entries = list(listed)
            is_log = holds_slabs(path, [entry.name for entry in entries], Storage())
            below = [] if is_log else [e for e in entries if e.is_dir(follow_symlinks=False)]
        except _GONE:
            continue
        except _UNREADABLE as error:
            if _may_be_wanted(name, include, exclude):
                unlisted[name] = _reason(error)
            continue
        if not is_log:
            others.append(path)
            todo += [(e.path, e.name if name == "." else f"{name}/{e.name}") for e in below]
        elif _wanted(name, include, exclude):
            found[name] = path
    return Tree(dict(sorted(found.items())), others, unlisted)


def _wanted(name: str, include: Sequence[str], exclude: Sequence[str]) -> bool:
    return any(fnmatchcase(name, p) for p in include) and not any(
        fnmatchcase(name, p) for p in exclude
    )


def _may_be_wanted(name: str, include: Sequence[str], exclude: Sequence[str]) -> bool:
    """Whether the directory, or one below it, may be a wanted log. True if in doubt."""
    if name == ".":
        return True
    if any(p.endswith("*") and fnmatchcase(name, p) for p in exclude):  # and all that is below
        return False
    plain = [re.split(r"[*?[]", p, maxsplit=1)[0] for p in include]
    return any(p.startswith(f"{name}/") or f"{name}/".startswith(p) for p in plain)


def _reason(error: OSError | AologError) -> str:
    return str(error) if isinstance(error, AologError) else os.strerror(error.errno or 0)


def growth(path: str) -> Growth | None:
    """The log's last slab now; None if the log is gone. Raises OSError or AologError if it is unreadable."""
    try:
        with os.scandir(path) as entries:
            names = [entry.name for entry in entries]
        slabs = {base: name for name in names if (base := slab_base(name)) is not None}
        pending = [name for name in names if name.endswith(PENDING_SUFFIX)]
        try:
            slabs = (resolve(path, pending, Storage()) if pending else {}) | slabs
        except AologError:  # opening the log reports it
            if not slabs:
                raise
        if not slabs:
            return None
        last = slabs[max(slabs)]
        seen = os.stat(f"{path}/{last}")  # noqa: PTH116 -- a path object for each of thousands of logs is slow
    except _GONE:
        return None
    return Growth(last, seen.st_size, seen.st_ctime_ns)


def is_gone(path: str) -> bool:
    """Whether there is no log any more. False if the directory cannot be listed."""
    try:
        return growth(path) is None
    except _UNREADABLE:
        return False


class Discovery:
    """Finds and watches the logs below a root, or single logs by name. Not thread-safe. Close it."""

    def __init__(self, root: str | None, logs: dict[str, str] | None = None) -> None:
        self.root = root
        self.configure(logs or {}, include=("*",), exclude=())
        # Directories below the root, with the reasons: there may be logs in them.
        self.unlisted: dict[str, str] = {}
        self._parked: dict[str, Growth | None] = {}
        self._watched: dict[str, int] = {}
        self._paths: dict[int, str] = {}
        self._inotify = _inotify()

    def configure(
        self, logs: dict[str, str], include: Sequence[str], exclude: Sequence[str]
    ) -> None:
        """For the next scan."""
        self._logs, self._include, self._exclude = logs, include, exclude

    def scan(self) -> dict[str, str]:
        """Name and path of each log that exists now, and of each single one that cannot be listed, as opening it
        reports why. Watches new directories from now on."""
        if self.root is None:
            return {name: path for name, path in self._logs.items() if not is_gone(path)}
        found, others, self.unlisted = walk(self.root, self._include, self._exclude)
        wanted = {*others, *self._parked}
        for path in self._watched.keys() - wanted:
            self._unwatch(path)
        new = [path for path in others if path not in self._watched]
        for path in new:
            self._watch(path)
        if new:  # a log may have come before the watch
            found, _, self.unlisted = walk(self.root, self._include, self._exclude)
        return found

    def may_hold(self, name: str) -> bool:
        """Whether the last scan could not list the directory of this log, or one above it."""
        above = name.split("/")
        names = {".", name, *("/".join(above[:n]) for n in range(1, len(above)))}
        return not names.isdisjoint(self.unlisted)

    def park(self, path: str) -> None:
        """`changes` and `grown` report growth of the log from now on. The caller looks at the log
        once more after this call, so that it misses nothing."""
        self._watch(path)
        if path in self._parked:  # by another worker, to which growth is still to be reported
            return
        self._parked[path] = None
        with contextlib.suppress(*_UNREADABLE):  # None differs from the next value
            self._parked[path] = growth(path)

    def unpark(self, path: str) -> None:
        """Growth of the log is not reported any more."""
        if self._parked.pop(path, None) is not None or path in self._watched:
            self._unwatch(path)

    def changes(self) -> tuple[set[str], bool]:
        """By inotify: paths of parked logs that may have grown, and whether logs may have come or gone."""
        if self._inotify is None:
            return set(), False
        grown: set[str] = set()
        changed = False
        for event in self._inotify.read(timeout=0):
            path = self._paths.get(event.wd)
            if path is not None and event.mask & flags.IGNORED:
                # The directory is gone, and its watch with it.
                del self._paths[event.wd], self._watched[path]
            if path in self._parked:
                grown.add(path)
            else:  # a directory changed, or the queue of events overflowed
                changed = True
                grown |= self._parked.keys() if event.wd < 0 else set()
        return grown, changed

    def grown(self) -> set[str]:
        """Paths of parked logs that have grown since they were parked or last reported."""
        grown: set[str] = set()
        for path, before in self._parked.items():
            with contextlib.suppress(*_UNREADABLE):  # the next call may succeed
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
        events = flags.MODIFY | flags.CREATE | flags.MOVED_TO | flags.MOVED_FROM
        events |= flags.DELETE | flags.DELETE_SELF | flags.ONLYDIR
        with contextlib.suppress(OSError):  # gone, or too many watches: the scan finds it
            number = self._inotify.add_watch(path, events)
            self._watched[path] = number
            self._paths[number] = path

    def _unwatch(self, path: str) -> None:
        number = self._watched.pop(path, None)
        if number is None or self._inotify is None:
            return
        self._paths.pop(number, None)
        with contextlib.suppress(OSError):  # removed with its directory
            self._inotify.rm_watch(number)


def _inotify() -> INotify | None:
    try:
        return None if INotify is None else INotify(nonblocking=True)
    except OSError:  # its limit is reached
        return None
