"""RateLimit: at most so many records and bytes a second, on average. A token bucket that may go into
debt."""

from __future__ import annotations

import threading
from math import inf

BURST_S = 1.0  # unused tokens are kept for this long
LIMITED_S = 3.0  # one that held something back this lately counts as holding: batches come in steps


class RateLimit:
    """Of one log, or of all logs of a process. Thread-safe. Times are seconds of any clock that only grows. None:
    no limit. shared: a second limit, which holds as well.

    A batch is spent whole, however large it is; then nothing may be sent until the debt is paid. So
    the rate holds on average for batches of any size."""

    def __init__(
        self,
        *,
        records_per_s: float | None = None,
        bytes_per_s: float | None = None,
        shared: RateLimit | None = None,
    ) -> None:
        self._shared = shared
        self._at_s: float | None = None
        self._held_s: float | None = None  # when `wait_s` last asked for a wait
        self._lock = threading.Lock()
        self.change(records_per_s, bytes_per_s)

    def change(self, records_per_s: float | None, bytes_per_s: float | None) -> None:
        """Sets other rates, and cancels a debt."""
        with self._lock:
            self._rates = (records_per_s or 0.0, bytes_per_s or 0.0)
            self._left = [rate * BURST_S for rate in self._rates]

    def _fill(self, now_s: float) -> None:
        passed_s = max(0.0, now_s - (now_s if self._at_s is None else self._at_s))
        self._at_s = now_s if self._at_s is None else max(now_s, self._at_s)
        for i, rate in enumerate(self._rates):
            self._left[i] = min(rate * BURST_S, self._left[i] + rate * passed_s)

    def burst(self) -> tuple[float, float]:
        """How many records and bytes may be sent at once without debt; infinite without a limit."""
        with self._lock:
            records, size = (rate * BURST_S or inf for rate in self._rates)
        also = (inf, inf) if self._shared is None else self._shared.burst()
        return min(records, also[0]), min(size, also[1])

    def spend(self, records: int, size: int, *, now_s: float) -> None:
        """So many records with so many bytes are sent."""
        with self._lock:
            self._fill(now_s)
            for i, (rate, amount) in enumerate(zip(self._rates, (records, size), strict=True)):
                if rate:
                    self._left[i] -= amount
        if self._shared is not None:
            self._shared.spend(records, size, now_s=now_s)

    def wait_s(self, now_s: float) -> float:
        """How long nothing may be sent; 0.0: now."""
        with self._lock:
            self._fill(now_s)
            debts = [
                -left / rate for rate, left in zip(self._rates, self._left, strict=True) if left < 0
            ]
        also_s = 0.0 if self._shared is None else self._shared.wait_s(now_s)
        longest_s = max([also_s, *debts])
        if longest_s > 0:
            self._held_s = now_s
        return longest_s

    def limits(self, now_s: float) -> bool:
        """Whether the limit holds this log back, now or within the last seconds."""
        return self._held_s is not None and now_s - self._held_s < LIMITED_S
