"""Whether the client may have requested the end of a transaction twice.

The client sends a request that is not answered again, with the same epoch, and does not report it.
The cluster may carry out the first one late, and would end the next transaction with it. But the
client waits for `retry.backoff.ms` (or `retry.backoff.max.ms`, if that is less), minus a jitter of a
fifth, before it asks again. So an end that was answered sooner was requested once. Pure.
"""

from __future__ import annotations

_SURE = 0.75  # of the client's pause


class Ends:
    """Of one producer. Times are seconds of any clock that only grows. retry_s: the client's pause
    before it asks again. twice: whether one of the ends may have been requested twice."""

    def __init__(self, retry_s: float) -> None:
        self.twice = False
        self._sure_s = _SURE * retry_s
        self._since_s = 0.0

    def requested(self, now_s: float) -> None:
        """An end is requested now."""
        self._since_s = now_s

    def answered(self, now_s: float) -> None:
        """The cluster has answered it."""
        self.twice = self.twice or now_s - self._since_s >= self._sure_s
