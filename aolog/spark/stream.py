"""`readStream`: micro-batches between offsets.

An offset is JSON, an address by log, keys sorted: Spark compares texts. It never goes back, and
every address in it is a record's or the end. A log that comes is read from its beginning. One that
goes stays in the offset.

One process on the driver's host calls these for as long as the query runs, the latest offset up to
90 times a second. So logs are looked at anew only where a directory or a last slab changed, and not
before some multiple of the time that the last look took.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from aolog.errors import AddressBeyondEnd, AddressPruned, UsageError
from aolog.notices import warn
from aolog.reader import Reader
from aolog.spark.datasource import Pieces
from aolog.spark.pacing import share
from aolog.spark.planning import Span, check_names, partitions, where
from aolog.spark.reading import Reading, read_pieces
from aolog.spark.watching import Watching

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from aolog.spark.listing import Listed
    from aolog.spark.options import Options

__all__ = ["StreamReader"]

Offset = dict[str, int]


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Picklable until it is first asked for an offset; `read` runs in tasks and keeps no state."""

    def __init__(self, options: Options, schema: pa.Schema) -> None:
        self._options = options
        self._schema = schema
        self._watching = Watching(options)
        self._target: Offset | None = None  # of Trigger.AvailableNow
        self._committed: Offset = {}
        self._uuids: dict[str, bytes] = {}

    # --- offsets ----------------------------------------------------------------------------

    def initialOffset(self) -> Offset:  # noqa: N802 -- Spark's name
        """Where a new query begins. The cursor, if one is named, stands there on return."""
        options, logs = self._options, self._watching.look(force=True)
        check_names(options, list(logs.values()), "startingOffsets", options.begin)
        names = ("startingOffsets", "startingTimestamp")
        begin = {
            name: where(log, options.begin, options.begin_us, names, options)
            for name, log in logs.items()
        }
        for name, address in begin.items():
            self._move_cursor(name, address)  # back, too: where it stands may be another query's
        return begin

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802 -- Spark's name
        """How far the next batch goes."""
        logs = self._watching.look()
        ends = dict(start)
        backlog: list[Span] = []
        for name, log in logs.items():
            self._check_same(log)
            end = log.end if self._target is None else min(log.end, self._target.get(name, 0))
            since = start.get(name, log.bases[0])
            if end <= since or not self._watching.has_records(log, since, end):
                continue
            backlog.append(Span(log, since, end))
        self._protect({span.log.name: span.since for span in backlog if span.log.name not in start})
        ends |= share(backlog, *self._limits(limit))
        return dict(sorted(ends.items()))

    def _check_same(self, log: Listed) -> None:
        """Raises UsageError where the log was made anew since the last look, and failOnDataLoss is
        set: what it holds before the offset will not be read. An offset does not tell logs apart, so
        between two runs of a query this goes unseen."""
        if log.uuid is not None:
            before = self._uuids.setdefault(log.name, log.uuid)
            if before != log.uuid:
                self._lost(f"{log.path} is another log than it was")
                self._uuids[log.name] = log.uuid

    def _limits(self, limit: ReadLimit) -> tuple[int | None, int | None]:
        """Records and bytes. Both may be set, and a limit is one of them: where it is none, the
        trigger wants all."""
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
        """As the options say."""
        if self._options.max_records_per_trigger is not None:
            return ReadMaxRows(self._options.max_records_per_trigger)
        if self._options.max_bytes_per_trigger is not None:
            return ReadMaxBytes(self._options.max_bytes_per_trigger)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 -- Spark's name
        """What is there now is all that the query will read."""
        self._target = self._latest(force=True)

    def reportLatestOffset(self) -> Offset:  # noqa: N802 -- Spark's name
        """For the query's progress: where the logs end."""
        return self._latest()

    def _latest(self, *, force: bool = False) -> Offset:
        return {name: log.end for name, log in self._watching.look(force=force).items()}

    # --- batches ----------------------------------------------------------------------------

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        """The tasks of the batch between two offsets, the same whenever it is asked. Raises
        UsageError where what the batch needs is gone and failOnDataLoss is set."""
        logs = self._watching.look()
        wanted = []
        for name, until in sorted(end.items()):
            log = logs.get(name)
            since = start.get(name, 0 if log is None else log.bases[0])
            if since >= until:
                continue
            if log is None:
                self._lost(f"log {name!r} is gone")
                continue
            if since < log.bases[0]:
                self._lost(f"{log.path}: addresses {since} to {log.bases[0]} are pruned")
                since = log.bases[0]
            if since < until:
                wanted.append(Span(log, since, until))
        options = self._options
        cut = partitions(wanted, options.partition_bytes, options.min_partitions)
        return [Pieces(pieces) for pieces in cut]

    def _lost(self, what: str) -> None:
        if self._options.fail_on_loss:
            raise UsageError(
                f"option failOnDataLoss: {what}", hint="set it to false to read on behind it"
            )
        warn("%s: it is read on behind it", what)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Batches of the partition's records. Raises GapFound, StorageError."""
        options = self._options
        how = Reading(self._schema, options.fail_on_loss, options.fail_on_corruption)
        return read_pieces(getattr(partition, "pieces", ()), how)

    # --- the cursor -------------------------------------------------------------------------

    def commit(self, end: Offset) -> None:
        """The cursor stands at the offset on return, durable, so that retention may free what lies
        before. Raises CursorLocked, CursorDiverged, CursorForeign, StorageError."""
        for name, address in end.items():
            self._move_cursor(name, address)

    def _protect(self, begin: Offset) -> None:
        for name, address in begin.items():
            self._move_cursor(name, address, only_new=True)

    def _move_cursor(self, name: str, address: int, *, only_new: bool = False) -> None:
        log: Listed | None = self._watching.known.get(name)
        cursor = self._options.cursor
        if cursor is None or log is None or self._committed.get(name) == address:
            return
        with Reader(log.path, cursor=cursor) as reader:
            if not (only_new and reader.has_cursor_position):
                try:
                    reader.seek(address)
                except AddressPruned:  # nothing is left to protect
                    return
                except AddressBeyondEnd as error:  # lost with the page cache, or made anew
                    warn("%s: the offset is behind what is there, so its cursor stays", error)
                    return
                reader.commit()
                self._committed[name] = address

    def stop(self) -> None:
        """Gives all files free."""
        self._watching.close()

    def __getstate__(self) -> dict[str, Any]:
        return {"_options": self._options, "_schema": self._schema}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["_options"], state["_schema"])  # type: ignore[misc]  # a fresh one
