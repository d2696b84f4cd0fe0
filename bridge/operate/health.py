"""Health: what stops logs, each cause once, and whether the clusters answer; with since when.

`error` in a status is a sentence for a log line. The page, `top` and `status` show the same in parts, so that
a cause that many logs share is said once, and no advice contradicts its cause. The monitor calls `see` with
each sample. A cause that is away for a moment keeps its beginning.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, Literal, NamedTuple

from bridge.deliver.status import WaitingLane
from bridge.kafka.error_table import ROWS, Fault, advice, kind_of
from bridge.supervise.status import TOTALS, LogStatus
from bridge.supervise.turns import Phase

_AWAY_S = 15.0  # a cause that is seen again within this long has not ended: connections flap
_VARYING = re.compile(r"\(after [^()]*\)|\bfor \d+ s\b|\baddress \d+")
LOGS_SHOWN = 200  # of a trouble
_ORDER = ("retry", "cause", "nothing")
_AGAIN = "; trying again"
_BROKERS = "wait; if the brokers are up, check bootstrap_servers, the network and the certificates"
_LEADER = "look at the broker that leads the partition"

Needs = Literal["nothing", "cause", "retry"]
Answers = Literal["answers", "stalled", "no answer", "refuses", "not asked"]


class Trouble(NamedTuple):
    """What stops a log."""

    cause: str  # in words that other logs with the same problem share
    advice: str  # what to do; "" if there is nothing
    # `nothing`, it passes by itself; somebody has to remove the `cause`, and to `retry`
    needs: Needs


class Shown(NamedTuple):
    """A trouble of one or more logs of a cluster."""

    cause: str
    advice: str
    needs: str
    since_s: float  # seconds since 1970
    cluster: str  # "" for all of them
    log_count: int  # how many
    logs: tuple[str, ...]  # the names of some


class ClusterHealth(NamedTuple):
    """Whether a cluster answers. It is stalled while a broker is connected, and each log waits for acknowledgements
    (a broker that is frozen, too few replicas), and not asked while no log has anything to send."""

    cluster: str
    state: Answers
    since_s: float  # seconds since 1970
    logs: int  # how many go to it


class Health:
    """For one thread. troubles: those that need somebody first. clusters: by name."""

    def __init__(self) -> None:
        self.troubles: list[Shown] = []
        self.clusters: list[ClusterHealth] = []
        self._seen: dict[tuple[str, ...], tuple[float, float]] = {}  # since when, and the last time

    def see(self, logs: Sequence[LogStatus], waits: str | None, now_s: float) -> None:
        """The statuses of now. waits: as the supervisor's: the root or log that is missing."""
        self._seen = {key: at for key, at in self._seen.items() if now_s - at[1] < _AWAY_S}
        present = [log for log in logs if log.phase != Phase.REMOVED]
        self._see_troubles(present, waits, now_s)
        clusters = []
        for name in sorted({log.cluster for log in present}):
            own = [log for log in present if log.cluster == name]
            state = _answers(own)
            clusters.append(
                ClusterHealth(name, state, self._since(("", name, state), now_s), len(own))
            )
        self.clusters = clusters

    def _see_troubles(self, logs: Iterable[LogStatus], waits: str | None, now_s: float) -> None:
        grouped: dict[tuple[str, ...], tuple[Trouble, list[str]]] = {}
        if waits is not None:
            missing = Trouble(waits, "create it, or correct the configuration", "cause")
            grouped["", _alike(waits)] = (missing, [])
        for log in logs:
            for trouble in troubles_of(log):
                key = log.cluster, _alike(trouble.cause), trouble.needs
                grouped.setdefault(key, (trouble, []))[1].append(log.log)
        shown = [
            Shown(*trouble, self._since(key, now_s), key[0], len(names), tuple(names[:LOGS_SHOWN]))
            for key, (trouble, names) in grouped.items()
        ]
        self.troubles = sorted(shown, key=lambda each: (_ORDER.index(each.needs), each.since_s))

    def _since(self, key: tuple[str, ...], now_s: float) -> float:
        since_s, _ = self._seen.get(key, (now_s, now_s))
        self._seen[key] = since_s, now_s
        return since_s


def _alike(cause: str) -> str:
    """The same for causes that differ in times and addresses only."""
    return _VARYING.sub("", cause)


def _answers(logs: Sequence[LogStatus]) -> Answers:
    """Whether the cluster of these logs answers. One log that reaches it is enough."""
    running = [log.status for log in logs if log.phase == Phase.RUNNING and log.status is not None]
    reached = [status for status in running if status.reachable]
    if reached:
        return "stalled" if all(status.stalled for status in reached) else "answers"
    waiting = [log for log in logs if log.state == "connecting"]
    if any(trouble.needs == "cause" for log in waiting for trouble in troubles_of(log)):
        return "refuses"
    if waiting:
        return "no answer"
    return "answers" if any(log.phase == Phase.PARKED for log in logs) else "not asked"


def log_row(log: LogStatus) -> dict[str, Any]:
    """A log as JSON, one flat object: its own fields, those of the forwarder's status, and its troubles."""
    own = log._asdict()
    status = own.pop("status")
    del own["lag"]
    shown = {} if status is None else status._asdict()
    shown |= {name: getattr(log, name) for name in ("lag_records", "lag_bytes", "lag_seconds")}
    for name in ("state", *TOTALS, "error"):
        shown.pop(name, None)
    return {**own, **shown, "troubles": [trouble._asdict() for trouble in troubles_of(log)]}


# --- the troubles of a log ------------------------------------------------------------------


def troubles_of(log: LogStatus) -> list[Trouble]:
    """The worst first; none for a log that goes on."""
    found = []
    if log.stuck:
        found.append(
            Trouble("its thread hangs", "look at the disk, and restart the bridge", "cause")
        )
    if log.phase == Phase.PAUSED:
        return [*found, Trouble("paused by an operator", "resume it on the page", "cause")]
    if log.state == "connecting":
        return [*found, _disconnected(log.error)]
    if log.error is None and log.state != "blocked":  # a topic may be being created
        return found
    if log.status is None or log.phase != Phase.RUNNING:
        return [*found, _failed(log)]
    lanes = [_of_lane(lane) for lane in log.status.waiting_lanes]
    if log.status.stalled:
        lanes.insert(0, _stalled(log.error or ""))
    return [*found, *dict.fromkeys(lanes or [_failed(log)])]


def _disconnected(error: str | None) -> Trouble:
    if error is None:
        return Trouble("no broker is connected", _BROKERS, "nothing")
    cause, what = _parted(error.removesuffix(_AGAIN))
    if what:
        return Trouble(cause, what, "cause")
    before, check, what = cause.partition(": check ")  # the cause names a setting
    if check:
        return Trouble(before, f"check {what}", "cause")
    return Trouble(cause, _BROKERS, "nothing")


def _parted(error: str) -> tuple[str, str]:
    """The cause and the advice of a text `CODE: ...: advice`; no advice in others."""
    code = error.partition(":")[0]
    what = f": {advice(code)}"
    return (error.removesuffix(what), advice(code)) if code in ROWS else (error, "")


def _of_lane(lane: WaitingLane) -> Trouble:
    if lane["state"] == "blocked":
        needs: Needs = "retry"
    elif kind_of(lane["code"]).fault is Fault.CONFIGURATION:
        needs = "cause"
    else:
        needs = "nothing"
    return Trouble(lane["cause"], advice(lane["code"]) if lane["code"] else "", needs)


def _stalled(error: str) -> Trouble:
    cause, what = _parted(error)
    return Trouble(cause, what or _LEADER, "nothing")


def _failed(log: LogStatus) -> Trouble:
    """Of a run that ended, or of a delivery that pauses."""
    cause, _, hint = (log.error or "it stopped").partition("; ")
    if log.phase in {Phase.WAITING, Phase.QUEUED} or (log.error and log.phase == Phase.RUNNING):
        return Trouble(cause, hint, "nothing")
    return Trouble(cause, hint or "remove the cause", "retry")
