"""Which slabs are pruned. `plan` is pure; `prune` carries out a plan under the log's retention lock.

Whole slabs are removed from the front, and never the last one. Age and count never remove records
that a protecting cursor has not passed. The total size removes them only if `when_full` is "prune";
then the result has, for each cursor, the unread records that it lost. A cursor is made durable
before the slab that it releases is unlinked. Each unlink is durable before the next one, so that
the remaining slabs have no hole.
"""

from __future__ import annotations

import math
import time
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING, Literal, NamedTuple, Self, TypeAlias

from aolog.errors import AologError, UsageError, warn
from aolog.format.slab import slab_name
from aolog.log.cursor_file import cursor_path, read_positions
from aolog.log.directory import Log
from aolog.log.lock import lock_retention
from aolog.log.manifest import sync_roots
from aolog.record import Gap, count_between

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aolog.format.cursor_copy import CursorPosition
    from aolog.storage.directory import Directory
    from aolog.storage.storage import Storage


_YEAR_9999_S = 253_402_300_799  # some file systems have later times, which no calendar prints


class _Bounds(NamedTuple):
    max_bytes: int | None = None
    max_age_s: float | None = None
    max_slabs: int | None = None
    when_full: Literal["prune", "block", "error"] = "prune"


class Retention(_Bounds):
    """How much a log keeps. All bounds are off by default.

    max_bytes: of all slab files together, a number or text such as "1GB" or "64M"; a writer does not
    begin a slab that would exceed it. max_age_s: seconds since the last write to a slab, by its file's
    time, unless later slabs contradict that. max_slabs: their number, with the open one. when_full:
    what happens when max_bytes is reached and protecting cursors still need the oldest slab. "prune"
    (the default) deletes it: UNREAD RECORDS ARE LOST. The writer logs a warning with their number at
    once, then once a minute; `Writer.pruned_unread` and `aolog cursor list` report the same number;
    readers get a gap with it. "block" makes appends wait until the cursors have passed the slab,
    "error" makes them raise RetentionFull: these two lose nothing.
    """

    __slots__ = ()

    def __new__(
        cls,
        max_bytes: int | str | None = None,
        max_age_s: float | None = None,
        max_slabs: int | None = None,
        when_full: Literal["prune", "block", "error"] = "prune",
    ) -> Self:
        """Raises UsageError for an invalid bound."""
        size = None if isinstance(max_bytes, str) else max_bytes
        if isinstance(max_bytes, str):
            from aolog.log.units import size_bytes

            size = size_bytes(max_bytes) or 0
        for name, given, value, kind, hint in (
            ("max_bytes", max_bytes, size, int, 'use bytes, or text such as "1GB" or "64M"'),
            ("max_age_s", max_age_s, max_age_s, int | float, "use a positive number of seconds"),
            ("max_slabs", max_slabs, max_slabs, int, "use a positive integer"),
        ):
            if value is not None and not (isinstance(value, kind) and value > 0):
                raise UsageError(f"Retention({name}={given!r})", hint=hint)
        if when_full not in ("prune", "block", "error"):
            hint = 'use "prune", "block" or "error"'
            raise UsageError(f"Retention(when_full={when_full!r})", hint=hint)
        return super().__new__(cls, size, max_age_s, max_slabs, when_full)

    @property
    def bounded(self) -> bool:
        """Whether there is any bound."""
        return not (self.max_bytes is self.max_age_s is self.max_slabs is None)


class SlabSize(NamedTuple):
    """What retention needs of a slab."""

    base: int
    end: int  # the address at which its successor begins; not used for the last slab
    bytes: int
    changed_s: float  # the file's time of the last write, since the epoch


class Plan(NamedTuple):
    """What to prune."""

    drop: int  # how many slabs to remove from the front
    room: bool  # False if protecting cursors still need slabs that exceed max_bytes
    # Those of `drop` that are too old although their own time is not.
    misdated: tuple[SlabSize, ...] = ()


def plan(
    slabs: Sequence[SlabSize],
    retention: Retention,
    *,
    protected_from: int | None,
    now_s: float,
    needed: int = 0,
) -> Plan:
    """How many slabs to remove, oldest first, never the last.

    protected_from: the least address that a protecting cursor still needs. needed: the maximum bytes
    of a slab that is about to begin; 0 if none is.
    """
    max_bytes, max_age_s, max_slabs, when_full = retention
    drop = 0
    total = needed + sum(slab.bytes for slab in slabs)
    count = len(slabs) + (needed > 0)
    held = False
    since_s = -math.inf if max_age_s is None else now_s - max_age_s
    old = _written_before(slabs, since_s, now_s)
    for slab in slabs[:-1]:
        over_bytes = max_bytes is not None and total > max_bytes
        over_others = drop < old or (max_slabs is not None and count > max_slabs)
        free = protected_from is None or slab.end <= protected_from
        held = over_bytes and not free and when_full != "prune"
        if held or not (over_bytes or (free and over_others)):
            break
        drop += 1
        count -= 1
        total -= slab.bytes
    misdated = tuple(slab for slab in slabs[: min(drop, old)] if slab.changed_s >= since_s)
    return Plan(drop, not held, misdated)


def _written_before(slabs: Sequence[SlabSize], since_s: float, now_s: float) -> int:
    """How many slabs, from the front, were last written before `since_s`.

    Each slab was written after the one before it. Times that contradict this come from a wrong clock:
    then most of the times decide, so that one clock that was ahead keeps no slab for years, and one
    that began at 1970 deletes no log. A time in the future counts for neither side.
    """
    count = majority = greatest = 0
    for i, slab in enumerate(slabs, 1):
        if slab.changed_s <= now_s:
            majority += 1 if slab.changed_s < since_s else -1
        if majority > greatest:
            count, greatest = i, majority
    return count


class Pruned(NamedTuple):
    """What was removed."""

    slabs: int
    bytes: int
    end: int  # everything before this address is removed
    # The protecting cursor that needs slabs that exceed max_bytes; None: there is room.
    holder: str | None
    unread: dict[str, Gap]  # by protecting cursor, the removed records that it had not read
    # Cursors that cannot be read: they count as protecting, and as if they had passed no record.
    unreadable: tuple[str, ...] = ()


_warned: set[str] = set()  # paths of cursors that cannot be read, and that a warning named


def protecting(
    directory: Directory, storage: Storage
) -> tuple[dict[str, CursorPosition], tuple[str, ...]]:
    """The protecting cursors by name, made durable, and the names of those that cannot be read, each
    of which is warned of once."""
    found, unreadable = {}, []
    for name, position in read_positions(directory, storage, durable=True):
        where = str(cursor_path(directory, name))
        if not isinstance(position, AologError):
            _warned.discard(where)
            if position.protects:
                found[name] = position
            continue
        unreadable.append(name)
        if where not in _warned:
            _warned.add(where)
            warn(
                "%s: cursor %r cannot be read, and counts for retention as if it had passed no "
                "record; delete it if it is not used: %s",
                directory.path,
                name,
                position,
            )
    return found, tuple(unreadable)


Known: TypeAlias = dict[int, SlabSize]


def prune(
    path: str | Directory,
    storage: Storage,
    retention: Retention,
    *,
    needed: int = 0,
    dry_run: bool = False,
    known: Known | None = None,
) -> Pruned:
    """Removes slabs as `retention` demands, under the retention lock; durable on return.

    Any process may call it while others write and read: the last slab stays. path: of the log, or its
    directory, open: then that one is pruned, even if its path leads elsewhere now. dry_run: only return
    what would be removed. known: a cache of slabs by base, for the calls of one writer, whose lock
    excludes repair: each slab is read once, however often the writer rolls.
    """
    known = {} if known is None else known
    with nullcontext() if dry_run else lock_retention(path, storage), Log(path, storage) as log:
        decided, going, pruned = log.listed(partial(_decide, log, retention, needed, known))
        if dry_run or not going:
            return pruned
        # The process that removed the slab before may have been killed before its sync.
        storage.sync_directory(log.directory)
        published = log.published
        if published:
            sync_roots(log.path, published.values(), storage)
        for slab in going:
            if slab.base in published:  # first its pending name, which may just have been renamed
                storage.unlink(log.directory / published[slab.base])
            storage.unlink(log.directory / slab_name(slab.base))
            storage.sync_directory(log.directory)
    if decided.misdated:
        first, *others = decided.misdated
        own = time.gmtime(min(first.changed_s, _YEAR_9999_S))
        warn(
            "%s: slab %d%s was removed for its age, by the times of later slabs: its own time, %s, is of "
            "a clock that was ahead",
            log.path,
            first.base,
            f", with {len(others)} more," if others else "",
            time.strftime("%Y-%m-%dT%H:%M:%SZ", own),
        )
    return pruned


def _sizes(log: Log, known: Known) -> list[SlabSize]:
    """The listed slabs. One with a successor does not change: `known` keeps it."""
    sizes = []
    for base in log.bases:
        found = known.get(base)
        if found is None:
            with log.open_file(base) as file:
                stat = file.stat()
            end = log.after(base)
            found = SlabSize(base, end or 0, stat.size, stat.mtime_ns / 1e9)
            if end is not None:
                known[base] = found
        sizes.append(found)
    return sizes


def _newly_lost(log: Log, at: CursorPosition, drop: int) -> Gap | None:
    """The cursor's unread records in the first `drop` slabs: its loss after their removal, minus its
    loss before."""
    if not drop or (after := log.pruned_before(at.address, at.ordinal, first=drop)) is None:
        return None
    before = log.pruned_before(at.address, at.ordinal)
    if before is None:
        return after
    lost = count_between(before.records_lost, after.records_lost)
    return None if lost == 0 else Gap(before.end, after.end, "pruned", lost)


def _decide(
    log: Log, retention: Retention, needed: int, known: Known
) -> tuple[Plan, list[SlabSize], Pruned]:
    """The plan, the slabs to remove, and the totals of that. Raises FileNotFoundError if others prune
    meanwhile: a dry run has no lock."""
    cursors, unreadable = protecting(log.directory, log.storage)
    slowest = min(cursors, key=lambda name: cursors[name].address, default=None)
    needed_from = None if slowest is None else cursors[slowest].address
    if unreadable:
        slowest, needed_from = unreadable[0], 0
    slabs = _sizes(log, known)
    decided = plan(slabs, retention, protected_from=needed_from, now_s=time.time(), needed=needed)
    going = slabs[: decided.drop]
    first = log.bases[0] if log.bases else 0
    end = going[-1].end if going else first
    unread = {
        name: lost
        for name, at in cursors.items()
        if at.address < end and (lost := _newly_lost(log, at, decided.drop)) is not None
    }
    if going:
        unread |= dict.fromkeys(unreadable, Gap(first, end, "pruned", None))
    for base in [base for base in known if base < end]:  # other processes prune too
        del known[base]
    size = sum(slab.bytes for slab in going)
    holder = None if decided.room else slowest
    return decided, going, Pruned(len(going), size, end, holder, unread, unreadable)
