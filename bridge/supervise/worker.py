"""One log and one cluster: runs a forwarder in a thread, each time the supervisor starts it.

Only the supervisor starts and stops workers; `turns` decides when. The thread runs the forwarder, keeps its
last status, and puts the worker into the supervisor's queue when it ends.
"""

from __future__ import annotations

import errno
import logging
import queue
import threading
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from aolog import Lag, Reader
from aolog.errors import (
    AologError,
    CorruptionError,
    CursorLocked,
    GapFound,
    NoSuchCursor,
    NotALog,
    UsageError,
)
from aolog.log.cursor_file import read_position
from aolog.log.retention import prune
from aolog.maintenance.archive.protection import protect
from aolog.read.reader import view_of
from aolog.read.start import parse_where
from aolog.storage.storage import Storage
from bridge.deliver.forwarder import Forwarder
from bridge.deliver.log_lines import naming
from bridge.deliver.log_source import LAST_SLAB
from bridge.deliver.losses import LogLosses
from bridge.deliver.seek import Moved, place, seek
from bridge.deliver.status import COUNTED, NOTHING, Status
from bridge.kafka.cluster_watch import ClusterWatch
from bridge.supervise.cluster_options import ClusterOptions
from bridge.supervise.status import LogStatus, state_of
from bridge.supervise.turns import Ending, Outcome, Phase, Turns

_log = logging.getLogger("bridge.supervisor")
# Errors of the destination that waiting does not change. (A fenced bridge would fence the other one.)
_PERMANENT = {"undeliverable", "fenced", "not_isolated", "cursor_topic_unfit"}
_NO_DESCRIPTORS = {errno.EMFILE, errno.ENFILE}


@dataclass(eq=False, slots=True)
class Worker:
    """See the module. `turns` and the fields after it belong to the supervisor's thread."""

    name: str
    path: str
    options: ClusterOptions
    ended: queue.SimpleQueue[object]  # the queue for the worker when its thread ends
    turns: Turns
    fail_fast: bool = False  # see Supervisor, which raises its failure: not logged here
    totals: Counter[str] = field(default_factory=Counter)
    losses: LogLosses = field(init=False)  # over all runs, which may meet gaps again
    lost: tuple[int, int] = (0, 0)  # of `losses`: records and gaps when `status` or `lag` was taken
    error: BaseException | None = None
    last_error: str | None = None
    thread: threading.Thread | None = None
    forwarder: Forwarder | None = None
    status: Status | None = None
    was_live: bool = False  # its cluster answered when it was parked: until a watch tells more
    lag: Lag | None = None  # see LogStatus
    drain_to: int | None = None  # the log's end at the first run
    drained: bool = False  # whether the last run reached it
    cut_off: bool | None = None  # see LogStatus; None before the first run
    # Held while values that are shown together change.
    counting: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self.losses = LogLosses(self.path, self.options.base.cursor)

    # --- the supervisor's side ----------------------------------------------------------------

    @property
    def phase(self) -> str:
        """What the supervisor does with the log; see Phase."""
        return self.turns.phase

    def start(self, status_s: float, *, drain: bool, stop_s: float, in_flight_bytes: int) -> None:
        """Forwards in a new thread. status_s: between reports. The rest: see ForwarderOptions."""
        self.turns.start(time.monotonic())
        self.error = None
        more = {"drain": drain, "stop_s": stop_s, "max_in_flight_bytes": in_flight_bytes}
        self.thread = threading.Thread(
            target=self._run, args=(status_s, more), name=f"{self.name} to {self.options.cluster}",
            daemon=True,
        )  # fmt: skip  # one call
        self.thread.start()

    def stop(self, why: Ending) -> None:
        """Asks the thread to end soon."""
        self.turns.ending = why
        self.was_live = why == "park"  # only what is live is parked
        if self.forwarder is not None:
            self.forwarder.stop()

    def pause(self) -> None:
        """Forwards nothing until `resume`."""
        if self.phase == Phase.RUNNING:
            self.stop("pause")
        self.turns.pause()

    def resume(self) -> None:
        """Ends a pause."""
        self.turns.resume(time.monotonic())

    def try_again(self) -> None:
        """Retries what is blocked, at once: its cause may be gone."""
        if self.phase == Phase.RUNNING and self.forwarder is not None:
            self.forwarder.reopen()
        elif self.turns.retry():
            self.last_error = None

    def seek(self, to: str, *, dry_run: bool) -> Moved:
        """Moves the cursor of a paused log to a place (see aolog.read.start); the records between are sent
        again, or never. dry_run: only says so. Raises UsageError unless it is paused, and what seek
        raises. From any thread."""
        if self.phase != Phase.PAUSED:
            raise UsageError(f"{self.name} is not paused", hint="pause it first")
        cursor = self.options.base.cursor
        return seek(self.path, place(self.path, parse_where(to)), cursor=cursor, dry_run=dry_run)

    def take_end(self, *, missing: bool) -> bool:
        """After the thread has ended: keeps its counts, and enters the next phase. missing: whether there is
        no log at the path now. Returns whether the log is gone. A missing one is, except after a failure that
        ends it: then the failure is reported."""
        if self.thread is not None:
            self.thread.join()
        with self.counting:
            self.lost = self._lost()  # a thread that raised did not report its last losses
            if self.status is not None:  # counted now; the rest stays
                self.totals.update(self.status.counted())
                self.status = self.status._replace(**NOTHING, outstanding=0, rate=0.0)
        self.thread = self.forwarder = None
        error = self.error
        if error is None:
            self.last_error = None
        failed_for_good = self.is_final and error is not None
        gone = self.turns.ending == "gone" or (missing and not failed_for_good)
        self.turns.end(Outcome.GONE if gone else self._outcome(), time.monotonic())
        if gone:
            return True
        if error is not None:
            self._log_failure(error)
        elif self.phase == Phase.DONE:
            self._check_drained()
        return False

    def _outcome(self) -> Outcome:
        error = self.error
        if error is None:
            return Outcome.ENDED
        if (self.is_final and not _lacks_descriptors(error)) or _is_permanent(error):
            return Outcome.LASTING
        return Outcome.LOCKED if isinstance(error, CursorLocked) else Outcome.FAILED

    @property
    def is_final(self) -> bool:
        """Whether the first failure ends it: in a drain, and for a single log."""
        return self.turns.drains or self.fail_fast

    def finish(self) -> None:
        """The supervisor stops."""
        if self.phase == Phase.RUNNING:
            self.stop("stop")
        elif self.turns.stop():
            self._check_drained()

    def _check_drained(self) -> None:
        """It never runs again. Gaps that a drain passed, in any run, are its failure: the cursor is
        after them, so the next bridge does not report them."""
        if self.turns.drains:
            try:
                self.losses.check(self.path)
            except GapFound as error:
                self.error = error
                self.turns.stand()
                self._log_failure(error)

    def log_losses(self) -> None:
        """Logs the losses that are not logged yet, also of a thread that did not stop in time."""
        with naming(self.name):
            self.losses.warn()

    def _log_failure(self, error: BaseException) -> None:
        what = "waits for a reload or a restart"
        if self.phase == Phase.WAITING:
            what = "is tried again"
        elif self.phase == Phase.PAUSED:
            what = "is paused"
        elif isinstance(error, GapFound):
            what = "was drained"
        text = f"{_code(error)}: {error}"
        if text != self.last_error and not (self.fail_fast and self.phase == Phase.STANDING):
            event = {"event": "log_failed", "code": _code(error)}
            with naming(self.name):
                _log.warning("%s %s: %s", self.name, what, text, extra=event)
        self.last_error = text

    @property
    def exit_status(self) -> int:
        """The exit status of its failure, 0 without one."""
        if self.phase not in {Phase.STANDING, Phase.WAITING} or self.error is None:
            return 0
        return getattr(self.error, "exit_status", AologError.exit_status)

    def log_status(self, watch: ClusterWatch | None = None) -> LogStatus:
        """From any thread. watch: of its cluster, for the phases without a connection; see ParkedLogs."""
        phase, error = self.phase, self.error
        with self.counting:
            status, lag = self.status, self.lag
            lost_records, gaps = self.lost
            counted = self.totals + Counter(status.counted() if status else {})
        reason = None if error is None else str(error)
        forwarder = self.forwarder
        silent_s = None
        if phase == Phase.RUNNING:
            moved_s = 0.0 if forwarder is None else forwarder.moved_s
            silent_s = time.monotonic() - max(self.turns.reported_s, moved_s)
            reason = None if status is None else status.error
        if phase == Phase.PAUSED:
            reason = "paused by an operator; resume it on the page"
        state = _state(phase, status)
        known = None if watch is None else watch.reachable
        if (phase == Phase.PARKED and not (self.was_live if known is None else known)) or (
            phase == Phase.QUEUED and known is False
        ):
            state, reason = "connecting", None if watch is None else watch.trouble
        if phase in {Phase.QUEUED, Phase.RUNNING} and forwarder is None and self.last_error:
            state, reason = "blocked", self.last_error  # until the next try succeeds
        return LogStatus(
            log=self.name,
            path=self.path,
            cluster=self.options.cluster,
            phase=phase,
            state=state,
            **{name: counted[name] for name in COUNTED},
            lost_records=lost_records,
            gaps=gaps,
            restarts=self.turns.restarts,
            silent_s=silent_s,
            error=reason,
            code=None if error is None else _code(error),
            status=status,
            lag=lag,
            cut_off=bool(self.cut_off),
            damaged=self.losses.damaged,
        )

    def _lost(self) -> tuple[int, int]:
        return self.losses.records, self.losses.gaps

    # --- the thread's side --------------------------------------------------------------------

    def _run(self, status_s: float, more: dict[str, Any]) -> None:
        with naming(self.name):
            try:
                self.options.check_cursor(self.path)
                if self.options.archives:
                    protect(self.path, Storage())  # before anything is pruned
                self.drained = not self.fail_fast and self._has_nothing_to_do()
                if self.drained:
                    self.turns.ending = self.turns.ending or "park"
                    return
                name = None if self.fail_fast else self.name
                forwarder = self.options.forwarder(
                    self.path, name, self.drain_to, self.losses, **more
                )
                self.drain_to = forwarder.drain_to
                if self.cut_off is None:
                    self.cut_off = forwarder.was_cut_off
                self.status, self.was_live = None, False
                self.forwarder, self.turns.is_open = forwarder, True
                if self.turns.ending is not None:  # before there was a forwarder to stop
                    forwarder.stop()
                self.drained = forwarder.drained(forwarder.run(self._report, status_s))
            except BaseException as error:  # noqa: BLE001 -- the supervisor judges it
                self.error = error
            finally:
                self.ended.put(self)

    def _has_nothing_to_do(self) -> bool:
        """Whether the cursor is at the log's end. Then it does not connect to the cluster: of
        thousands of logs, most have nothing to do when the process starts."""
        if not self.measure():
            return False  # the forwarder reports why
        assert self.lag is not None
        if self.lag.bytes and self.lag.records != 0:
            return False
        if self.options.base.prune:
            prune(self.path, Storage(), LAST_SLAB)
        return True

    def measure(self) -> bool:
        """Reads from the files how much is pending, and what retention removed unread. False if
        that is unknown, or there is no cursor: then the whole log is pending."""
        storage = Storage()
        lag, known = None, True
        with suppress(AologError, OSError), Reader(self.path, storage=storage) as reader:
            try:
                cursor = self.options.base.cursor
                position = read_position(self.path, cursor, storage)
                view_of(reader).resume_at(position)
            except NoSuchCursor:
                known = False
            lag = reader.lag()
            # A bridge that holds the cursor counts the losses itself.
            if known and self.phase != Phase.RUNNING and not isinstance(self.error, CursorLocked):
                with naming(self.name):
                    self.losses.pruned(view_of(reader).pruned(position.position))
        with self.counting:
            self.lag, self.lost = lag, self._lost()
        return known and lag is not None

    def _report(self, status: Status) -> None:
        with self.counting:
            self.status, self.lag = status, None
            self.lost = status.lost_records, status.gaps
        sent = status.lag_bytes == 0 or status.lag_records == 0
        idle = sent and not status.outstanding and state_of(status) == "live"
        self.turns.reported(time.monotonic(), idle=idle, moved=any(status.counted().values()))
        if status.acknowledged:
            self.turns.went_well()
            self.last_error = None


def _is_permanent(error: BaseException) -> bool:
    """Whether only an operator can remove the cause."""
    if isinstance(error, NotALog):  # its first slab may come
        return False
    code = error.code if isinstance(error, AologError) else ""
    return code in _PERMANENT or isinstance(error, CorruptionError | UsageError)


def _lacks_descriptors(error: BaseException) -> bool:
    """Whether no descriptor was free: not the log's fault, and over when others are closed."""
    details = error.details if isinstance(error, AologError) else {}
    return details.get("errno", getattr(error, "errno", None)) in _NO_DESCRIPTORS


def _code(error: BaseException) -> str:
    return error.code if isinstance(error, AologError) else AologError.code


def _state(phase: str, status: Status | None) -> str:
    if phase in {Phase.WAITING, Phase.STANDING, Phase.PAUSED}:
        return "blocked"
    if phase == Phase.DONE:
        return "stopped"
    if phase == Phase.PARKED:
        return "live"
    if status is None:
        return "connecting"
    return "draining" if phase == Phase.QUEUED else state_of(status)
