"""Backoff: how long to wait before the next try: twice as long after each failure, with jitter. Pure."""

from __future__ import annotations

import random

_DOUBLINGS_MAX = 32  # 2**32 seconds are more than any maximum


class Backoff:
    """By default, as a delivery waits for its cluster. A delay is multiplied by a random factor between 0.5 and 1, so
    that many clients of a failed server do not return at the same moment."""

    def __init__(
        self, base_s: float = 0.2, max_s: float = 30.0, entropy: random.Random | None = None
    ) -> None:
        self.base_s = base_s  # the first delay
        self.max_s = max_s  # the longest
        self.attempts = 0  # failures since the last success
        self._entropy = entropy or random.Random()  # noqa: S311 -- jitter, no secret

    def next_s(self) -> float:
        """Counts a failure. The delay before the next try."""
        delay_s: float = min(self.max_s, self.base_s * 2**self.attempts)
        self.attempts = min(self.attempts + 1, _DOUBLINGS_MAX)
        return delay_s * self._entropy.uniform(0.5, 1.0)

    def reset(self) -> None:
        """A success: the next delay is the first one again."""
        self.attempts = 0
