"""How much is measured. `small` is for tests: it proves that all of it runs, and times nothing."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["SIZES", "Size"]


class Size(NamedTuple):
    """records: a contender's in each round, fewer where they would pass `bytes_max`.
    records_slow: of a contender that takes a thousand times longer. rounds: that count. slabs, and
    unsealed_bytes of a last one: of the logs that are opened. seek_bytes: of a log in which is sought."""

    records: int
    bytes_max: int
    records_slow: int
    record_bytes: tuple[int, ...]
    rounds: int
    slabs: tuple[int, ...]
    unsealed_bytes: int
    seek_bytes: int

    def records_of(self, record_bytes: int) -> int:
        return max(1, min(self.records, self.bytes_max // record_bytes))


SIZES = {
    # several frames even at 256 KiB a frame, for each length
    "small": Size(6_000, 600_000, 120, (100,), 2, (1, 10), 1 << 18, 1 << 20),
    # 20 MB: as large as the last cache; ten times as much gave the same ratios
    "normal": Size(200_000, 50_000_000, 2_000, (100,), 11, (1, 100, 10_000), 64 << 20, 128 << 20),
    # several slabs
    "large": Size(
        2_000_000,
        200_000_000,
        10_000,
        (20, 100, 1024),
        7,
        (1, 100, 10_000, 100_000),
        1 << 30,
        1 << 30,
    ),
}
