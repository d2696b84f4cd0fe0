"""A bridge over time: rates, lag of the last hour, disk.

`Monitor.sample` is called once a second with the statuses of all logs. It keeps sums and a bounded
history; the page, the metrics and `top` read from it. It reads file sizes, never records, and asks no
cluster. All numbers are since the process started.

These always add up, for each log and for all logs together:

    seen = acknowledged + skipped + dead-lettered + dropped + filtered + lost + pending
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import correlation, linear_regression
from typing import TYPE_CHECKING, Any, NamedTuple

from aolog.errors import AologError
from aolog.format.slab import slab_name
from aolog.log.slab_list import slab_bases
from bridge.deliver.status import done, pending
from bridge.operate.health import Health
from bridge.supervise.status import REMOVED_LOGS, LogStatus, Overview, overview
from bridge.supervise.turns import Phase

if TYPE_CHECKING:
    from aolog.storage.storage import Storage
    from bridge.operate.scrub import Scrub
    from bridge.supervise.archiving import ArchiveStatus

POINT_S = 5.0  # an hour of points is 720: enough for a chart, 50 kB as JSON
POINTS = 720
RATE_POINTS = 3  # intervals of a rate's mean: a writer that flushes each 10 s is steady
_MEASURE_S = 0.02  # of each second for file sizes: 5,000 logs are measured in about a minute
_TREND_S = 900.0  # a trend's time: longer than a burst or a prune
_TREND_S_MIN = 60.0  # a trend of less is noise
_FIT_MIN = 0.5  # a line that explains less of the movement is no trend: it goes up and down
PRUNED_SHOWN = 50  # slabs of a log that were deleted while the process watched


class Point(NamedTuple):
    """A moment of the last hour. Rates: the mean of the last RATE_POINTS intervals, a second; None where not
    known. What a log held when it was first seen did not come: it counts in `records_out` alone."""

    time_s: float
    records_in: float | None
    records_out: float | None
    lag_records: int | None
    lag_seconds: float | None


class Trend:
    """When something that shrinks is empty, by a line through its last values: bursts and prunes move it little."""

    def __init__(self) -> None:
        # When, and the value: one for each POINT_S.
        self._seen: deque[tuple[float, float]] = deque()

    def add(self, now_s: float, value: float) -> float | None:
        """Adds a value. In how many seconds it is 0 at the present rate; None unless it shrinks steadily."""
        seen = self._seen
        if not seen or now_s - seen[-1][0] >= POINT_S:
            seen.append((now_s, value))
        while now_s - seen[0][0] > _TREND_S:
            seen.popleft()
        if seen[-1][0] - seen[0][0] < _TREND_S_MIN:
            return None
        times, values = zip(*seen, strict=True)
        slope = linear_regression(times, values).slope
        if slope >= 0 or correlation(times, values) ** 2 < _FIT_MIN:
            return None
        return value / -slope


class Disk(NamedTuple):
    """Room for a log: on its file system, or below its bound. full_in_s: see Trend."""

    free_bytes: int
    full_in_s: float | None


class Measured(NamedTuple):
    """A log on disk, as it was last measured; empty before."""

    files: tuple[tuple[int, int], ...] = ()  # its slabs, (base address, bytes), oldest first
    pruned: tuple[int, ...] = ()  # bases of slabs that were deleted meanwhile, oldest first
    disk: Disk | None = None
    bound: Disk | None = None  # the room below `log_max_bytes`; None without it

    @property
    def bytes(self) -> int:
        """Of its slabs."""
        return sum(size for _, size in self.files)


@dataclass(slots=True)
class Flow:
    """What has come to a log and left it since it was first seen: totals, which never fall."""

    seen: int | None = None  # the greatest so far
    end: int = 0  # as seen
    position: int = 0  # the last one
    records_in: int = 0
    bytes_in: int = 0
    bytes_out: int = 0


class Monitor:
    """Samples of a supervisor's statuses. For one thread: the server's. health: by the last sample."""

    def __init__(
        self,
        look: Callable[[], list[LogStatus]],  # as the supervisor's
        storage: Storage,
        *,
        waits: Callable[[], str | None] = lambda: None,  # as the supervisor's
        log_max_bytes: int | None = None,  # each writer's bound, which the log does not hold
        scrubbed: Callable[[str], Scrub | None] = lambda _: None,  # by path
        archived: Callable[[str], ArchiveStatus | None] = lambda _: None,  # by path
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
    ) -> None:
        self.look, self.waits = look, waits
        self.scrubbed, self.archived = scrubbed, archived
        self._log_max_bytes = log_max_bytes
        self._storage, self._clock, self._now = storage, clock, now
        self._points: deque[Point] = deque(maxlen=POINTS)
        self._flows: dict[tuple[str, str], Flow] = {}  # sums of removed logs, as the statuses have
        # When, records done, records that came: at the last points.
        self._sums: deque[tuple[float, int, int | None]] = deque(maxlen=RATE_POINTS + 1)
        self.health = Health()
        self._unmeasured: list[str] = []
        self._measured: dict[str, Measured] = {}
        self._trends: dict[str, tuple[Trend, Trend]] = {}  # of the disk, of the bound
        self._named: dict[tuple[str, str], bool] = {}
        self.started_s = now()

    # --- sampling -----------------------------------------------------------------------------

    def sample(self) -> None:
        """Takes the present statuses; measures some of the logs on disk."""
        logs, now_s = self.look(), self._clock()
        for log in logs:
            self._count(log)
        self._forget({(log.log, log.cluster) for log in logs})
        self._measure(logs, now_s)
        if not self._sums or now_s - self._sums[-1][0] >= POINT_S:
            self._add_point(logs, now_s)
        self.health.see(logs, self.waits(), self._now())

    def _count(self, log: LogStatus) -> None:
        if log.status is None or log.lag_bytes is None:
            return
        seen, position = seen_of(log), log.status.position
        end = position + log.lag_bytes
        flow = self._flows.setdefault((log.log, log.cluster), Flow(seen, end, position))
        if seen is not None:
            flow.records_in += 0 if flow.seen is None else max(0, seen - flow.seen)
            flow.seen = max(seen, flow.seen or 0)
        flow.bytes_in += max(0, end - flow.end)
        flow.bytes_out += max(0, position - flow.position)  # a seek back sends again
        flow.end, flow.position = max(end, flow.end), position

    def _forget(self, present: set[tuple[str, str]]) -> None:
        """Keeps the sums of logs that were removed."""
        gone = {key for key in self._flows if key[0] != REMOVED_LOGS} - present
        for key in gone:
            flow = self._flows.pop(key)
            sums = self._flows.setdefault((REMOVED_LOGS, key[1]), Flow())
            sums.records_in += flow.records_in
            sums.bytes_in += flow.bytes_in
            sums.bytes_out += flow.bytes_out

    def _add_point(self, logs: Sequence[LogStatus], now_s: float) -> None:
        whole, came = overview(logs), None
        if seen_of(whole) is not None:
            came = sum(flow.records_in for flow in self._flows.values())
        self._sums.append((now_s, done(whole), came))
        rate_out = _rate([(at_s, count) for at_s, count, _ in self._sums])
        known = [(at_s, count) for at_s, _, count in self._sums if count is not None]
        rate_in = None if came is None else _rate(known)
        lag = whole.lag_records, whole.lag_seconds
        self._points.append(Point(self._now(), rate_in, rate_out, *lag))

    def _measure(self, logs: Sequence[LogStatus], now_s: float) -> None:
        """Sizes of some logs now, of the others in later samples."""
        if not self._unmeasured:
            present = {log.path for log in logs if log.phase != Phase.REMOVED}
            self._unmeasured = sorted(present, reverse=True)
            for path in self._measured.keys() - present:
                del self._measured[path], self._trends[path]
        until_s = self._clock() + _MEASURE_S
        while self._unmeasured and self._clock() < until_s:
            self._measure_log(self._unmeasured.pop(), now_s)

    def _measure_log(self, path: str, now_s: float) -> None:
        storage = self._storage
        try:
            found = look_at_slabs(path, storage, self.measured(path))
            free_bytes = storage.free_bytes(path)
        except (AologError, OSError):
            return  # it is being removed, or may not be read: the log's own status shows it
        on_disk, below_bound = self._trends.setdefault(path, (Trend(), Trend()))
        found = found._replace(disk=Disk(free_bytes, on_disk.add(now_s, free_bytes)))
        if self._log_max_bytes is not None:
            left = max(0, self._log_max_bytes - found.bytes)
            found = found._replace(bound=Disk(left, below_bound.add(now_s, left)))
        self._measured[path] = found

    # --- what is known ------------------------------------------------------------------------

    def points(self, after_s: float = 0.0) -> list[Point]:
        """The last hour, oldest first; only points later than a time."""
        return [point for point in self._points if point.time_s > after_s]

    def measured(self, path: str) -> Measured:
        """A log on disk."""
        return self._measured.get(path, Measured())

    def flow(self, log: str, cluster: str) -> Flow:
        """What has come to a log and left it, or to all that were removed."""
        return self._flows.get((log, cluster), Flow())

    def named(self, present: Sequence[tuple[str, str]], most: int) -> frozenset[tuple[str, str]]:
        """The logs that have rows of their own. That is decided when a log is first seen, and kept while it is
        present. So the sum of the others does not fall because one of them gets a row."""
        self._named = {key: self._named[key] for key in present if key in self._named}
        free = most - sum(self._named.values())
        for key in present:
            if key not in self._named:
                self._named[key] = free > 0
                free -= 1
        return frozenset(key for key, named in self._named.items() if named)

    def summary(self, logs: Sequence[LogStatus]) -> dict[str, Any]:
        """What the page shows first; the counts add up to `seen`. logs: of one moment."""
        whole = overview(logs, waiting_for=self.waits())
        points = self.points()
        last = points[-1] if points else None
        return {
            "time_s": self._now(),
            "uptime_s": self._now() - self.started_s,
            "restarts": sum(log.restarts for log in logs) + any(log.cut_off for log in logs),
            "oldest_unsent_s": whole.lag_seconds,
            "records_in_per_s": None if last is None else last.records_in,
            "records_out_per_s": None if last is None else last.records_out,
            "disk_full_in_s": _soonest([found.disk for found in self._measured.values()]),
            "bound_in_s": _soonest([found.bound for found in self._measured.values()]),
            "seen": seen_of(whole),
            "pending": pending(whole.lag_records, whole.ahead_records),
        }


def seen_of(counts: LogStatus | Overview) -> int | None:
    """Records that were pending at the start or came since; None if unknown."""
    status = counts if isinstance(counts, Overview) else counts.status
    ahead = 0 if status is None else status.ahead_records  # dealt with, after the position
    left = pending(counts.lag_records, ahead)
    return None if left is None else done(counts) + counts.lost_records + left


def _rate(sums: list[tuple[float, int]]) -> float | None:
    """A second, from the first of these totals to the last one; None without two."""
    if len(sums) < 2:
        return None
    (since_s, before), (now_s, count) = sums[0], sums[-1]
    return max(0, count - before) / max(now_s - since_s, 1e-3)


def look_at_slabs(path: str, storage: Storage, before: Measured) -> Measured:
    """The slabs of a log now. before: what the last look returned. Raises AologError, OSError."""
    files = tuple((base, _size(storage, path, base)) for base in slab_bases(path, storage))
    gone = sorted({base for base, _ in before.files} - {base for base, _ in files})
    return Measured(files, (*before.pruned, *gone)[-PRUNED_SHOWN:])


def _soonest(disks: list[Disk | None]) -> float | None:
    """When the first of them is full."""
    times = [disk.full_in_s for disk in disks if disk is not None and disk.full_in_s is not None]
    return min(times, default=None)


def _size(storage: Storage, path: str, base: int) -> int:
    try:
        return storage.system.lstat(f"{path}/{slab_name(base)}").st_size
    except OSError:  # a published slab has another name until it is renamed
        return 0
