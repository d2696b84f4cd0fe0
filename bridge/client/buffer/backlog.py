"""Undelivered messages on disk, in order: a log and its cursor."""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING

from aolog import Gap, Reader, Retention, Writer
from aolog.errors import AddressPruned, AologError, NotALog, UsageError
from aolog.log.cursor_file import cursor_names, read_position
from aolog.log.retention import check_retention, prune
from aolog.read.gaps import reported_elsewhere
from aolog.read.reader import view_of
from aolog.storage.storage import DIRECTORY_MODE
from aolog.write.options import SLAB_BYTES
from bridge.client.buffer.provider import Message
from bridge.deliver.losses import LogLosses

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    from aolog.storage.storage import Storage

CURSOR = "buffer"
READ_BYTES = 256 << 10
MAX_RECORD_BYTES = 64 << 20  # value, key, headers and topic of a message, with overhead
# What is kept in memory too until it is flushed, for `recover`. The writer flushes as often.
UNFLUSHED_BYTES = 1 << 20
UNFLUSHED_MESSAGES = 10_000
_DELIVERED = Retention(max_slabs=1)


def require_own(path: str | os.PathLike[str], storage: Storage) -> None:
    """Raises UsageError for a log with records that no Buffer appended. Changes nothing."""
    try:
        reader = Reader(path, on_gap=reported_elsewhere, storage=storage)
    except NotALog:
        return
    with reader:
        known = CURSOR in cursor_names(reader.path, storage)
        if known:
            view_of(reader).resume_at(read_position(reader.path, CURSOR, storage))
        record = reader.read()
        if record is not None and not (known and record.topic is not None):
            raise UsageError(
                "it is another program's log: its records were not sent by a Buffer",
                hint="name another directory for the buffer",
                path=reader.path,
            )


class Backlog:
    """Any thread may call `append`, `flush` and `recover`, under a lock of the caller; one thread the
    rest.

    retention: of the log; None: it may fill the disk. A retention that blocks does not block
    here: `append` raises RetentionFull, and the caller waits after it released its locks (`blocks`
    is True). lost: messages that retention or damage removed before they were delivered. Raises
    what Writer and Reader raise.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        retention: Retention | None = None,
        mode: int = DIRECTORY_MODE,
        storage: Storage,
    ) -> None:
        self._storage = storage
        retention = check_retention(retention)
        self.blocks = retention.when_full == "block"
        if self.blocks:
            bounds = retention.max_bytes, retention.max_age_s, retention.max_slabs
            retention = Retention(*bounds, when_full="error")
        self._open_writer = partial(
            Writer,
            path,
            retention=retention,
            mode=mode,
            storage=self._storage,
            max_record_bytes=MAX_RECORD_BYTES,
        )
        self._unflushed: list[Message] = []  # appended since the last flush
        self._unflushed_bytes = 0
        self.lost = 0
        self._losses = LogLosses()
        with ExitStack() as opened:
            self._writer = self._open_writer()
            opened.callback(self._close_writer)
            self._reader = Reader(path, cursor=CURSOR, on_gap=self._on_gap, storage=self._storage)
            opened.callback(self._reader.close)
            self._reader.commit()  # from now on the cursor protects what it has not passed
            opened.pop_all()
        self._freed_to = self._reader.tell()
        if (lost := self._reader.pruned()) is not None:  # under an earlier process
            self._on_gap(lost)

    def _on_gap(self, gap: Gap) -> None:
        before = self._losses.records
        self._losses.add(gap)  # counts a gap once, also if the reader goes back over it
        self.lost += self._losses.records - before

    @property
    def is_empty(self) -> bool:
        """Whether the cursor is at the end of the log."""
        lag = self._reader.lag()
        return lag.records == 0 or lag.bytes == 0

    @property
    def lag(self) -> int:
        """Messages that are still to be read, without those in the writer's memory."""
        return self._reader.lag().records or 0

    @property
    def address(self) -> int:
        """Of the next message that is read."""
        return self._reader.tell()

    def append(self, message: Message) -> int:
        """Returns its address. The message is in memory. Raises before it is accepted."""
        unflushed = self._unflushed
        if self._unflushed_bytes >= UNFLUSHED_BYTES or len(unflushed) >= UNFLUSHED_MESSAGES:
            self.flush()
            unflushed = self._unflushed
        topic, value, key, headers, timestamp_us = message
        address = self._writer.append(
            value, key=key, headers=headers, timestamp=timestamp_us, topic=topic
        )
        unflushed.append(message)
        self._unflushed_bytes += len(value or b"")
        return address

    def flush(self) -> None:
        """Appended messages survive a crash of the process on return."""
        self._writer.flush()
        self._unflushed = []
        self._unflushed_bytes = 0

    def recover(self) -> None:
        """If an interrupt left the writer failed: opens the log again, which recovers it, and appends
        again what was not flushed. Some of it may then be in the log twice."""
        try:
            self._writer.flush()
        except UsageError:
            self._close_writer()
            self._writer = self._open_writer()
            unflushed, self._unflushed = self._unflushed, []
            try:
                for message in unflushed:
                    self.append(message)
                self.flush()
            except BaseException:  # then all of it, once more
                self._unflushed = unflushed
                raise

    def read(self) -> list[tuple[int, Message]]:
        """The next messages with their addresses; empty if nothing more was flushed."""
        batch = self._reader.read_batch(READ_BYTES)
        if batch is None:
            return []
        return [
            (r.address, Message(r.topic or "", r.value, r.key, r.headers, r.timestamp or 0))
            for r in batch
        ]

    def commit(self, *, free: bool = False) -> None:
        """Messages that were read are delivered: durable on return. free: deletes the slabs before
        the cursor; otherwise that happens once a slab."""
        self._reader.commit()
        if free or self._reader.tell() - self._freed_to >= SLAB_BYTES:
            prune(self._reader.path, self._storage, _DELIVERED)
            self._freed_to = self._reader.tell()

    def go_back(self, addresses: Sequence[int]) -> None:
        """Goes back to the first of these messages, which were read and are not delivered. Counts
        those that retention removed as lost. If it removed them all, the reader stays, and the next
        read reports other gaps."""
        removed, first = 0, 0
        for address in addresses:
            if address >= first:
                try:
                    self._reader.seek(address)
                    break
                except AddressPruned as error:
                    first = int(str(error.details["first"]))
            removed += 1
        self.lost += removed

    def give_up(self) -> None:
        """Releases the log after a failed opening. Never raises."""
        self._close_writer()
        self._reader.close()

    def _close_writer(self) -> None:
        try:
            self._writer.close()
        except AologError:  # it would stay open
            self._writer.give_up()

    def close(self) -> None:
        """Flushes, syncs and closes. The next Backlog reads again what was not committed."""
        try:
            self._writer.close()
        finally:
            self._reader.close()
