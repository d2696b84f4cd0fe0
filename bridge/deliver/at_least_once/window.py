"""Window: how many bytes may be in flight on a connection, controlled by how long they wait. Pure.

After an outage every bridge returns to the cluster at once, each with a backlog. If each sent all that
it may, requests would queue: 10,000 bridges with a request of 1 MB each wait 33 s at a cluster that
takes 300 MB/s, long enough for the requests to be sent again. So a connection begins with little in
flight. The window grows by what is acknowledged, and so doubles each round trip, while answers come
soon; it grows up to fourfold while they come at once. It is halved, once a round trip, when they come
late. tests/bridge/deliver/at_least_once/fleet.py simulates such a fleet; the constants follow from it.
"""

from __future__ import annotations

BYTES_MIN = 16 << 10  # with 10,000 bridges: half a second's work of the cluster above
TARGET_S = 1.0  # far above a round trip and a broker's pause; far below the client's timeout
AT_ONCE_S = TARGET_S / 10
_AT_ONCE_GAIN = 3  # of what is acknowledged


class Window:
    """Of one connection. Times are seconds of any clock that only grows."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_min = min(BYTES_MIN, bytes_max)
        self._bytes_max = bytes_max
        self.forget()

    def forget(self) -> None:
        """A new connection begins small."""
        self.bytes = self._bytes_min
        self._halved_s = float("-inf")

    def acknowledged(self, size: int, *, under_way: int, sent_s: float, now_s: float) -> None:
        """So many bytes were acknowledged, of those in flight; they were sent at `sent_s`. The window grows
        only if at least a quarter of it is used, because many answers come together before more is sent."""
        wait_s = now_s - sent_s
        if wait_s < TARGET_S:
            if 4 * under_way >= self.bytes:
                gain = _AT_ONCE_GAIN if wait_s < AT_ONCE_S else 1
                self.bytes = min(self._bytes_max, self.bytes + gain * size)
        elif sent_s >= self._halved_s:  # what was sent before that does not show its effect
            self.bytes = max(self._bytes_min, self.bytes // 2)
            self._halved_s = now_s
