"""LogSource: the log that is forwarded: its reader and cursor, its losses, and pruning."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from aolog import Gap, Reader
from aolog.errors import AddressBeyondEnd, AddressPruned, CursorDiverged, CursorForeign, counted
from aolog.format.cursor_copy import CursorPosition
from aolog.format.slab import ADDRESS_END
from aolog.log.cursor_file import cursor_names
from aolog.log.retention import Retention, prune
from aolog.read.gaps import reported_elsewhere
from aolog.read.reader import view_of
from aolog.record import Position
from aolog.storage.storage import Storage
from bridge.config.names import BUFFER, REPLAY
from bridge.deliver.losses import LogLosses
from bridge.deliver.rate_limit import RateLimit
from bridge.deliver.transform import TransformedBatch, Transforms

if TYPE_CHECKING:
    from aolog.read.batch import Batch
    from bridge.deliver.forwarder_options import ForwarderOptions
    from bridge.kafka.cursor_record import CursorRecord

# The fixed cost of a batch, some hundred microseconds and a cold cache, is shared by its records: with
# batches four times as large a record of 1 KB took a tenth less.
READ_BYTES_MIN = 512 << 10
READ_BYTES_MAX = 4 << 20
READ_RECORDS = 4_000  # the work of one turn
LAST_SLAB = Retention(max_slabs=1)  # what pruning keeps of slabs that every cursor has passed

_log = logging.getLogger("bridge")


class LogSource:
    """One log. Not thread-safe, except for `prune` and what `committing` returns. Raises what Reader raises.
    transforms: of its routes; every batch is read through them, or through a replay's view."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        options: ForwarderOptions,
        *,
        storage: Storage | None = None,
        losses: LogLosses | None = None,  # what cannot be delivered; it may outlive the source
    ) -> None:
        self.cursor = options.cursor
        self.storage = storage or Storage()
        self.losses = losses or LogLosses(os.fspath(path), self.cursor)
        names = cursor_names(os.fspath(path), self.storage)
        if BUFFER in names and self.cursor not in {BUFFER, REPLAY}:
            _log.warning(
                "%s is the log of a Buffer, which sends it too: each message arrives twice; exclude the"
                " log, or use --cursor buffer when the program is gone for good",
                os.fspath(path),
            )
        self.reader = Reader(path, cursor=self.cursor, on_gap=self._on_gap, storage=self.storage)
        self.transforms: Transforms | None = None
        self._view = options.view
        self.rate_limit = RateLimit(
            records_per_s=options.records_per_second,
            bytes_per_s=options.bytes_per_second,
            shared=options.shared_limit,
        )
        self._record_bytes = READ_BYTES_MIN / READ_RECORDS
        self._prunes = options.prune

    @property
    def position(self) -> Position:
        """The position of the reader."""
        return view_of(self.reader).position

    def read_batch(self, timeout_s: float, bytes_max: int = READ_BYTES_MAX) -> Batch | None:
        """The next records: some thousand, at most bytes_max, and at most what may be sent in a second.
        None if none came in time. Raises what Reader raises."""
        records, burst_bytes = self.rate_limit.burst()
        size = self._record_bytes * READ_RECORDS
        size = max(READ_BYTES_MIN, min(READ_BYTES_MAX, size))
        size = min(size, bytes_max, burst_bytes, self._record_bytes * records)
        batch = self.reader.read_batch(int(size), timeout=timeout_s)
        if batch is None:
            return None
        self._record_bytes = sum(frame.size for frame in batch.frames) / len(batch)
        if self._view is not None:
            return TransformedBatch(batch.frames, list(map(self._view, batch)), {})
        return batch if self.transforms is None else self.transforms.batch(batch)

    def ordinal_at(self, address: int) -> int | None:
        """Records of the log before an address; None if unknown."""
        try:
            with Reader(self.reader.path, address, storage=self.storage) as reader:
                return reader.ordinal
        except (AddressPruned, AddressBeyondEnd):
            return None

    def epoch_at(self, position: Position) -> int:
        """The epoch in which a record there is; 0 in format 1."""
        return view_of(self.reader).to_store(position).epoch

    def end_of_epoch(self, epoch: int) -> int:
        """The address at which a later epoch begins; that of no record if none does."""
        log = view_of(self.reader).log

        def find() -> int:
            first = log.find(lambda header: header.epoch <= epoch)
            headers = ((i, log.header(i)) for i in range(first, len(log.bases)))
            later = (i for i, header in headers if header is not None and header.epoch > epoch)
            return next((log.bases[i] for i in later), ADDRESS_END)

        return log.listed(find)

    def lost_power(self) -> bool:
        """Whether a power cut may have shortened the log, and no writer has opened it since. Not known in format 1."""
        log = view_of(self.reader).log

        def find() -> bool:
            last = log.slab(len(log.bases) - 1)
            header = last.header
            if header is None or last.seal() is not None:
                return False
            return header.boot_id != self.storage.system.boot_id()

        return log.listed(find)

    def committing(self, position: Position) -> Callable[[], None]:
        """A function that makes the local cursor durable there, in any thread: see Reader."""
        return view_of(self.reader).prepare_commit(position)

    def prune(self) -> None:
        """Deletes slabs that every cursor has passed, if that is wanted. In any thread."""
        if not self._prunes:
            return
        pruned = prune(self.reader.path, self.storage, LAST_SLAB)
        if pruned.slabs:
            _log.info("pruned %s, up to address %d", counted(pruned.slabs, "slab"), pruned.end)

    def go_to(self, position: Position) -> None:
        """Reads again from there. Records that retention has removed meanwhile are a gap."""
        try:
            view_of(self.reader).return_to(position)
        except AddressPruned:
            self.reader.seek("earliest")
            self.count_pruned(position)

    def resume_position(self, record: CursorRecord | None, local: Position) -> Position:
        """Where to go on by the cluster's cursor record, or by the local cursor if that is ahead (it
        passed addresses without records, or was moved by hand). local: the committed position, as far
        as this machine knows. Raises CursorForeign, CursorDiverged if the record does not fit the log."""
        if record is None:
            return local
        address, ordinal, uuid, epoch, _, last = record
        reader = self.reader
        try:
            reader.end()  # lists the slabs anew
            cursor = CursorPosition(address, ordinal, uuid, epoch, protects=True)
            view_of(reader).resume_at(cursor, kept_outside=True)
            if last is not None and not self._has(*last, epoch):
                raise CursorDiverged(
                    f"at {last[0]} the log has another record than the one that was delivered: "
                    "it was restored from a backup",
                    path=reader.path,
                )
        except (CursorForeign, CursorDiverged) as error:
            raise type(error)(
                f"the cluster's cursor record does not fit the log: {error}; or this is the original, and "
                "a copy to which a writer has written was delivered since: then the copy goes on",
                hint="compare both; another --cursor starts from the beginning and sends all again",
                path=reader.path,
            ) from None
        return Position(address, ordinal) if address > local.address else local

    def _has(self, address: int, timestamp_us: int, epoch: int) -> bool:
        """Whether the log has that record, or lost it with everything that follows in its epoch."""
        with Reader(self.reader.path, on_gap=reported_elsewhere, storage=self.storage) as reader:
            try:
                reader.seek(address)
            except (AddressBeyondEnd, AddressPruned):
                return True
            batch = reader.read_batch(0)
            if batch is None or reader.gaps or batch.frames[0].epoch > epoch:
                return True
            record = next(iter(batch))
            return (record.address, record.timestamp or 0) == (address, timestamp_us)

    def _on_gap(self, gap: Gap) -> None:
        ordinal, lost = self.reader.ordinal, gap.records_lost
        # Otherwise the log's end is lost, and no slab follows it yet.
        if self.reader.tell() >= gap.end:
            ordinal = None if ordinal is None or lost is None else ordinal - lost
        self.losses.met(gap, ordinal)

    def count_pruned(self, position: Position) -> None:
        """Counts the unread records from there on that retention has removed."""
        self.losses.pruned(view_of(self.reader).pruned(position))

    def close(self) -> None:
        """Releases the cursor."""
        self.losses.warn()
        self.reader.close()
