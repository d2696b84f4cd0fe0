"""Window: how many bytes may be under way, found by how long they wait. Pure.

A cluster that comes back after an outage is met by every bridge at once, each with a backlog. If
each sends all that it may, what it sends waits behind what the others sent: 10,000 bridges with a
request of 1 MB each wait 33 s at a cluster that takes 300 MB/s, long enough to be sent again. So a
connection begins with little under way. It grows by what is acknowledged, and so doubles each
round trip, as long as that comes soon, and up to fourfold while it comes at once: what waits a tenth
of what it may can wait four times as long. It is halved, once a round trip, when it comes late.
tests/bridge/deliver/at_least_once/fleet.py simulates such a fleet with `step`; the constants follow from it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    import numpy as np

__all__ = ["AT_ONCE_S", "BYTES_MIN", "TARGET_S", "Window", "step"]

BYTES_MIN = 16 << 10  # with 10,000 bridges: half a second's work of the cluster above
TARGET_S = 1.0  # a round trip and a pause of the broker are far below it; patience far above
AT_ONCE_S = TARGET_S / 10
_AT_ONCE_GAIN = 3  # of what is acknowledged

_Bytes = TypeVar("_Bytes", float, "np.ndarray")


def step(
    window: _Bytes, *, under_way: _Bytes, acknowledged: _Bytes, wait_s: float, trips: float
) -> _Bytes:
    """What becomes of it where so many bytes were acknowledged after so long. It grows only where
    it is used: a quarter of it, as many answers come together before more is sent. trips: round
    trips since the step before, 1 at most. Of many bridges: arrays."""
    after: _Bytes = window * 0.5**trips
    if wait_s < TARGET_S:
        gain = _AT_ONCE_GAIN if wait_s < AT_ONCE_S else 1
        after = window + gain * acknowledged * (4 * under_way >= window)
    return after


class Window:
    """Of one connection; times are seconds of any clock that only grows."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self.forget()

    def forget(self) -> None:
        """A new connection begins small."""
        self.bytes = min(BYTES_MIN, self._bytes_max)
        self._halved_s = float("-inf")

    def acknowledged(self, size: int, *, under_way: int, sent_s: float, now_s: float) -> None:
        """So many bytes were, of what was under way, and were sent then."""
        # What was sent before it was halved says nothing of what waits since.
        trips = float(sent_s >= self._halved_s)
        before = self.bytes
        grown = step(
            float(before),
            under_way=float(under_way),
            acknowledged=float(size),
            wait_s=now_s - sent_s,
            trips=trips,
        )
        self.bytes = max(min(BYTES_MIN, self._bytes_max), min(self._bytes_max, int(grown)))
        if self.bytes < before:
            self._halved_s = now_s
