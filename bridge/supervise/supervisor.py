"""Many logs in one process: one task for each log and cluster; a few run, most are parked.

    queued ──► running ──► parked     idle for a while: no thread, no connection, one watch
      ▲           │  │       │
      │           │  ├──► waiting     failed, and is tried again; or another bridge has the cursor
      │           │  └──► standing    failed; only an operator can help
      └───────────┴──────────┘        it grew, its turn is over, the configuration changed

One thread makes every decision, here; each task forwards in a thread of its own. At most
`active_max` tasks run at once. While others wait, idle tasks end first, then those that have run
longest, after their turn. A log that fails stops no other.
"""

from __future__ import annotations

import contextlib
import logging
import queue
import threading
import time
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

from aolog import Reader
from aolog.errors import AologError, NotALog, StorageError
from bridge.config.routing import clusters_of
from bridge.deliver.rate_limit import RateLimit
from bridge.errors import WrongConfiguration
from bridge.supervise.discovery import Tree, is_gone, missing
from bridge.supervise.options import Plan, plans
from bridge.supervise.status import LogStatus, Overview, Phase, overview, removed
from bridge.supervise.worker import Task

if TYPE_CHECKING:
    from collections.abc import Callable

    from bridge.config.models import Config

__all__ = ["Supervisor"]

_log = logging.getLogger("bridge.supervisor")
_LOOK_S = 0.2  # how late growth of a parked log, a due retry or a turn's end is noticed
_SCAN_SHARE = 50  # going through a large tree takes at most a fiftieth of the time
_NEWS_S = 0.2  # how often news of the tree make it be gone through
_QUEUE_KBYTES = 131_072  # of records in the client's memory, of all logs together; ...
_QUEUE_KBYTES_MIN, _QUEUE_KBYTES_MAX = 4_096, 65_536  # ... but each has to fill a request or two
_STATUS_S = 0.25  # how soon a log is seen to be idle
# How much is pending in logs that wait is asked so often, and of a turn for so long.
_MEASURE_PAUSE_S, _MEASURE_S = 1.0, 0.004
_STEP_S = 10.0  # a turn shorter than connecting takes lasts until something is done, or so long
_STOP_MARGIN_S = 1.0  # of the time to stop: for the last commit and leaving the cluster
# What a running process cannot change; a new configuration's other value is named, and not taken.
_FIXED = ("root", "cursor", "delivery", "http", "log_format", "status_seconds")


class Supervisor:
    """Forwards the logs of a configuration until told to stop, or with `drain` until what was
    there at the start is acknowledged. `stop` and `reload` may be called by a signal's handler,
    `look` by any thread.

    read: reads the configuration again, for `reload`. Raises WrongConfiguration. fail_fast: `run`
    ends at the first failure of a log and raises it. Nothing is tried again, and an idle log stays
    connected, so that a wrong cluster or a cursor in use is found at the start.
    """

    def __init__(
        self,
        config: Config,
        *,
        drain: bool = False,
        read: Callable[[], Config] | None = None,
        fail_fast: bool = False,
    ) -> None:
        self._config = config
        self._drain = drain
        self._fail_fast = fail_fast
        self._read = read
        self._pace = RateLimit()  # one for all and always, so that plans stay equal
        self._plans = self._plan(config)
        self._tasks: dict[tuple[str, str], Task] = {}
        self._removed: dict[str, LogStatus] = {}  # by cluster: of logs that are gone
        self._removing = threading.Lock()  # `look` sees a log, or its counts as removed, never both
        self._told: queue.SimpleQueue[object] = queue.SimpleQueue()  # its put is reentrant
        self._tree = _tree(config)
        self._stop_at_s: float | None = None
        self._scan_due_s = 0.0
        self._news = False
        self._missed: set[str] = set()
        self._unlisted: dict[str, str] = {}
        self._unseen = 0  # the exit status of what the last scan could not look at
        self._no_root: str | None = None
        self._over = False
        self._unmeasured: list[Task] = []
        self._measure_due_s = 0.0

    def stop(self) -> None:
        """Asks everything to end soon."""
        self._told.put("stop")

    def reload(self) -> None:
        """Asks for the configuration to be read again."""
        self._told.put("reload")

    def look(self) -> list[LogStatus]:
        """How each log stands, and what was counted of those that are gone."""
        with self._removing:
            tasks = list(self._tasks.values())  # at once: a scan may add one meanwhile
            return [*[task.look() for task in tasks], *self._removed.values()]

    def overview(self) -> Overview:
        """How all stand together."""
        return overview(self.look(), stopped=self._over, waits=self.waits())

    def waits(self) -> str | None:
        """What was named and is not there yet, in words; None if all is. From any thread."""
        if self._no_root is not None:
            return f"{self._no_root}: {self._config.root}; waiting for it"
        missed = sorted(self._missed)
        return f"there is no log at {missed[0]} yet; waiting for it" if missed else None

    @property
    def drained(self) -> bool:
        """At the end: whether each log was read to its end, as it was in its first turn."""
        return all(task.drained for task in self._tasks.values())

    def run(self, report: Callable[[Overview], None] | None = None, every_s: float = 1.0) -> int:
        """Until the end; the exit status: 0, or that of the worst failure that is left, and of a
        drain that of what could not be looked at. Raises NotALog where there is no root to
        drain, and with fail_fast the failure of a log."""
        report_due_s = 0.0
        try:
            self._scan()
            if self._drain and self._no_root is not None:
                raise NotALog(self._no_root, path=self._config.root)
            if self._drain and not self._tasks:
                _log.warning("there is no log below %s", self._config.root)
            self._told.put("start")  # the first turn need not wait
            while not self._ended():
                self._turn()
                if report is not None and time.monotonic() >= report_due_s and self._opened:
                    report_due_s = time.monotonic() + every_s
                    report(self.overview())
        finally:
            self._over = True
            self._tree.close()
        if report is not None and self._opened:
            report(self.overview())
        if self._fail_fast:
            for task in self._tasks.values():
                if task.phase == Phase.STANDING and task.error is not None:
                    raise task.error
        late = [task for task in self._tasks.values() if task.thread is not None]
        if late:
            _log.warning("%d logs did not stop in time; what they sent is read back", len(late))
        statuses = [task.exit_status for task in self._tasks.values()]
        return max([*statuses, self._unseen if self._drain else 0])

    @property
    def _opened(self) -> bool:
        """Whether there is a status to report: with fail_fast, none before the log was opened."""
        return not self._fail_fast or any(t.status is not None for t in self._tasks.values())

    # --- one round ----------------------------------------------------------------------------

    def _turn(self) -> None:
        for told in self._wait():
            if isinstance(told, Task):
                self._take_end(told)
            elif told == "stop":
                self._begin_to_stop()
            elif told == "reload" and self._stop_at_s is None:  # after a stop it would begin anew
                self._reload()
        if self._stop_at_s is not None:
            return
        grown, news = self._tree.told()
        self._news = self._news or news
        now_s = time.monotonic()
        due_s = self._scan_due_s
        if self._news:
            due_s += _NEWS_S - self._config.rescan_seconds
        if now_s >= due_s and not self._drain:
            self._scan()
            grown |= self._tree.grown()
        self._wake(grown)
        by_phase = self._by_phase()  # once: there may be thousands of parked ones
        for task in by_phase[Phase.WAITING]:
            if now_s >= task.retry_at_s:
                task.phase, task.since_s = Phase.QUEUED, now_s
                by_phase[Phase.QUEUED].append(task)
        self._park(by_phase[Phase.RUNNING], now_s)
        self._make_room(by_phase[Phase.RUNNING], len(by_phase[Phase.QUEUED]), now_s)
        room = self._config.active_max - len(by_phase[Phase.RUNNING])
        waiting = sorted(by_phase[Phase.QUEUED], key=lambda task: task.since_s)
        for task in waiting[: max(0, room)]:
            self._start(task)
        self._measure(
            [*by_phase[Phase.STANDING], *by_phase[Phase.WAITING], *waiting[max(0, room) :]]
        )

    def _measure(self, idle: list[Task]) -> None:
        """How much is pending where nothing runs: of some now, of the others in later turns."""
        now_s = time.monotonic()
        if not self._unmeasured and now_s >= self._measure_due_s:
            self._unmeasured, self._measure_due_s = idle, now_s + _MEASURE_PAUSE_S
        while self._unmeasured and time.monotonic() < now_s + _MEASURE_S:
            task = self._unmeasured.pop()
            if task.phase != Phase.RUNNING:  # by now
                task.measure()

    def _wait(self) -> list[object]:
        """What was told, after a moment's wait for something to be."""
        found: list[object] = []
        with contextlib.suppress(queue.Empty):
            found.append(self._told.get(timeout=_LOOK_S))
            while True:
                found.append(self._told.get_nowait())
        return found

    def _by_phase(self) -> defaultdict[str, list[Task]]:
        found: defaultdict[str, list[Task]] = defaultdict(list)
        for task in self._tasks.values():
            found[task.phase].append(task)
        return found

    def _ended(self) -> bool:
        if self._stop_at_s is not None and time.monotonic() > self._stop_at_s:
            return True
        phases = self._by_phase().keys()
        failed = self._fail_fast and Phase.STANDING in phases
        if self._stop_at_s is None and not (self._drain or failed):
            return False
        return not {Phase.QUEUED, Phase.RUNNING} & phases

    # --- which logs there are -----------------------------------------------------------------

    def _scan(self) -> None:
        """Logs that came are queued; those that went are let go."""
        self._news = False
        begun_s = time.monotonic()
        found = self._tree.scan()
        self._look_for_root()
        pause_s = max(self._config.rescan_seconds, _SCAN_SHARE * (time.monotonic() - begun_s))
        self._scan_due_s = time.monotonic() + pause_s
        if self._fail_fast:
            found = {path: path for path in self._config.logs}  # opening a missing one fails
        for path in self._config.logs:
            if path not in found and path not in self._missed:
                _log.warning("there is no log at %s yet", path, extra={"event": "log_missing"})
        self._missed = set(self._config.logs) - found.keys()
        if self._drain and self._config.root is None:
            found = {path: path for path in self._config.logs}  # one that is missing is told
        wanted: set[tuple[str, str]] = set()
        # A single log that cannot be listed is opened all the same, and tells more.
        hidden = self._config.root is not None and self._tree.unlisted
        unseen = StorageError.exit_status if hidden else 0
        for name, path in found.items():
            try:
                wanted |= {(name, cluster) for cluster in self._clusters(name, path)}
            except (AologError, OSError) as error:
                _log.warning("%s cannot be opened yet: %s", name, error)
                unseen = max(unseen, getattr(error, "exit_status", StorageError.exit_status))
                wanted |= {key for key in self._tasks if key[0] == name}
        if self._tree.unlisted:
            kept = {key for key in self._tasks if self._tree.may_hold(key[0])}
            wanted |= {(name, cluster) for name, cluster in kept if cluster in self._plans}
        self._unseen = unseen
        self._tell_unlisted()
        for key in sorted(wanted - self._tasks.keys()):
            name, cluster = key
            self._tasks[key] = Task(
                name, found[name], self._plans[cluster], self._told, fail_fast=self._fail_fast
            )
            if not self._fail_fast:  # no news: it was named on the command line
                _log.info("%s goes to %s", name, cluster, extra={"event": "log_found"})
        for key in self._tasks.keys() - wanted:
            self._let_go(key)

    def _look_for_root(self) -> None:
        root, before = self._config.root, self._no_root
        self._no_root = None if self._tree.root is None else missing(self._tree.root)
        if self._no_root == before or self._drain:
            return
        if self._no_root is not None:
            _log.warning("%s", self.waits(), extra={"event": "root_missing"})
        else:
            _log.info("%s is there", root, extra={"event": "root_found"})

    def _tell_unlisted(self) -> None:
        """Once for each reason."""
        for name, why in sorted(self._tree.unlisted.items()):
            if self._unlisted.get(name) != why and (name, why) != (".", self._no_root):
                _log.warning("%s cannot be listed: %s", name, why, extra={"event": "unlisted"})
        self._unlisted = self._tree.unlisted

    def _clusters(self, name: str, path: str) -> set[str]:
        rules = self._config.rules
        topic = None
        if len(self._plans) > 1 and any(rule.log_topic is not None for rule in rules):
            with Reader(path) as reader:
                topic = reader.topic
        return clusters_of(rules, name, topic, self._config.default_cluster)

    def _let_go(self, key: tuple[str, str]) -> None:
        task = self._tasks[key]
        if task.phase == Phase.RUNNING:
            if task.ending != "gone":
                task.stop("gone")
            return
        cluster, before = key[1], self._removed.get(key[1])
        gone = removed(cluster, [task.look()] if before is None else [before, task.look()])
        with self._removing:
            del self._tasks[key]
            if gone.counted_anything:
                self._removed[cluster] = gone
        self._unwatch(task)
        _log.info("%s is gone", task.name, extra={"event": "log_gone"})

    # --- running ------------------------------------------------------------------------------

    def _start(self, task: Task) -> None:
        share = _QUEUE_KBYTES // min(self._config.active_max, len(self._tasks))
        margin_s = 0.0 if self._fail_fast else _STOP_MARGIN_S
        self._unwatch(task)
        task.start(
            drain=self._drain,
            stop_s=max(0.0, self._config.stop_seconds - margin_s),
            status_s=min(self._config.status_seconds, _STATUS_S),
            queue_kbytes=min(_QUEUE_KBYTES_MAX, max(_QUEUE_KBYTES_MIN, share)),
            before=lambda: self._watch(task, time.monotonic()),
        )

    def _make_room(self, running: list[Task], queued: int, now_s: float) -> None:
        """While others wait, who has nothing to do ends at once, and a turn is over in time."""
        staying = [task for task in running if task.ending is None]
        short = queued - (self._config.active_max - len(staying))
        if short <= 0:
            return
        over = [t for t in staying if t.idle_s is not None or self._turn_is_over(t, now_s)]
        over.sort(key=lambda task: (task.idle_s is None, task.since_s))
        for task in over[:short]:
            if task.idle_s is None:
                task.stop("turn")
            else:  # its growth is watched first, so that none of it is missed
                self._watch(task, now_s)

    def _turn_is_over(self, task: Task, now_s: float) -> bool:
        slice_s = self._config.slice_seconds
        return now_s - task.since_s > (slice_s if task.moved else max(slice_s, _STEP_S))

    def _park(self, running: list[Task], now_s: float) -> None:
        """Idle ones end, once their growth is watched and they were seen idle after that."""
        for task in running:
            if task.ending is not None or self._drain or self._fail_fast:
                continue
            if task.forwarder is None:
                continue  # it may find nothing to do, watched since before it looked
            if task.idle_s is None:
                if task.watched_s is not None:
                    self._unwatch(task)
            elif task.watched_s is None:
                if now_s - task.idle_s >= self._config.park_seconds:
                    self._watch(task, now_s)
            elif task.told_s > task.watched_s:
                task.stop("park")

    def _watch(self, task: Task, now_s: float) -> None:
        if task.watched_s is None:
            self._tree.park(task.path)
            task.watched_s = now_s

    def _unwatch(self, task: Task) -> None:
        task.watched_s = None
        others = (t for t in self._tasks.values() if t is not task and t.path == task.path)
        if all(t.watched_s is None for t in others):
            self._tree.unpark(task.path)

    def _wake(self, paths: set[str]) -> None:
        if not paths:
            return
        for task in self._tasks.values():
            if task.path in paths:
                task.grew = True
                if task.phase == Phase.PARKED:
                    task.phase, task.since_s = Phase.QUEUED, time.monotonic()
                    self._unwatch(task)

    # --- ends ---------------------------------------------------------------------------------

    def _take_end(self, task: Task) -> None:
        """Its thread has ended: what becomes of it."""
        ending = task.ending
        error = task.take_end()
        task.ending = None
        key = (task.name, task.plan.cluster)
        final = self._drain or self._fail_fast
        if is_gone(task.path) and not (final and error is not None):
            ending = "gone"
        if ending == "gone":
            task.phase = Phase.DONE
            if self._tasks.get(key) is task:
                self._let_go(key)
        elif error is not None:
            if final or task.permanent:
                task.stands(error)
            else:
                task.waits(error)
        elif (
            self._stop_at_s is not None
            or ending == "stop"
            or (self._drain and ending in {None, "park"})
        ):
            task.ends(drained=self._drain)
        elif ending == "park" and not task.grew:
            task.phase = Phase.PARKED
        else:
            task.phase = Phase.QUEUED
        task.since_s = time.monotonic()  # of what it does now; `waits` asks how long it ran

    def _begin_to_stop(self) -> None:
        if self._stop_at_s is not None:
            return
        self._stop_at_s = time.monotonic() + self._config.stop_seconds
        if self._fail_fast:
            self._stop_at_s = float("inf")  # the last commit is waited for, however slow the disk
        for task in self._tasks.values():
            if task.phase == Phase.RUNNING:
                task.stop("stop")
            elif task.phase in {Phase.QUEUED, Phase.PARKED}:
                task.ends(drained=self._drain)

    # --- another configuration ----------------------------------------------------------------

    def _reload(self) -> None:
        """Takes what can change while it runs, and has tried again what stands. A wrong
        configuration changes nothing."""
        if self._read is None:
            _log.info("there is no configuration file to read again; what stands is tried again")
            self._replan()
            return
        try:
            config = self._read()
            plans(config, self._pace)
        except AologError as error:
            problems = error.problems if isinstance(error, WrongConfiguration) else [str(error)]
            event = {"event": "reload_refused", "code": error.code}
            for problem in problems:
                _log.error("the new configuration is wrong: %s", problem, extra=event)
            _log.error("the configuration is not changed", extra=event)
            return
        kept = {}
        other_kind = (config.root is None) != (self._config.root is None)
        for name in (*_FIXED, "logs") if other_kind else _FIXED:
            if getattr(config, name) != getattr(self._config, name):
                _log.warning(
                    "%s cannot change while it runs; it stays", name, extra={"event": "reload_kept"}
                )
                kept[name] = getattr(self._config, name)
        config = config.model_copy(update=kept)
        self._config, self._plans = config, self._plan(config)
        tree = _tree(config)
        self._tree.include, self._tree.exclude, self._tree.logs = (
            tree.include, tree.exclude, tree.logs,
        )  # fmt: skip  # one thing
        tree.close()
        self._replan()
        self._scan()
        _log.info("the configuration was read again", extra={"event": "reloaded"})

    def _plan(self, config: Config) -> dict[str, Plan]:
        self._pace.change(config.total_records_per_second, config.total_bytes_per_second)
        return plans(config, self._pace)

    def _replan(self) -> None:
        for task in self._tasks.values():
            plan = self._plans.get(task.plan.cluster)
            changed = plan is not None and plan != task.plan  # one that is gone the scan lets go
            if plan is not None:
                task.plan = plan
            if task.phase == Phase.RUNNING and task.ending in {None, "park"}:
                if changed:
                    task.stop("reload")
                else:
                    task.reopen()
            elif task.phase in {Phase.STANDING, Phase.WAITING}:  # somebody may have done something
                task.phase, task.last_error = Phase.QUEUED, None
                task.backoff.reset()
            elif task.phase == Phase.PARKED and changed:  # it may go to another cluster now
                task.phase = Phase.QUEUED


def _tree(config: Config) -> Tree:
    single = {path: str(Path(path).absolute()) for path in config.logs}
    root = None if config.root is None else str(Path(config.root).absolute())
    return Tree(root, single, include=config.include, exclude=config.exclude)
