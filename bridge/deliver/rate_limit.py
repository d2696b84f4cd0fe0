"""RateLimit: no more than so many records and bytes a second. A token bucket that may go into debt."""

from __future__ import annotations

import threading
from math import inf

__all__ = ["RateLimit", "RateLimits"]

BURST_S = 1.0  # what was not used is kept for so long


class RateLimit:
    """Rates for one log, or shared by all logs of a process. Thread-safe; times are seconds of
    any clock that only grows.

    What is sent is spent whole, however much it is, and then nothing may be sent until the debt
    is paid: so the rate holds on average whatever the size of a batch. None: no bound.
    """

    def __init__(
        self, *, records_per_s: float | None = None, bytes_per_s: float | None = None
    ) -> None:
        self._at_s: float | None = None
        self._lock = threading.Lock()
        self.change(records_per_s, bytes_per_s)

    def change(self, records_per_s: float | None, bytes_per_s: float | None) -> None:
        """Other rates from now on; a debt at the old ones is forgiven."""
        with self._lock:
            self._rates = (records_per_s or 0.0, bytes_per_s or 0.0)
            self._left = [rate * BURST_S for rate in self._rates]

    def _fill(self, now_s: float) -> None:
        passed_s = max(0.0, now_s - (now_s if self._at_s is None else self._at_s))
        self._at_s = now_s if self._at_s is None else max(now_s, self._at_s)
        for i, rate in enumerate(self._rates):
            self._left[i] = min(rate * BURST_S, self._left[i] + rate * passed_s)

    def burst(self) -> tuple[float, float]:
        """How many records and bytes may be sent at once without debt; infinite without a bound."""
        with self._lock:
            records, size = (rate * BURST_S or inf for rate in self._rates)
            return records, size

    def spend(self, records: int, size: int, *, now_s: float) -> None:
        """So many records with so many bytes are sent."""
        with self._lock:
            self._fill(now_s)
            for i, (rate, amount) in enumerate(zip(self._rates, (records, size), strict=True)):
                if rate:
                    self._left[i] -= amount

    def wait_s(self, now_s: float) -> float:
        """How long nothing may be sent; 0.0: now."""
        with self._lock:
            self._fill(now_s)
            debts = [
                -left / rate for rate, left in zip(self._rates, self._left, strict=True) if left < 0
            ]
            return max(debts, default=0.0)


class RateLimits:
    """Several at once, such as a log's own and its process's: the slowest holds."""

    def __init__(self, *paces: RateLimit | None) -> None:
        self._paces = [pace for pace in paces if pace is not None]

    def burst(self) -> tuple[float, float]:
        """As RateLimit.burst."""
        records, size = zip((inf, inf), *(pace.burst() for pace in self._paces), strict=True)
        return min(records), min(size)

    def spend(self, records: int, size: int, *, now_s: float) -> None:
        """As RateLimit.spend."""
        for pace in self._paces:
            pace.spend(records, size, now_s=now_s)

    def wait_s(self, now_s: float) -> float:
        """As RateLimit.wait_s."""
        return max((pace.wait_s(now_s) for pace in self._paces), default=0.0)
