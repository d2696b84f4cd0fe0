"""The log as a forwarder sees it: a reader with a cursor, what cannot be delivered, and pruning."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from aolog import Reader
from aolog.errors import AddressBeyondEnd, AddressPruned
from aolog.log.retention import Retention, prune
from aolog.read.reader import prepare_commit, pruned_from, return_to
from aolog.storage.storage import DIRECTORY_MODE, Storage
from bridge.deliver.losses import LogLosses
from bridge.deliver.position import Position
from bridge.deliver.rate_limit import RateLimits

if TYPE_CHECKING:
    import os
    from collections.abc import Callable

    from aolog import Gap
    from aolog.read.batch import Batch

__all__ = ["READ_BYTES_MAX", "LogSource"]

# What a batch costs however small it is, some hundred microseconds and a processor's cache, is
# shared by its records: with four times as many a record of 1 KB took a tenth less.
READ_BYTES_MIN = 512 << 10
READ_BYTES_MAX = 4 << 20
READ_RECORDS = 4_000  # a tick's worth of work

_log = logging.getLogger("bridge")


class LogSource:
    """One log. prune_delivered: removes slabs that the cursor and every other protecting cursor
    have passed, or of them what retention lets go. pace: how fast it may be sent. mode: of the
    directory of its dead letters, if that is created. storage: where the log is. losses: counts what
    cannot be delivered; it may outlive the source. Not thread-safe, but for `prune` and what
    `committing` returns. Raises what Reader raises."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        cursor: str,
        prune_delivered: bool | Retention = False,
        pace: RateLimits | None = None,
        mode: int = DIRECTORY_MODE,
        storage: Storage | None = None,
        losses: LogLosses | None = None,
    ) -> None:
        self.mode = mode
        self.storage = storage or Storage()
        self.losses = losses or LogLosses()
        self.reader = Reader(path, cursor=cursor, on_gap=self._on_gap, storage=self.storage)
        self.cursor = cursor
        self.pace = pace or RateLimits()
        self._record_bytes = READ_BYTES_MIN / READ_RECORDS
        keep = Retention(max_slabs=1) if prune_delivered is True else prune_delivered
        self._retention = keep or None

    @property
    def position(self) -> Position:
        """Where the reader stands."""
        return Position(self.reader.tell(), self.reader.ordinal)

    def read_batch(self, timeout_s: float, bytes_max: int = READ_BYTES_MAX) -> Batch | None:
        """The next records, some thousand, bytes_max, or what may be sent in a second at most;
        None if there is none so long. Raises what Reader raises."""
        records, paced = self.pace.burst()
        size = self._record_bytes * READ_RECORDS
        size = max(READ_BYTES_MIN, min(READ_BYTES_MAX, size))
        size = min(size, bytes_max, paced, self._record_bytes * records)
        batch = self.reader.read_batch(int(size), timeout=timeout_s)
        if batch is not None:
            self._record_bytes = sum(frame.size for frame in batch.frames) / len(batch)
        return batch

    def ordinal_at(self, address: int) -> int | None:
        """Records of the log before an address; None where that is not known."""
        try:
            with Reader(self.reader.path, address, storage=self.storage) as reader:
                return reader.ordinal
        except (AddressPruned, AddressBeyondEnd):
            return None

    def committing(self, position: Position) -> Callable[[], None]:
        """What makes the local cursor durable there, called in whichever thread: see Reader."""
        return prepare_commit(self.reader, *position)

    def prune(self) -> None:
        """Lets go what every cursor has passed, if that was asked for. In any thread."""
        if self._retention is None:
            return
        pruned = prune(self.reader.path, self.storage, self._retention)
        if pruned.slabs:
            _log.info("pruned %d slabs, up to address %d", pruned.slabs, pruned.end)

    def go_to(self, position: Position) -> None:
        """To be read again from there; what retention has removed meanwhile is a gap."""
        try:
            return_to(self.reader, *position)
        except AddressPruned:
            self.reader.seek("earliest")
            self.count_pruned(position)

    def _on_gap(self, gap: Gap) -> None:
        """The reader's ordinal is the one after the gap by now."""
        after, lost = self.reader.ordinal, gap.records_lost
        self.losses.met(gap, None if after is None or lost is None else after - lost)

    def count_pruned(self, position: Position) -> None:
        """Counts what retention has removed of what is still to be read from there on."""
        self.losses.pruned(pruned_from(self.reader, *position))

    def close(self) -> None:
        """Gives the cursor to the next."""
        self.losses.warn(at_once=True)
        self.reader.close()
