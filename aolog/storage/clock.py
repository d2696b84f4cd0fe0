"""The one clock of records and slabs, so that tests can stand in for it."""

from __future__ import annotations

import time

__all__ = ["now_us"]


def now_us() -> int:
    """Microseconds since the epoch, UTC."""
    return time.time_ns() // 1000
