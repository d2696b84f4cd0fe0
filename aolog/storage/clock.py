"""The only clock for records and slabs, so that tests can replace it."""

from __future__ import annotations

import time


def now_us() -> int:
    """Microseconds since the epoch, UTC."""
    return time.time_ns() // 1000


SYSTEM = now_us  # compiled code reads the same clock by itself, unless a test has replaced `now_us`
