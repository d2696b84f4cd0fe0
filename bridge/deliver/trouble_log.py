"""TroubleLog: log lines about a delivery that cannot go on: one for each cause, repeated each minute
while it lasts, and one when it is over."""

from __future__ import annotations

import logging
import re

_log = logging.getLogger("bridge")
_AGAIN_S = 60.0
_VARYING = re.compile(r" \(after [^()]*\)|\d+")  # the client's times, and counts of records


class TroubleLog:
    """Of one log's delivery. Not thread-safe."""

    def __init__(self) -> None:
        self._logged_s: dict[str, float] = {}

    def say(self, reason: str, now_s: float, *, what: str = "connecting anew") -> None:
        """Logs the reason, unless it was logged within the last minute with other numbers in it."""
        cause = _VARYING.sub("", reason)
        if now_s - self._logged_s.get(cause, float("-inf")) < _AGAIN_S:
            return
        self._logged_s = {c: s for c, s in self._logged_s.items() if now_s - s < _AGAIN_S}
        self._logged_s[cause] = now_s
        _log.warning("%s: %s", what, reason, extra={"event": "delivery_waits"})

    def over(self) -> None:
        """The delivery goes on. Logs that, if a reason was logged since the last call."""
        if self._logged_s:
            self._logged_s.clear()
            _log.info("connected again", extra={"event": "delivery_goes_on"})
