"""What append took, and what of it is durable. Pure."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

__all__ = ["Tally"]


@dataclass(slots=True)
class Tally:
    """What was taken. Where each run of consecutive addresses began is kept until it is durable,
    so that a durable address tells how many records are."""

    records: int = 0
    bytes: int = 0
    first: int | None = None
    last: int | None = None
    null_keys: int = 0
    null_topics: int = 0
    unusable_timestamps: int = 0
    unappended_bytes: int = 0
    _runs: deque[tuple[int, int]] = field(default_factory=deque)

    def add(self, address: int, size: int) -> None:
        """A record was taken."""
        if self.last is None or address != self.last + 1:
            self._runs.append((address, self.records))
            if self.first is None:
                self.first = address
        self.last = address
        self.records += 1
        self.bytes += size

    def forget(self, durable: int) -> None:
        """Runs before this address need not be kept."""
        while len(self._runs) > 1 and self._runs[1][0] <= durable:
            self._runs.popleft()

    def records_before(self, address: int) -> int:
        """How many of the records are before an address that is not forgotten."""
        behind = self.records
        for begin, before in reversed(self._runs):
            if begin < address:
                return min(before + (address - begin), behind)
            behind = before
        return behind
