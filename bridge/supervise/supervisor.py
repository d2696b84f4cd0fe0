"""Many logs in one process: a worker for each log and cluster. A few workers run, most are parked: idle, with no
thread, one watch each, and one connection for all.

`turns` has all phases and events, and whose turn it is, as tables. One thread carries that out, here; each
running worker forwards in a thread of its own. A log that fails stops no other log.
"""

from __future__ import annotations

import contextlib
import logging
import queue
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Literal

from aolog.errors import NotALog, UsageError
from bridge.config.models import Config
from bridge.deliver.forwarder_options import USUAL, Waits
from bridge.deliver.rate_limit import RateLimit
from bridge.deliver.seek import Moved
from bridge.kafka.client_limits import LOG_BYTES_MAX
from bridge.supervise.assignment import Assignment, Key
from bridge.supervise.cluster_options import ClusterOptions, cluster_options
from bridge.supervise.discovery import is_gone
from bridge.supervise.idle_clusters import ParkedLogs, StartProofs
from bridge.supervise.reload import Rotation, apply_options, read_again
from bridge.supervise.status import LogStatus, Overview, overview, removed
from bridge.supervise.turns import Limits, Phase, Schedule, Timing, Turns, schedule
from bridge.supervise.worker import Worker

Action = Literal["pause", "resume", "try_again"]

_log = logging.getLogger("bridge.supervisor")
_SCAN_SHARE = 50  # scanning a large tree takes at most a fiftieth of the time
_CHANGES_S = 0.2  # shortest time between scans after directories changed
_STATUS_S = 0.25  # delay before an idle log is noticed
# Asking logs that do not run for their lag: pause between rounds, time in each turn.
_MEASURE_PAUSE_S, _MEASURE_S = 1.0, 0.004
_STOP_MARGIN_S = 1.0  # of the time to stop: for the last commit and leaving the cluster


class Supervisor:
    """Forwards the logs of a configuration until it is stopped, or with `drain` until the records
    that existed at the start are acknowledged. A signal handler may call `stop` and `reload`; any
    thread may call `statuses`, `overview` and `waiting_for`.

    fail_fast: `run` ends at the first failure of a log and raises it. Only a lack of descriptors is waited out,
    as for a drain. An idle log stays connected: a wrong cluster or a cursor in use is found at the start."""

    def __init__(
        self,
        config: Config,
        *,
        drain: bool = False,
        read: Callable[[], Config] | None = None,  # for `reload`; raises WrongConfiguration
        fail_fast: bool = False,
        timing: Timing | None = None,  # of turns
        waits: Waits = USUAL,  # of each delivery
    ) -> None:
        self._config = config
        self._timing, self._waits = timing or Timing(), waits
        self._drain = drain
        self._fail_fast = fail_fast
        self._read = read
        self._rotation = Rotation(config)
        self._pace = RateLimit()  # always the same object, so that equal options stay equal
        self._options = self._options_of(config)
        self._workers: dict[Key, Worker] = {}
        self._removed: dict[str, LogStatus] = {}  # by cluster: sums of logs that were removed
        self._removing = threading.Lock()  # `statuses` has a log or its sums, never both
        self._events: queue.SimpleQueue[object] = queue.SimpleQueue()  # its put is reentrant
        self._assignment = Assignment(config, opens_missing=drain or fail_fast)
        self._discovery = self._assignment.discovery
        self._parked = ParkedLogs()
        self._proofs = StartProofs()
        self._stop_at_s: float | None = None
        self._scan_due_s = 0.0
        self._directories_changed = False
        self._scan_exit_status = 0
        self._over = False
        self._to_measure: list[Worker] = []
        self._measure_due_s = 0.0

    def stop(self) -> None:
        """Asks everything to end soon."""
        self._events.put("stop")

    def reload(self) -> None:
        """Asks for the configuration to be read again."""
        self._events.put("reload")

    def control(self, action: Action, log: str, cluster: str) -> None:
        """Asks for an action on a log. Raises UsageError if there is no such log."""
        self._events.put((action, self._worker(log, cluster)))

    def seek(self, log: str, cluster: str, to: str, *, dry_run: bool) -> Moved:
        """See Worker.seek. Raises UsageError if there is no such log."""
        return self._worker(log, cluster).seek(to, dry_run=dry_run)

    def _worker(self, log: str, cluster: str) -> Worker:
        if (found := self._workers.get((log, cluster))) is None:
            raise UsageError(f"there is no log {log!r} for {cluster!r}", hint="see the status")
        return found

    def statuses(self) -> list[LogStatus]:
        """One for each log and cluster, and one for each cluster with sums of removed logs."""
        with self._removing:
            workers = list(self._workers.values())  # a copy: a scan may add one meanwhile
            shown = [w.log_status(self._parked.cluster(w.options.cluster)) for w in workers]
            return [*shown, *self._removed.values()]

    def overview(self) -> Overview:
        """All logs together."""
        return overview(self.statuses(), stopped=self._over, waiting_for=self.waiting_for())

    def waiting_for(self) -> str | None:
        """The root or log that is configured and missing, or a cluster that is unfit before there is a log, as a
        sentence; None if all is well."""
        return self._proofs.unfit() or self._assignment.waiting_for()

    @property
    def drained(self) -> bool:
        """After `run` with `drain`: whether each log was read to the end that it had at first."""
        return all(worker.drained for worker in self._workers.values())

    def run(self, report: Callable[[Overview], None] | None = None, every_s: float = 1.0) -> int:
        """Returns at the end, with the exit status: 0, or that of the worst remaining failure; for
        a drain also that of what could not be looked at. Raises NotALog if there is no root to
        drain, and with fail_fast the failure of a log."""
        report_due_s = 0.0
        try:
            self._scan()
            if self._drain and self._assignment.missing_root is not None:
                raise NotALog(self._assignment.missing_root, path=self._config.root)
            if self._drain and not self._workers:
                _log.warning("there is no log below %s", self._config.root)
            self._events.put("start")  # so that the first turn does not wait
            while not self._ended():
                self._turn()
                if report is not None and time.monotonic() >= report_due_s and self._opened:
                    report_due_s = time.monotonic() + every_s
                    report(self.overview())
        finally:
            self._over = True
            self._discovery.close()
            self._parked.close()
            self._proofs.close()
            for worker in self._workers.values():
                worker.log_losses()
        if report is not None and self._opened:
            report(self.overview())
        return self._exit_status()

    def _exit_status(self) -> int:
        workers = self._workers.values()
        if self._fail_fast:
            for worker in workers:
                if worker.phase == Phase.STANDING and worker.error is not None:
                    raise worker.error
        late = sum(worker.thread is not None for worker in workers)
        if late:
            _log.warning("%d logs did not stop in time; what they sent is read back", late)
        statuses = [worker.exit_status for worker in workers]
        return max([*statuses, self._scan_exit_status if self._drain else 0])

    @property
    def _opened(self) -> bool:
        """Whether there is a status to report: with fail_fast, only after the log was opened."""
        return not self._fail_fast or any(w.status is not None for w in self._workers.values())

    # --- one turn -----------------------------------------------------------------------------

    def _turn(self) -> None:
        for event in self._wait():
            if isinstance(event, Worker):
                self._take_end(event)
            elif event == "stop":
                self._begin_to_stop()
            elif event == "reload" and self._stop_at_s is None:
                self._reload()
            elif isinstance(event, tuple):
                getattr(event[1], event[0])()  # an Action of a worker
        if self._stop_at_s is not None:
            return
        self._wake(self._look_for_changes())
        if self._rotation.due(self._config):
            self._rotate()
        by_phase = self._by_phase()  # once: there may be thousands of parked workers
        now_s = time.monotonic()
        for worker in by_phase[Phase.WAITING]:
            if worker.turns.tick(now_s):
                by_phase[Phase.QUEUED].append(worker)
        parked = {worker.options.cluster for worker in by_phase[Phase.PARKED]}
        self._parked.look(self._options, parked, now_s)
        self._proofs.look({} if self._workers or self._drain else self._options)
        self._follow(schedule(by_phase[Phase.RUNNING], by_phase[Phase.QUEUED], self._limits, now_s))
        idle = (Phase.STANDING, Phase.WAITING, Phase.PAUSED, Phase.QUEUED)
        self._measure([worker for phase in idle for worker in by_phase[phase]])

    def _wait(self) -> list[object]:
        """Events; waits a moment for the first."""
        found: list[object] = []
        with contextlib.suppress(queue.Empty):
            found.append(self._events.get(timeout=self._timing.look_s))
            while True:
                found.append(self._events.get_nowait())
        return found

    def _look_for_changes(self) -> set[str]:
        """Scans for logs if that is due. Paths of parked logs that may have grown."""
        grown, changed = self._discovery.changes()
        self._directories_changed |= changed
        due_s = self._scan_due_s
        if self._directories_changed:
            due_s += _CHANGES_S - self._config.rescan_seconds
        if time.monotonic() >= due_s and not self._drain:
            self._scan()
            grown |= self._discovery.grown()
        return grown

    def _by_phase(self) -> defaultdict[str, list[Worker]]:
        found: defaultdict[str, list[Worker]] = defaultdict(list)
        for worker in self._workers.values():
            found[worker.phase].append(worker)
        return found

    def _ended(self) -> bool:
        if self._stop_at_s is not None and time.monotonic() > self._stop_at_s:
            return True
        phases = self._by_phase().keys()
        failed = self._fail_fast and Phase.STANDING in phases
        if self._stop_at_s is None and not (self._drain or failed):
            return False
        waits = set() if self._stop_at_s is not None else {Phase.WAITING}
        return not ({Phase.QUEUED, Phase.RUNNING} | waits) & phases

    def _measure(self, idle: list[Worker]) -> None:
        """Updates the lag of logs that do not run: some now, the others in later turns."""
        now_s = time.monotonic()
        if not self._to_measure and now_s >= self._measure_due_s:
            self._to_measure, self._measure_due_s = idle, now_s + _MEASURE_PAUSE_S
        while self._to_measure and time.monotonic() < now_s + _MEASURE_S:
            worker = self._to_measure.pop()
            if worker.phase != Phase.RUNNING:  # it may have started since
                worker.measure()

    # --- logs that come and go ----------------------------------------------------------------

    def _scan(self) -> None:
        """Queues new logs and removes logs that are gone."""
        self._directories_changed = False
        begun_s = time.monotonic()
        wanted, self._scan_exit_status = self._assignment.scan(self._workers.keys())
        pause_s = max(self._config.rescan_seconds, _SCAN_SHARE * (time.monotonic() - begun_s))
        self._scan_due_s = time.monotonic() + pause_s
        for key in sorted(wanted.keys() - self._workers.keys()):
            name, cluster = key
            self._workers[key] = Worker(
                name,
                wanted[key],
                self._options[cluster],
                self._events,
                Turns(self._timing, drains=self._drain),
                fail_fast=self._fail_fast,
            )
            if not self._fail_fast:  # otherwise the command line named it
                _log.info("%s goes to %s", name, cluster, extra={"event": "log_found"})
        for key in self._workers.keys() - wanted.keys():
            self._remove(key)

    def _remove(self, key: Key) -> None:
        """Removes a worker, as soon as it does not run; its counts stay in the sums."""
        worker = self._workers[key]
        if worker.phase == Phase.RUNNING:
            if worker.turns.ending != "gone":
                worker.stop("gone")
            return
        cluster, before = key[1], self._removed.get(key[1])
        last = worker.log_status()
        gone = removed(cluster, [last] if before is None else [before, last])
        with self._removing:
            del self._workers[key]
            if gone.counted_anything:
                self._removed[cluster] = gone
        self._unwatch(worker)
        _log.info("%s is gone", worker.name, extra={"event": "log_gone"})

    # --- turns and parking --------------------------------------------------------------------

    @property
    def _limits(self) -> Limits:
        config, stays = self._config, self._drain or self._fail_fast
        return Limits(
            config.active_max, config.slice_seconds, None if stays else config.park_seconds
        )

    def _follow(self, found: Schedule) -> None:
        for worker in found.unwatch:
            self._unwatch(worker)
        for worker in found.watch:
            self._watch(worker)
        for worker in found.park:
            worker.stop("park")
        for worker in found.turn:
            worker.stop("turn")
        for worker in found.start:
            self._start(worker)

    def _start(self, worker: Worker) -> None:
        share = self._config.max_in_flight_bytes // min(self._config.active_max, len(self._workers))
        margin_s = 0.0 if self._fail_fast else _STOP_MARGIN_S
        self._unwatch(worker)
        self._watch(worker)  # first: it may find nothing to do
        worker.start(
            min(self._config.status_seconds, _STATUS_S),
            drain=self._drain,
            stop_s=max(0.0, self._config.stop_seconds - margin_s),
            in_flight_bytes=min(LOG_BYTES_MAX, share),
        )

    def _watch(self, worker: Worker) -> None:
        self._discovery.park(worker.path)
        worker.turns.watched_s = time.monotonic()

    def _unwatch(self, worker: Worker) -> None:
        worker.turns.watched_s = None
        others = (w for w in self._workers.values() if w is not worker and w.path == worker.path)
        if all(w.turns.watched_s is None for w in others):
            self._discovery.unpark(worker.path)

    def _wake(self, paths: set[str]) -> None:
        if not paths:
            return
        for worker in self._workers.values():
            if worker.path in paths and worker.turns.grow(time.monotonic()):
                self._unwatch(worker)

    # --- ends ---------------------------------------------------------------------------------

    def _take_end(self, worker: Worker) -> None:
        """A worker's thread has ended."""
        gone = worker.take_end(missing=is_gone(worker.path))
        key = (worker.name, worker.options.cluster)
        if gone and self._workers.get(key) is worker:
            self._remove(key)

    def _begin_to_stop(self) -> None:
        if self._stop_at_s is not None:
            return
        self._stop_at_s = time.monotonic() + self._config.stop_seconds
        if self._fail_fast:
            self._stop_at_s = float("inf")  # waits for the last commit, however slow the disk is
        for worker in self._workers.values():
            worker.finish()

    # --- reload -------------------------------------------------------------------------------

    def _reload(self) -> None:
        if self._read is None:
            _log.info("there is no configuration file to read again; retrying blocked partitions")
            self._rotate()
            return
        config = read_again(self._read, self._config)
        if config is None:
            return
        self._config, self._options = config, self._options_of(config)
        self._assignment.configure(config)
        apply_options(self._workers.values(), self._options)
        self._scan()
        _log.info("the configuration was read again", extra={"event": "reloaded"})

    def _rotate(self) -> None:
        """Takes what the files of secrets and certificates hold now."""
        config = read_again(self._config.read_again, self._config, what="a new file")
        if config is not None:
            self._config, self._options = config, self._options_of(config)
        apply_options(self._workers.values(), self._options)

    def _options_of(self, config: Config) -> dict[str, ClusterOptions]:
        self._pace.change(config.total_records_per_second, config.total_bytes_per_second)
        return cluster_options(config, self._pace, self._waits)
