"""What to do about a log, from its row in `/status`, or from one that `status` has read from the disk.

`status` and `top` show it; a row without advice needs none.
"""

from __future__ import annotations

from typing import Any

from bridge.supervise.status import STUCK_S, Phase

_BY_STATE = {
    "connecting": "check the network, the brokers and the certificates",
    "blocked": "mend the cause; then send SIGHUP, or retry on the page",
}
_BY_CODE = {  # of a cursor on disk
    "pruned": 'raise the writer\'s Retention(max_bytes=...), or set when_full="block"',
    "cursor_corrupt": "set it again: aolog-bridge seek LOG --to PLACE",
    "permission_denied": "run this command as the log's owner, or mend the owner of its files",
    "cursor_foreign": "it is a cursor of another log: restore the log, or seek",
}


def advice_of(log: dict[str, Any]) -> str:
    """Separated by semicolons, the most urgent first; "" if there is nothing to do."""
    said = []
    if (log.get("silent_s") or 0) > STUCK_S:
        said.append("its thread hangs: look at the disk, and restart")
    if log.get("phase") == Phase.PAUSED:
        said.append("resume it on the page")
    elif log["state"] == "blocked" and log.get("stalled") and not log.get("standing"):
        said.append("look at the broker of that partition; the bridge goes on by itself")
    elif (what := _BY_STATE.get(log["state"])) is not None:
        said.append(what)
    if log["state"] == "stopped" and log.get("lag_records") != 0 and "phase" not in log:
        said.append("start it: aolog-bridge run")
    if (what := _BY_CODE.get(str(log.get("error")))) is not None:
        said.append(what)
    elif "losses" not in log and (log.get("lost_records") or log.get("gaps")):
        said.append("see what was lost: aolog-bridge status --log LOG")
    if log.get("dead_lettered"):
        said.append(
            "read LOG/dead-letter with aolog read; aolog-bridge replay --dead-letter sends it"
        )
    if log.get("dropped"):
        said.append("find the producer of the records that were dropped")
    if log.get("cut_off"):
        said.append("find what ended the process before this one")
    return "; ".join(said)
