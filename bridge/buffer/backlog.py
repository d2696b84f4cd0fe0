"""The backlog: messages on disk, in order, until they are delivered. A log and its cursor."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aolog import Gap, Reader, Retention, Writer
from aolog.errors import AddressPruned, AologError, NotALog, UsageError
from aolog.log.cursor_file import cursor_names, read_position
from aolog.log.retention import check_retention, prune
from aolog.read.reader import resume_at
from aolog.storage.storage import DIRECTORY_MODE, Storage
from bridge.buffer.provider import Message
from bridge.deliver.losses import LogLosses

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

__all__ = ["Backlog", "require_own"]

CURSOR = "buffer"
READ_BYTES = 256 << 10
SLAB_BYTES = 64 << 20
MAX_RECORD_BYTES = 64 << 20  # of a message: value, key, headers, topic, and a little
_DELIVERED = Retention(max_slabs=1)


def require_own(path: str | os.PathLike[str], storage: Storage) -> None:
    """Raises UsageError for a log with records that no Buffer put there. Changes nothing."""
    try:
        reader = Reader(path, storage=storage)
    except NotALog:
        return
    with reader:
        known = CURSOR in cursor_names(reader.path, storage)
        if known:
            resume_at(reader, read_position(reader.path, CURSOR, storage))
        record = reader.read()
        if record is not None and not (known and record.topic is not None):
            raise UsageError(
                "it is another program's log: its records were not sent by a Buffer",
                hint="name a directory of its own for what waits",
                path=reader.path,
            )


class Backlog:
    """Appends and drains. `append` and `flush` may be called by any thread, the rest by one.

    retention: of the log; None: it may fill the disk. Where it says to block, `append` raises
    RetentionFull all the same, and whoever has locks waits without them (`waits` is True). lost:
    messages that retention removed before they were delivered, or that damage took. Raises what
    Writer and Reader raise.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        retention: Retention | None = None,
        mode: int = DIRECTORY_MODE,
        storage: Storage | None = None,
    ) -> None:
        self._storage = storage or Storage()
        retention = check_retention(retention)
        self.waits = retention.when_full == "block"
        if self.waits:
            bounds = retention.max_bytes, retention.max_age_s, retention.max_slabs
            retention = Retention(*bounds, when_full="error")
        slab_bytes = SLAB_BYTES  # a total is let go in eighths, not in halves
        if retention.max_bytes is not None:
            slab_bytes = max(1, min(slab_bytes, retention.max_bytes // 8))
        self._writer = Writer(
            path,
            slab_bytes=slab_bytes,
            retention=retention,
            mode=mode,
            storage=self._storage,
            max_record_bytes=MAX_RECORD_BYTES,
        )
        self.lost = 0
        self._losses = LogLosses()
        try:
            self._reader = Reader(path, cursor=CURSOR, on_gap=self._on_gap, storage=self._storage)
            try:
                self._reader.commit()  # from now on it protects what it has not passed
            except BaseException:
                self._reader.close()
                raise
        except BaseException:
            self._free_log()
            raise
        self._freed_to = self._reader.tell()
        if (lost := self._reader.pruned()) is not None:  # by an earlier process; `lag` excludes it
            self._on_gap(lost)

    def _on_gap(self, gap: Gap) -> None:
        """It may meet one again: where it went back, or opened in front of it."""
        before = self._losses.records
        self._losses.add(gap)
        self.lost += self._losses.records - before

    @property
    def lag(self) -> int:
        """Messages that are still to be read, those in the writer's memory not counted."""
        return self._reader.lag().records or 0

    @property
    def address(self) -> int:
        """Of the next message that is read."""
        return self._reader.tell()

    def append(self, message: Message) -> int:
        """In memory on return; its address."""
        return self._writer.append(
            message.value,
            key=message.key,
            headers=message.headers,
            timestamp=message.timestamp_us,
            topic=message.topic,
        )

    def flush(self) -> None:
        """What was appended survives a crash of the process."""
        self._writer.flush()

    def read(self) -> list[tuple[int, Message]]:
        """The next messages with their addresses; none if nothing more was flushed."""
        batch = self._reader.read_batch(READ_BYTES)
        if batch is None:
            return []
        return [
            (r.address, Message(r.topic or "", r.value, r.key, r.headers, r.timestamp or 0))
            for r in batch
        ]

    def commit(self) -> None:
        """What was read is delivered: durable on return."""
        self._reader.commit()
        if self._reader.tell() - self._freed_to >= SLAB_BYTES:
            self.free()

    def go_back(self, addresses: Sequence[int]) -> None:
        """To the first of some messages that were read, and are not delivered. Those that retention
        removed are lost; where it removed all it stays, and the next read tells what else is."""
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

    def free(self) -> None:
        """Lets go the slabs that every cursor has passed."""
        prune(self._reader.path, self._storage, _DELIVERED)
        self._freed_to = self._reader.tell()

    def give_up(self) -> None:
        """Gives the log free, where nothing was appended. Never raises."""
        self._free_log()
        self._reader.close()

    def _free_log(self) -> None:
        try:
            self._writer.close()
        except AologError:  # it would stay open
            self._writer.give_up()

    def close(self) -> None:
        """Flushes, syncs and closes; what was read and not committed is read again next time."""
        try:
            self._writer.close()
        finally:
            self._reader.close()
