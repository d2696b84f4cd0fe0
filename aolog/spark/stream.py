"""`readStream`: micro-batches between offsets.

An offset lists the logs that were read, and how far: in JSON `{name: [address, uuid, ended]}`, with sorted
keys, because Spark compares the text, and stores it in the checkpoint. A position never goes back, and
its address is a record's or the end. A log that comes is read from its beginning. When the query
restarts, a name may belong to another log, or to none. A log that is gone stays in the offset. If it may
have had more records, or another log has its name, that is a loss and reported.

One process on the driver's host calls these methods for as long as the query runs, `latestOffset` up to
90 times a second. So a log is opened only if its directory or its last slab changed, and the pause
between two looks is a multiple of the time that a look takes (watching.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from aolog.errors import AddressBeyondEnd, AddressPruned, UsageError, warn
from aolog.read.reader import Reader
from aolog.spark.batch_limits import share
from aolog.spark.planning import Span, check_names, partitions, where
from aolog.spark.reading import partition_of, pieces_in, read_pieces
from aolog.spark.shipping import parcel
from aolog.spark.watching import Watching

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pyarrow as pa

    from aolog.spark.listing import Listed
    from aolog.spark.options import Options

Offset = dict[str, Any]  # in the form that Spark stores


class LogPosition(NamedTuple):
    """A log was read up to the address. uuid: as in Listed. ended: the log is deleted, and all of it
    was read."""

    address: int
    uuid: str | None = None
    ended: bool = False

    def is_in(self, uuid: str | None) -> bool:
        """Whether a log with this UUID is the log that was read. True if either UUID is unknown."""
        return None in {self.uuid, uuid} or self.uuid == uuid


def position_in(log: Listed, address: int, before: LogPosition | None = None) -> LogPosition:
    """An address of this log. before: an earlier one, whose UUID counts if the log's is unknown now."""
    return LogPosition(address, log.uuid or (before and before.uuid))


def as_json(positions: Mapping[str, LogPosition]) -> Offset:
    """The offset as Spark stores it."""
    return {name: list(position) for name, position in sorted(positions.items())}


def from_json(offset: Offset) -> dict[str, LogPosition]:
    """The inverse of `as_json`; a plain address belongs to any log with that name."""
    return {
        name: LogPosition(found) if isinstance(found, int) else LogPosition(*found)
        for name, found in offset.items()
    }


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Picklable until the first call that returns an offset. `read` runs in tasks and keeps no state."""

    def __init__(self, options: Options, schema: pa.Schema) -> None:
        self._options = options
        self._schema = schema
        self._watching = Watching(options)
        self._target: dict[str, int] | None = None  # of Trigger.AvailableNow
        self._committed: dict[str, LogPosition] = {}
        self._whole: dict[str, LogPosition] = {}  # the end of each log's records at the last look

    # --- offsets ----------------------------------------------------------------------------

    def initialOffset(self) -> Offset:  # noqa: N802 -- Spark's name
        """Where a new query begins. If there is a cursor, it is at this position on return."""
        options, logs = self._options, self._watching.look(force=True)
        check_names(options, list(logs.values()), "startingOffsets", options.begin)
        names = ("startingOffsets", "startingTimestamp")
        begin = {
            name: position_in(log, where(log, options.begin, options.begin_us, names, options))
            for name, log in logs.items()
        }
        self._move_cursors(begin)  # backwards too: it may have served another query
        return as_json(begin)

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802 -- Spark's name
        """The end of the next batch. With failOnDataLoss, raises UsageError if a log with unread records
        may have been deleted or replaced."""
        logs, begins = self._watching.look(), from_json(start)
        ends = {
            name: position if name in logs else self._ended(name, position)
            for name, position in begins.items()
        }
        backlog: list[Span] = []
        new: dict[str, LogPosition] = {}
        for name, log in logs.items():
            before = self._resumed(log, ends.get(name))
            if before is not None:
                ends[name] = before
            since = log.bases[0] if before is None else before.address
            end = log.end if self._target is None else min(log.end, self._target.get(name, 0))
            more = since < end and self._watching.has_records(log, since, end)
            last = log.end if more or end < log.end else since
            self._whole[name] = position_in(log, last, before)
            if more:
                backlog.append(Span(log, since, end))
                if before is None:
                    new[name] = position_in(log, since)
        self._move_cursors(new, only_new=True)
        shared = share(backlog, *self._limits(limit))
        for name, address in shared.items():
            ends[name] = position_in(logs[name], address, ends.get(name))
        return as_json(ends)

    def _resumed(self, log: Listed, position: LogPosition | None) -> LogPosition | None:
        """Where reading resumes in a log; None if the log is new."""
        if position is None:
            return None
        if position.is_in(log.uuid):
            return position_in(log, position.address, position)
        if not position.ended:
            self._lost(
                f"{log.path} is another log than the one that was read up to address "
                f"{position.address}",
                "read the new one from its beginning",
            )
        return position_in(log, log.bases[0])

    def _ended(self, name: str, position: LogPosition) -> LogPosition:
        """The position in a deleted log."""
        if not (position.ended or self._was_whole(name, position)):
            self._lost(
                f"log {name!r} was deleted, and may have had records after address {position.address}, "
                "up to which it was read",
                "continue without it",
            )
        return position._replace(ended=True)

    def _was_whole(self, name: str, position: LogPosition) -> bool:
        """Whether all records of the log were read, as of the last look."""
        seen = self._whole.get(name)
        return seen is not None and seen.uuid == position.uuid and seen.address <= position.address

    def _limits(self, limit: ReadLimit) -> tuple[int | None, int | None]:
        """Records and bytes at most. Both options may be set; Spark passes one of them as the limit, or
        ReadAllAvailable if the trigger wants everything."""
        if isinstance(limit, ReadAllAvailable):
            return None, None
        options = self._options
        rows, size = options.max_records_per_trigger, options.max_bytes_per_trigger
        if isinstance(limit, ReadMaxRows):
            rows = limit.max_rows
        if isinstance(limit, ReadMaxBytes):
            size = limit.max_bytes
        return rows, size

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 -- Spark's name
        """The limit that the options set."""
        if self._options.max_records_per_trigger is not None:
            return ReadMaxRows(self._options.max_records_per_trigger)
        if self._options.max_bytes_per_trigger is not None:
            return ReadMaxBytes(self._options.max_bytes_per_trigger)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 -- Spark's name
        """The query reads what the logs hold now, and no more."""
        logs = self._watching.look(force=True)
        self._target = {name: log.end for name, log in logs.items()}

    def reportLatestOffset(self) -> Offset:  # noqa: N802 -- Spark's name
        """The ends of the logs, for the query's progress."""
        return as_json({n: position_in(log, log.end) for n, log in self._watching.look().items()})

    # --- batches ----------------------------------------------------------------------------

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        """The tasks of the batch between two offsets, the same at each call. With failOnDataLoss, raises
        UsageError if records of the batch are gone."""
        logs, begins = self._watching.look(), from_json(start)
        wanted = []
        for name, position in sorted(from_json(end).items()):
            log, before, until = logs.get(name), begins.get(name), position.address
            since = 0 if log is None else log.bases[0]
            if before is not None and before.is_in(position.uuid):
                since = before.address
            if since >= until:
                continue
            if log is None:
                self._lost(f"log {name!r} was deleted")
                continue
            if not position.is_in(log.uuid):
                self._lost(
                    f"{log.path} is another log than the batch's",
                    "leave out this log's part of the batch",
                )
                continue
            if since < log.bases[0]:
                self._lost(f"{log.path}: addresses {since} to {log.bases[0]} are pruned")
                since = log.bases[0]
            if since < until:
                wanted.append(Span(log, since, until))
        options = self._options
        cut = partitions(wanted, options.partition_bytes, options.min_partitions)
        return [partition_of(pieces) for pieces in cut]

    def _lost(self, what: str, instead: str = "skip it") -> None:
        if self._options.fail_on_loss:
            raise UsageError(f"option failOnDataLoss: {what}", hint=f"set it to false to {instead}")
        warn("%s; failOnDataLoss is false: %s", what, instead)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Batches of the partition's records. Raises GapFound, StorageError."""
        return read_pieces(pieces_in(partition), self._schema, self._options)

    # --- the cursor -------------------------------------------------------------------------

    def commit(self, end: Offset) -> None:
        """The cursor is durable at the offset on return, so retention may delete the slabs before it.
        Raises CursorLocked, CursorDiverged, CursorForeign, StorageError."""
        self._move_cursors(from_json(end))

    def _move_cursors(self, positions: dict[str, LogPosition], *, only_new: bool = False) -> None:
        for name, position in positions.items():
            self._move_cursor(name, position, only_new=only_new)

    def _move_cursor(self, name: str, position: LogPosition, *, only_new: bool) -> None:
        log: Listed | None = self._watching.known.get(name)
        cursor = self._options.cursor
        if cursor is None or log is None or self._committed.get(name) == position:
            return
        if not position.is_in(log.uuid):
            return
        with Reader(log.path, cursor=cursor) as reader:
            if not (only_new and reader.has_cursor_position):
                try:
                    reader.seek(position.address)
                except AddressPruned:  # nothing left to protect
                    return
                except AddressBeyondEnd as error:  # lost with the page cache, or replaced
                    warn("%s: the offset is past the log's end, so its cursor stays", error)
                    return
                reader.commit()
                self._committed[name] = position

    def stop(self) -> None:
        """Closes all files."""
        self._watching.close()

    def __reduce__(self) -> Any:
        return parcel(StreamReader, self._options, self._schema)
