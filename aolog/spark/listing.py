"""Which logs exist, and where they end now. The driver asks before anything is read; of each log it
opens the directory and the last slab.

A log is a directory that holds a slab; the search does not enter it. A log's name is its path below
the given path, or the last part of a path that is a log itself. With several paths, names begin below
the directory that they share; paths and URLs have names of their own, so that a log's name is the same with and
without its archive. A log and its archive are one log (log/tiers.py), by the local log's name.
"""

from __future__ import annotations

import os
import re
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from aolog.errors import AologError, NotALog, UsageError, load_optional
from aolog.format.frame import Frame
from aolog.format.slab import ADDRESS_END, slab_base, slab_name
from aolog.log.directory import Log
from aolog.log.log_tree import walk_logs
from aolog.log.tiers import local_uuid
from aolog.publish.many_logs import steadily
from aolog.queuefka.format1 import without
from aolog.read import seek
from aolog.storage.objects.url import WithArchive, is_url
from aolog.storage.storage import Storage, parent_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from collections.abc import Set as AbstractSet

    from aolog.read.scan import Place
    from aolog.spark.options import Options

_T = TypeVar("_T")

_GLOB = re.compile(r"(?P<set>\[[^\]/]+\])|\{(?P<any>[^{}/]+)\}|[*?]")
_LOOKS_AT_ONCE = 8  # threads; more help only where a read waits for a network


class Found(NamedTuple):
    """A log's name and path. last: the name of its last slab; "" if that is unknown, or pending."""

    name: str
    path: str
    last: str = ""

    def in_listing(self, bases: Sequence[int]) -> bool:
        """Whether its last slab is one of these slabs of the log, or was removed since."""
        return bool(bases) and self.last <= slab_name(bases[-1])


class Listed(NamedTuple):
    """A log at the time of a look. bases: of its slabs, ascending. end: after its last intact frame.
    ordinal: records before the end, None if they are not counted. has_headers: see Log. topic: the log's
    default. uuid: in hex; None without headers, and if the last slab's is lost. closed: by its writer."""

    name: str
    path: str
    bases: tuple[int, ...]
    end: int
    ordinal: int | None
    has_headers: bool
    topic: str | None
    uuid: str | None = None
    closed: bool = False


def list_logs(options: Options) -> list[Listed]:
    """The logs that the options select, by name: all of them before a publication, or all after it.
    Raises UsageError if there is none, StorageError if one cannot be read."""
    storage = Storage()
    for path in options.paths:
        _check_directory(path, storage)
    return steadily_all(options.paths, (), partial(_list, options, storage), storage)


def _check_directory(path: str, storage: Storage) -> None:
    """Raises UsageError for a path that is not a directory: later the error would be less clear."""
    try:
        storage.open_directory(path).close()
    except NotALog:
        if not _GLOB.search(path):
            raise
        parts = path.split("/")
        first = next(i for i, part in enumerate(parts) if _GLOB.search(part))
        names = "/".join(parts[first:])
        raise UsageError(
            f"option path: {path} is not a directory; patterns go into subscribePattern",
            hint=f'load("{"/".join(parts[:first]) or "/"}") with subscribePattern '
            f'"{_GLOB.sub(_as_expression, names)}", a regular expression for the names below it',
        ) from None


def _as_expression(glob: re.Match[str]) -> str:
    """What matches the same names as a part of a glob, as far as names of directories go."""
    if glob["set"] is not None:
        return glob[0].replace("[!", "[^")
    if glob["any"] is not None:
        return "(" + glob["any"].replace(",", "|") + ")"
    return "[^/]*" if glob[0] == "*" else "[^/]"


def check_counts(log: Listed, option: str, instead: str) -> None:
    """Raises UsageError, which names the option, for a log that does not count its records."""
    if not log.has_headers:
        raise UsageError(
            f"option {option}: {log.name!r} {without('numbers of records')}", hint=instead
        )


def steadily_all(
    paths: Sequence[str],
    known: Iterable[Found],
    look: Callable[[AbstractSet[str]], tuple[_T, Iterable[Found]]],
    storage: Storage,
) -> _T:
    """The result of `look` at the logs at these paths or below: all of each publication or nothing,
    whichever directory is its root. known: logs that probably exist. look: receives the directories
    that may hold a manifest of several logs; returns its result and the logs that exist."""
    roots: set[str] = set()
    while not (above := _above(paths, known)) <= roots:
        roots |= above
        found, known = steadily(roots, partial(look, roots), storage)
    return found


def _above(paths: Iterable[str], logs: Iterable[Found]) -> set[str]:
    """These paths, and every directory above one of them or above a log. In a store the paths only: what is
    above them may belong to others, and each look there is a request that costs."""
    above = set(paths)
    everything = (*paths, *(log.path for log in logs))
    todo = [parent_of(path) for path in everything if not is_url(path)]
    while todo:
        if (path := todo.pop()) not in above:
            above.add(path)
            todo.append(parent_of(path))
    return above


def _list(
    options: Options, storage: Storage, roots: AbstractSet[str]
) -> tuple[list[Listed], list[Found]]:
    logs = find_logs(options)
    if not _above(options.paths, logs) <= roots:
        return [], logs  # opens none: `steadily_all` looks again, at these roots too
    return list(look_at_all(logs, storage).values()), logs


def look_at_all(logs: Sequence[Found], storage: Storage) -> dict[str, Listed]:
    """The present state of each log, by name, in this order; without those that are deleted by now. Reads
    several at a time, because each read may wait for a disk. Raises StorageError."""

    def look_at(found: Found) -> Listed | None:
        # The header and the end of its last slab.
        storage.on(found.path).prefetch(found.path, ADDRESS_END, ADDRESS_END)
        with suppress(NotALog, FileNotFoundError), Log(found.path, storage) as log:
            return look(found, log) if log.bases else None
        return None

    with ThreadPoolExecutor(_LOOKS_AT_ONCE) as threads:
        found = {log.name: log for log in threads.map(look_at, logs) if log is not None}
    _refuse_twice(found.values())
    return found


def _refuse_twice(logs: Iterable[Listed]) -> None:
    """Raises UsageError for a log and a copy of it in a store, or two archives: every record would come twice."""
    seen: dict[str, str] = {}
    for log in logs:
        if log.uuid is None:
            continue
        other = seen.setdefault(log.uuid, log.path)
        if other != log.path and (is_url(other) or is_url(log.path)):
            raise UsageError(
                f"option path: {other} and {log.path} are one log, and every record would come twice",
                hint="a log and one archive of it are read as one log, copies are not: load one of them, or "
                "choose with subscribe",
            )


def look(found: Found, log: Log) -> Listed:
    """The present state of the log, without a new listing."""

    def last() -> Listed:
        slab = log.slab(len(log.bases) - 1)
        place = _intact_end(log)
        head = slab.header
        topic, uuid = (None, None) if head is None else (head.topic, head.topic_uuid.hex())
        end, ordinal = place.address, place.ordinal
        bases, closed = tuple(log.bases), slab.seal() is not None
        return Listed(
            found.name, found.path, bases, end, ordinal, slab.has_headers, topic, uuid, closed
        )

    return log.listed(last)


def _intact_end(log: Log) -> Place:
    """The place after the last frame whose body is intact too. `seek.latest` reads headers: a body may
    not be written yet, and a load or an offset that includes it needs it."""
    place = seek.latest(log)
    slab = log.slab(len(log.bases) - 1)
    if slab.header is None or slab.seal() is not None:
        return place
    while True:
        last = seek.at_address(log, place.address - 1)
        if (
            last.offset is None
            or last.slab != slab.base
            or last.offset >= place.address - slab.base
        ):
            return place
        found = slab.walker(last.offset).next()
        if isinstance(found, Frame) and found.offset == last.offset:
            return place
        place = seek.at_address(log, slab.base + last.offset)


def find_logs(options: Options) -> list[Found]:
    """Those that the options select, sorted by name. Raises as `all_logs`."""
    return [log for log in all_logs(options) if is_wanted(log.name, options)]


def all_logs(options: Options) -> list[Found]:
    """Names and paths of the logs at the paths and below, sorted by name. Raises NotALog for a path
    without a log, UsageError for a log that `subscribe` names and that does not exist."""
    storage = Storage()
    below = [path for path in options.paths if not _is_within(path, options.paths)]
    local = _logs_at([path for path in below if not is_url(path)], storage)
    stored = _logs_at([path for path in below if is_url(path)], storage)
    found: dict[str, Found] = {}
    for log in _joined(local, stored, storage):
        if log.name in found:
            raise UsageError(
                f"option path: {found[log.name].path} and {log.path} are two logs with the name {log.name!r}",
                hint="load them apart, or give one of them another name",
            )
        found[log.name] = log
    for name in options.subscribe or ():
        if name not in found and options.fail_on_loss:
            raise UsageError(
                f"option subscribe: no log {name!r}", hint=f"the logs are {some(sorted(found))}"
            )
    return [log for _, log in sorted(found.items())]


def _logs_at(roots: list[str], storage: Storage) -> list[Found]:
    """The logs at these directories, or these URLs, and below. Raises as `all_logs`."""
    shared = os.path.split(roots[0])[0] if len(roots) == 1 else _shared(roots)
    found = []
    for root in roots:
        logs = {path: names for path, names, is_log in walk_logs(root, storage) if is_log}
        if not logs:
            raise NotALog(
                "no log: neither this directory nor one below it holds a slab",
                hint="a Writer creates it; patterns go into subscribePattern",
                path=root,
            )
        for path, names in logs.items():
            if _is_foreign(path):
                raw = path.encode(errors="surrogateescape")
                raise UsageError(f"the path {raw!r} is not UTF-8, which Spark requires")
            base = root if len(roots) == 1 and path != root else shared
            name = path[len(base) :].lstrip("/")
            last = max((each for each in names if slab_base(each) is not None), default="")
            found.append(Found(name, path, last))
    return found


def _joined(local: list[Found], stored: list[Found], storage: Storage) -> list[Found]:
    """All logs, a local log and its archive as one. Copies of a log stay apart, and are refused later."""
    if not (local and stored):
        return [*local, *stored]
    archived_uuid = load_optional("aolog.storage.objects.system").archived_uuid

    def uuid_of(log: Found) -> str | None:
        with suppress(AologError, FileNotFoundError):  # the look at the log reports it
            return local_uuid(log.path, storage)
        return None

    archives, both = _by_uuid(stored, lambda log: archived_uuid(log.path)), {}
    for uuid, logs in _by_uuid(local, uuid_of).items() if archives else ():
        there = archives.get(uuid, [])
        if len(logs) == len(there) == 1:
            (log,), (archive,) = logs, there
            path = WithArchive(log.path, archive.path, uuid)
            both[log.path] = both[archive.path] = Found(log.name, path, max(log.last, archive.last))
    return list(dict.fromkeys(both.get(log.path, log) for log in (*local, *stored)))


def _by_uuid(
    logs: Iterable[Found], uuid_of: Callable[[Found], str | None]
) -> dict[str, list[Found]]:
    found: dict[str, list[Found]] = {}
    for log in logs:
        if uuid := uuid_of(log):
            found.setdefault(uuid, []).append(log)
    return found


def _is_foreign(path: str) -> bool:
    """Whether it has bytes that are not UTF-8."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return True
    return False


def some(names: list[str]) -> str:
    """The first names, and how many more there are."""
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")


def _is_within(path: str, others: tuple[str, ...]) -> bool:
    return any(path != other and path.startswith(f"{other}/") for other in others)


def _shared(paths: list[str]) -> str:
    parts = [path.split("/") for path in paths]
    shared = []
    for column in zip(*parts, strict=False):
        if len(set(column)) > 1:
            break
        shared.append(column[0])
    return "/".join(shared)


def is_wanted(name: str, options: Options) -> bool:
    """Whether the options select a log with this name."""
    if options.subscribe is not None:
        return name in options.subscribe
    return options.pattern is None or re.fullmatch(options.pattern, name) is not None
