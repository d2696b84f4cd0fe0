"""Undelivered messages on disk, in order: a log and its cursor."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

from aolog import Gap, Reader, Retention, Writer
from aolog.errors import AddressPruned, AologError, NotALog, UsageError
from aolog.format.native.inlet import Door
from aolog.log.cursor_file import cursor_names, read_position
from aolog.log.retention import prune
from aolog.read.gaps import reported_elsewhere
from aolog.read.reader import view_of
from aolog.storage.storage import DIRECTORY_MODE, Storage
from aolog.write.options import SLAB_BYTES, check_retention
from bridge.client.buffer.provider import Message
from bridge.config.names import BUFFER
from bridge.deliver.losses import LogLosses

READ_BYTES = 512 << 10  # a batch, whose delivery is waited for: 3,500 messages of 100 bytes
MAX_RECORD_BYTES = 64 << 20  # value, key, headers and topic of a message, with overhead
# What is kept in memory too until it is flushed, for `recover`, and a frame more. The writer flushes as often.
UNFLUSHED_BYTES = 1 << 20
UNFLUSHED_MESSAGES = 10_000
FLUSH_SECONDS = 0.1  # how much younger than its frame's time a message that joined may be
_DELIVERED = Retention(max_slabs=1)
_message = tuple.__new__  # a named tuple's own constructor takes three times as long


def require_own(path: str | os.PathLike[str], storage: Storage) -> None:
    """Raises UsageError for a log with records that no Buffer appended. Changes nothing."""
    try:
        reader = Reader(path, on_gap=reported_elsewhere, storage=storage)
    except NotALog:
        return
    with reader:
        known = BUFFER in cursor_names(reader.path, storage)
        if known:
            view_of(reader).resume_at(read_position(reader.path, BUFFER, storage))
        record = reader.read()
        if record is not None and not (known and record.topic is not None):
            raise UsageError(
                "it is another program's log: its records were not sent by a Buffer",
                hint="name another directory for the buffer",
                path=reader.path,
            )


class Backlog:
    """Any thread may call `append`, `flush` and `recover`, under a lock of the caller; one thread the
    rest. `join` and `keep` need no lock. retention: of the log; None: it may fill the disk. Raises what Writer and
    Reader raise.

    join: as `append`, of value, key, None, None and topic: the message has the time of its frame. Returns None, and
    nothing has changed, if that needs `append`. keep: the caller keeps the message that joined. Until it did, the
    message is not counted, and lost if an interrupt leaves the writer failed."""

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
        # Not here: `append` raises RetentionFull, and the caller waits after it released its locks.
        self.blocks = retention.when_full == "block"
        if self.blocks:
            retention = retention._replace(when_full="error")
        self._open_writer = partial(
            Writer,
            path,
            retention=retention,
            mode=mode,
            storage=self._storage,
            max_record_bytes=MAX_RECORD_BYTES,
            flush_seconds=FLUSH_SECONDS,
        )
        # Messages that were appended since the last flush.
        self._unflushed: list[tuple[Any, ...]] = []
        self._again: deque[tuple[Any, ...]] = deque()  # of those, what `recover` has to append
        self._door: Door | None = None
        self._flushed = 0  # messages that were appended before that
        self.lost = 0  # messages that retention or damage removed before they were delivered
        self._losses = LogLosses()
        with ExitStack() as opened:
            self._begin()
            opened.callback(self._close_writer)
            self._reader = Reader(path, cursor=BUFFER, on_gap=self._on_gap, storage=self._storage)
            opened.callback(self._reader.close)
            self._reader.commit()  # from now on the cursor protects what it has not passed
            opened.pop_all()
        self._freed_to = self._reader.tell()
        if (lost := self._reader.pruned()) is not None:  # under an earlier process
            self._on_gap(lost)

    def _begin(self) -> None:
        self._writer = self._open_writer()
        self._flushed_end = self._writer.end

    def door(self, otherwise: Callable[..., None], wake: Callable[[], None]) -> Door:
        """Through it plain messages are appended without the caller's lock, until `recover`. They have the time of
        their frame."""
        self._door = Door(self._writer, self._unflushed, otherwise, wake)
        self._door.room = UNFLUSHED_BYTES
        return self._door

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
    def accepted(self) -> int:
        """Messages that were appended since it was opened."""
        return self._flushed + len(self._unflushed)

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
        unwritten = self._writer.end - self._flushed_end
        is_full = self._door is not None and self._door.room <= 0
        if is_full or unwritten >= UNFLUSHED_BYTES or len(self._unflushed) >= UNFLUSHED_MESSAGES:
            self.flush()
        topic, value, key, headers, timestamp_us = message
        address = self._writer.append(
            value, key=key, headers=headers, timestamp=timestamp_us, topic=topic
        )
        self._unflushed.append(message)
        return address

    def flush(self) -> None:
        """Appended messages survive a crash of the process on return."""
        count = len(self._unflushed)  # others may join meanwhile
        self._flushed_end = self._writer.flush()
        del self._unflushed[:count]
        if self._door is not None:
            self._door.room = UNFLUSHED_BYTES
        self._flushed += count

    def recover(self) -> None:
        """If an interrupt left the writer failed: opens the log again, which recovers it, and appends
        again what was not flushed. Some of it may then be in the log twice. After StorageFull call
        it again: it goes on with the rest."""
        try:
            self._writer.flush()
        except UsageError:
            self._again = deque(self._unflushed)
            self._close_writer()
            self._begin()
        while self._again:
            topic, value, key, *more = self._again[0]  # no more: it came by the door
            headers, timestamp_us = more or ((), None)
            self._writer.append(
                value, key=key, headers=headers, timestamp=timestamp_us, topic=topic
            )
            self._again.popleft()
        self.flush()

    def read(self) -> dict[int, Message]:
        """The next messages by their addresses, in order; empty if nothing more was flushed."""
        records = self._reader.read_batch(READ_BYTES) or ()
        return {
            address: _message(Message, (topic or "", value, key, headers, timestamp_us or 0))
            for address, timestamp_us, key, value, headers, topic in records
        }

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
        """Flushes, syncs and closes. The next Backlog reads again what was not committed. After
        StorageFull call it again."""
        try:
            if self._again:
                self.recover()
            self._writer.close()
        finally:
            self._reader.close()
