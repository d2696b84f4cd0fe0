"""What stops a log, in parts: the cause, what to do, and whether somebody has to act. Pure.

`error` in a status is a sentence for a log line. The page, `top` and `status` show the same in parts, so that
a cause that many logs share is said once, and no advice contradicts its cause.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

from bridge.kafka.error_table import ROWS, Fault, advice, kind_of
from bridge.supervise.turns import Phase

if TYPE_CHECKING:
    from bridge.deliver.status import WaitingLane
    from bridge.supervise.status import LogStatus

Needs = Literal["nothing", "cause", "retry"]

_AGAIN = "; trying again"
_BROKERS = "wait; if the brokers are up, check bootstrap_servers, the network and the certificates"
_LEADER = "look at the broker that leads the partition"


class Trouble(NamedTuple):
    """What stops a log."""

    cause: str  # in words that other logs with the same problem share
    advice: str  # what to do; "" if there is nothing
    # `nothing`, it passes by itself; somebody has to remove the `cause`, and to `retry`
    needs: Needs


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
