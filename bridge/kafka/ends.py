"""Ends: whether a client asked once for the end of a transaction, or perhaps twice.

A request for an end that is not answered is sent again by the client, with the same epoch, and
nothing tells of it: no error, where the connection to the coordinator alone broke. The first may be
carried out late, and would end the next transaction. But it is sent again no sooner than
`retry.backoff.ms` later (or `retry.backoff.max.ms`, if that is less), less the client's jitter of a
fifth; so what was answered sooner was asked for once. Else the client's statistics say how many requests were sent. Pure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = ["Ends"]

_SOONEST = 0.75  # of the pause
_REQUEST = "EndTxn"


class Ends:
    """Of one producer. Times are seconds of any clock that only grows. retry_s: the client's pause
    before it asks again.

    sure: whether each was asked for once, for all that is known: it was answered too soon to have
    been sent twice, or counted. counts: how many statistics were told.
    """

    def __init__(self, retry_s: float) -> None:
        self.sure = True
        self.counts = 0
        self._soonest_s = _SOONEST * retry_s
        self._asked = self._sent = 0
        self._since_s = 0.0

    def asked(self, now_s: float) -> None:
        """An end is asked for, from now on."""
        self._asked += 1
        self._since_s = now_s

    def answered(self, now_s: float) -> None:
        """It was answered."""
        self.sure = self.sure and now_s - self._since_s < self._soonest_s

    def told(self, brokers: Iterable[Mapping[str, Any]]) -> None:
        """The client's statistics of its brokers."""
        self.counts += 1
        self._sent = sum(broker["req"].get(_REQUEST, 0) for broker in brokers)

    def once(self) -> bool:
        """Whether as many were sent as were asked for, by statistics from behind the last answer."""
        self.sure = self._sent == self._asked
        return self.sure
