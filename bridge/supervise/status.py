"""The status that users see: one value for each log and cluster, and one for the whole process.

States:

    connecting   the cluster is unreachable
    draining     connected, with a backlog
    limited      as draining, and a rate limit holds it back
    live         every record in the log has been sent
    blocked      stopped by an error, or waiting to try again: `error` has the reason
    stopped      ended
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from aolog import Lag
from bridge.deliver.status import COUNTED, Status
from bridge.kafka.stalls import Stall
from bridge.supervise.turns import Phase

TOTALS = (*COUNTED, "lost_records", "gaps", "restarts")  # counters of a row: they never fall

REMOVED_LOGS = "(removed logs)"  # the name of the row with their sums

LIVE_LAG_S = 1.0  # a log that is being written always has records that are not acknowledged
# Ten times the longest wait of a thread that works, except for a slow disk.
STUCK_S = 60.0

STATES = ("blocked", "connecting", "limited", "draining", "live", "stopped")  # the worst first

_SHOWN_PHASES = (Phase.QUEUED, Phase.RUNNING, Phase.PARKED, Phase.WAITING, Phase.STANDING)


class LogStatus(NamedTuple):
    """One log and one cluster: a row of `logs` in /status. Counts are since the process started. One more row,
    whose phase is `removed`, has the sums of logs that were removed."""

    log: str
    path: str
    cluster: str
    phase: str
    state: str
    acknowledged: int
    skipped: int
    lost_records: int  # what cannot be delivered, as in bridge.deliver.status.Status
    gaps: int
    dead_lettered: int
    dropped: int
    restarts: int = 0
    silent_s: float | None = None  # since its thread made progress; None: no thread runs
    error: str | None = None
    code: str | None = None  # of the error
    status: Status | None = None  # the last one of the forwarder; None before the first
    lag: Lag | None = None  # read from the files, where that is newer than `status`
    filtered: int = 0
    cut_off: bool = False  # the process before was killed, or stopped with records under way
    damaged: tuple[tuple[int, int], ...] = ()  # addresses [begin, end) of the last gaps

    @property
    def counted_anything(self) -> bool:
        """Whether a count is not zero."""
        return any(getattr(self, name) for name in TOTALS)

    @property
    def lag_records(self) -> int | None:
        """Records that are not acknowledged; None if unknown."""
        if self.lag is not None:
            return self.lag.records
        return None if self.status is None else self.status.lag_records

    @property
    def lag_bytes(self) -> int | None:
        """Bytes after the last acknowledged record; None if unknown."""
        if self.lag is not None:
            return self.lag.bytes
        return None if self.status is None else self.status.lag_bytes

    @property
    def lag_seconds(self) -> float | None:
        """Age of the first record that is not acknowledged; None if unknown."""
        if self.lag is not None:
            return self.lag.seconds
        return None if self.status is None else self.status.lag_seconds

    @property
    def stuck(self) -> bool:
        """Whether its thread hangs."""
        return self.silent_s is not None and self.silent_s > STUCK_S

    @property
    def ready(self) -> bool:
        """Whether its cluster answers, or it waits for its turn, and no error stopped it."""
        if self.phase in {Phase.PAUSED, Phase.DONE, Phase.QUEUED, Phase.REMOVED}:
            return True
        running = self.phase in {Phase.RUNNING, Phase.PARKED}
        return running and self.state in {"draining", "limited", "live"}


class Overview(NamedTuple):
    """All logs together: a line of `run --json` and `replay --json`, and `overview` in /status. Counts are sums
    since the process started; queued to standing: logs by phase."""

    state: str
    logs: int  # how many there are
    queued: int
    running: int
    parked: int
    waiting: int
    standing: int
    acknowledged: int
    skipped: int
    outstanding: int
    lag_records: int | None  # None where one log's is not known yet
    lag_bytes: int | None  # as lag_records
    lag_seconds: float | None  # of the log whose lag is oldest
    lost_records: int
    gaps: int
    dead_lettered: int
    dropped: int
    error: str | None  # of the first log that has one
    rate: float  # records acknowledged per second
    ahead_records: int = 0  # after the cursor, acknowledged already
    reachable: bool = True  # every log that runs or is parked reaches its cluster
    held_back: int = 0  # as of a log
    standing_lanes: int = 0  # `standing` of a log
    stalled: tuple[Stall, ...] = ()
    filtered: int = 0


def alone(log: str, cluster: str, status: Status) -> LogStatus:
    """The status of a forwarder that runs without a supervisor, as that of a log."""
    state = state_of(status)
    return LogStatus(
        log=log,
        path=log,
        cluster=cluster,
        phase=Phase.DONE if state == "stopped" else Phase.RUNNING,
        state=state,
        **status.counted(),
        lost_records=status.lost_records,
        gaps=status.gaps,
        error=status.error,
        status=status,
    )


def removed(cluster: str, logs: Sequence[LogStatus]) -> LogStatus:
    """The sums of removed logs: totals never fall. logs: the last status of each, or an earlier row of sums."""
    return LogStatus(
        log=REMOVED_LOGS,
        path="",
        cluster=cluster,
        phase=Phase.REMOVED,
        state="stopped",
        **{name: sum(getattr(log, name) for log in logs) for name in TOTALS},
        lag=Lag(0, 0, 0.0),
    )


def state_of(status: Status) -> str:
    """The state that users see, from a forwarder's."""
    if status.state in {"stopped", "failed"}:
        return "stopped"
    if not status.reachable:
        return "connecting"
    if status.state in {"backing_off", "blocked"}:
        return "blocked"
    if status.state == "connecting":
        return "connecting"
    if status.standing or status.stalled:  # `standing` lanes wait for an operator
        return "blocked"
    records, age_s = status.lag_records, status.lag_seconds
    sent = status.lag_bytes == 0 or (records is not None and records <= status.outstanding)
    if sent or (age_s is not None and age_s < LIVE_LAG_S):
        return "live"
    return "limited" if status.limited else "draining"


def overview(
    logs: Sequence[LogStatus], *, stopped: bool = False, waiting_for: str | None = None
) -> Overview:
    """The whole process: its state is the worst of its logs. waiting_for: see Supervisor."""
    known = [log.status for log in logs if log.status is not None]
    ages = [log.lag_seconds for log in logs if log.lag_seconds is not None]
    states = {log.state for log in logs if log.phase != Phase.REMOVED}
    if waiting_for is not None:
        states.add("blocked")
    worst = next((state for state in STATES if state in states), "live")
    running = [log.status for log in logs if log.phase == Phase.RUNNING and log.status is not None]
    counts = {name: sum(getattr(log, name) for log in logs) for name in COUNTED}
    phases = Counter(log.phase for log in logs)
    return Overview(
        state="stopped" if stopped else worst,
        logs=len({log.path for log in logs if log.phase != Phase.REMOVED}),
        **{phase: phases[phase] for phase in _SHOWN_PHASES},
        **counts,
        outstanding=sum(s.outstanding for s in running),
        lag_records=_sum([log.lag_records for log in logs]),
        lag_bytes=_sum([log.lag_bytes for log in logs]),
        lag_seconds=max(ages, default=None),
        lost_records=sum(log.lost_records for log in logs),
        gaps=sum(log.gaps for log in logs),
        error=waiting_for or next((f"{log.log}: {log.error}" for log in logs if log.error), None),
        rate=sum((s.rate for s in running), 0.0),
        ahead_records=sum(s.ahead_records for s in known),
        reachable=all(s.reachable for s in running)
        and len(running) == phases[Phase.RUNNING]
        and all(log.state == "live" for log in logs if log.phase == Phase.PARKED),
        held_back=sum(s.held_back for s in known),
        standing_lanes=sum(s.standing for s in known),
        stalled=tuple(stall for s in running for stall in s.stalled),
    )


def _sum(parts: list[int | None]) -> int | None:
    """None where one is not known."""
    known = [part for part in parts if part is not None]
    return sum(known) if len(known) == len(parts) else None
