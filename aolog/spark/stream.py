"""`readStream`: micro-batches between offsets.

An offset lists the logs that were read, and how far (positions.py); Spark stores it in the checkpoint. A
position never goes back, and its address is a record's or the end. A log that appears later is read
from its beginning. After a restart of the query logs may have other names, and a name may belong to another
log, or to none. A log that no longer exists is removed from the offset. The query reports a loss if that log
may have had more records, or if another log has its name. What it finds lost is in the plan of a batch:
that batch's tasks count it, and make a row of it if the options ask for gaps.

One process on the driver's host calls these methods for as long as the query runs, `latestOffset` up to
90 times a second. So a log is opened only if its directory or its last slab changed, and the pause
between two looks is a multiple of the time that a look takes (watching.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from aolog.errors import AddressBeyondEnd, AddressPruned, UsageError, records_lost, warn
from aolog.log.directory import Log
from aolog.read.reader import Reader
from aolog.record import Gap
from aolog.spark.backlog import Backlog, Loss
from aolog.spark.batch_delay import BatchDelay
from aolog.spark.batch_limits import share
from aolog.spark.listing import Listed, is_wanted, some
from aolog.spark.planning import Span, check_names, lost_span, partitions, where
from aolog.spark.positions import (
    LogPosition,
    as_json,
    by_present_name,
    from_json,
    located,
    position_in,
    recognised,
    records_between,
)
from aolog.spark.reading import partition_of, pieces_in, read_pieces
from aolog.spark.shipping import parcel
from aolog.spark.watching import Watching
from aolog.storage.storage import Storage

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pyarrow as pa

    from aolog.record import GapReason
    from aolog.spark.options import Options
    from aolog.spark.positions import Offset


def _absent(name: str) -> Listed:
    """In place of a log that is not there."""
    return Listed(name, name, (0,), 0, None, has_headers=True, topic=None)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Picklable until the first call that returns an offset. `read` runs in tasks and keeps no state."""

    def __init__(self, options: Options, schema: pa.Schema) -> None:
        self._options = options
        self._schema = schema
        self._watching = Watching(options)
        self._delay = BatchDelay(options)
        self._target: dict[str, int] | None = None  # of Trigger.AvailableNow
        self._unselected: set[str] = set()  # names of logs that were warned of
        self._committed: dict[str, LogPosition] = {}
        self._backlog = Backlog()
        self._next: dict[str, LogPosition] = {}  # the end of the next batch
        self._whole: dict[str, LogPosition] = {}  # the end of each log's records at the last look
        # Losses that no batch has reported yet, by the position of the log at which that batch begins.
        self._noted: dict[tuple[str, int], Gap] = {}

    # --- offsets ----------------------------------------------------------------------------

    def initialOffset(self) -> Offset:  # noqa: N802 -- Spark's name
        """Where a new query begins. If there is a cursor, it is at this position on return."""
        options, logs = self._options, self._watching.look(force=True)
        check_names(options, list(logs.values()))
        begin: dict[str, LogPosition] = {}
        for name, log in logs.items():
            address, lost = where(log, options, "starting")
            begin[name] = located(log, address)
            if lost is not None:
                self._backlog.lost(Loss(name, lost))
                self._noted[name, address] = lost
        self._next = begin
        self._move_cursors(begin)  # backwards too: it may have served another query
        return as_json(begin)

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802 -- Spark's name
        """The end of the next batch. With failOnDataLoss, raises UsageError if a log with unread records
        may have been deleted or replaced."""
        logs, begins = self._watching.look(), from_json(start)
        ends = self._resumed(begins, logs)
        backlog: list[Span] = []
        new: dict[str, LogPosition] = {}
        whole: dict[str, LogPosition] = {}
        for name, log in logs.items():
            before = ends.get(name)
            begin = before or position_in(log, log.bases[0])
            since, end = begin.address, self._end(log)
            more = since < end and self._watching.has_records(log, since, end, begin.ordinal)
            if more or end < log.end or before is None:
                whole[name] = position_in(log, log.end, None, before)
            else:
                whole[name] = before
            if more:
                # `partitions` reports what is pruned.
                backlog.append(Span(log, since, end, begin.ordinal))
                if before is None:
                    new[name] = begin
        self._whole = whole
        self._move_cursors(new, only_new=True)
        if self._may_wait(limit) and self._delay.holds(backlog, ends):
            backlog = []
        for name, (until, ordinal) in share(backlog, *self._limits(limit)).items():
            ends[name] = position_in(logs[name], until, ordinal, ends.get(name))
        if backlog:  # there is a batch: a change of the offset causes one
            for name in ends.keys() & logs.keys():
                at_end = ends[name].address >= whole[name].address
                ends[name] = ends[name]._replace(closed=at_end and logs[name].closed)
        self._next = ends
        return as_json(ends)

    def _end(self, log: Listed) -> int:
        """The end up to which the query may read the log."""
        if self._target is None:
            return log.end
        return min(log.end, self._target.get(log.name, 0))

    def _resumed(
        self, begins: Mapping[str, LogPosition], logs: Mapping[str, Listed]
    ) -> dict[str, LogPosition]:
        """The positions from which reading goes on, by the logs' present names. Those of logs that may be
        read again stay too: logs that the options exclude, and logs of a path that is away."""
        watching, names = self._watching, recognised(begins, logs)
        found: dict[str, LogPosition] = {}
        gone: list[str] = []
        replaced: list[str] = []
        finished: list[str] = []
        for name, position in begins.items():
            if name in names:
                log = logs[names[name]]
                uuid = log.uuid or position.uuid
                found[log.name] = position._replace(uuid=uuid, ended=False)
                continue
            if name in watching.unselected:
                self._warn_unselected(name, position)
                found[name] = position
                continue
            if watching.is_away and name not in logs:
                found[name] = position._replace(ended=True)
            if position.ended or not is_wanted(name, self._options):
                continue
            if name in logs:
                replaced.append(name)
            elif not self._was_whole(name, position):
                gone.append(name)
            elif self._seen_end(name, position) is None:
                finished.append(name)
        losses = [self._rest(name, begins[name]) for name in gone]
        if (gone or finished) and not (found or self._whole):
            self._report_another_root(gone + replaced + finished, losses)
        elif gone:
            self._report_gone(gone, losses)
        if finished:
            warn(
                "not below %s any more: %s; all their records were read, and their writers had closed them",
                self._where(),
                some(sorted(map(repr, finished))),
            )
        for name in replaced:
            self._lost(
                f"{logs[name].path} is another log than the one that was read up to address "
                f"{begins[name].address}",
                "set it to false to read the new one from its beginning",
                self._rest(name, begins[name], "foreign"),
            )
        return found

    def _rest(self, name: str, position: LogPosition, reason: GapReason = "missing") -> Loss:
        """What a log that is away had after the position, as of the last look. The next batch reports it."""
        seen = self._seen_end(name, position)
        end = position.address if seen is None else max(position.address, seen.address)
        records = None if seen is None else records_between(position, seen)
        self._noted[name, position.address] = gap = Gap(position.address, end, reason, records)
        return Loss(name, gap)

    def _warn_unselected(self, name: str, position: LogPosition) -> None:
        if name not in self._unselected:
            self._unselected.add(name)
            warn(
                "log %r is no longer selected by %s; its position, address %s, stays in the checkpoint, and "
                "reading continues there if it is selected again",
                name,
                self._selects(),
                position.address,
            )

    def _selects(self) -> str:
        return "subscribe" if self._options.subscribe is not None else "subscribePattern"

    def _report_another_root(self, names: list[str], losses: list[Loss]) -> None:
        """No log of the checkpoint is there, and this query has not seen one of them."""
        self._lost(
            f"no log of the checkpoint ({some(sorted(map(repr, names)))}) is below {self._where()}",
            "load the paths of before, use another checkpointLocation, or set it to false to read what is "
            "here from the beginning",
            *losses,
        )

    def _report_gone(self, names: list[str], losses: list[Loss]) -> None:
        which = "log {} is" if len(names) == 1 else "logs {} are"
        self._lost(
            f"{which.format(some(sorted(map(repr, names))))} not below {self._where()}: deleted, moved, or "
            "of another path, perhaps with records that were not read",
            "load them where they are now, or set it to false to go on without them",
            *losses,
        )

    def _where(self) -> str:
        return some(list(self._options.paths))

    def _was_whole(self, name: str, position: LogPosition) -> bool:
        """Whether all records of the log were read, as of the last look; or, if this query has not seen it,
        when its writer had closed it."""
        seen = self._seen_end(name, position)
        return position.closed if seen is None else seen.address <= position.address

    def _seen_end(self, name: str, position: LogPosition) -> LogPosition | None:
        """The end of the log's records at the last look; None if this query has not seen the log."""
        seen = self._whole.get(name)
        return seen if seen is not None and seen.uuid == position.uuid else None

    def _may_wait(self, limit: ReadLimit) -> bool:
        """A query that ends at what is there now never waits."""
        return self._target is None and not isinstance(limit, ReadAllAvailable)

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
        if self._options.min_records_per_trigger is not None:
            return ReadMinRows(self._options.min_records_per_trigger)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 -- Spark's name
        """The query reads what the logs hold now, and no more."""
        logs = self._watching.look(force=True)
        self._target = {name: log.end for name, log in logs.items()}

    def reportLatestOffset(self) -> Offset:  # noqa: N802 -- Spark's name
        """The ends, the lag and the loss of the logs, for the query's progress (backlog.py)."""
        return self._backlog.report(self._watching.look(), self._next, self._watching)

    # --- batches ----------------------------------------------------------------------------

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        """The tasks of the batch between two offsets, the same at each call. With failOnDataLoss, raises
        UsageError if records of the batch are gone."""
        logs, begins, ends = self._watching.look(), from_json(start), from_json(end)
        here = recognised(ends, logs)
        before = by_present_name(begins, ends)
        wanted = self._noted_spans(begins, ends)
        for name, position in sorted(ends.items()):
            log = logs[here[name]] if name in here else None
            wanted += self._part(name, log, before.get(name), position)
        cut = partitions(wanted, *self._options.of_tasks())
        return [partition_of(pieces) for pieces in cut]

    def _noted_spans(
        self, begins: Mapping[str, LogPosition], ends: Mapping[str, LogPosition]
    ) -> list[Span]:
        """Losses that were found when no batch was planned. The batch that moves the log's position, or
        drops it, reports them."""
        found = []
        for name, begin in sorted(begins.items()):
            end = ends.get(name)
            moves = end is None or end.address != begin.address or not begin.is_in(end.uuid)
            if moves and (gap := self._noted.get((name, begin.address))) is not None:
                found.append(lost_span(_absent(name), gap))
        return found

    def _part(
        self, name: str, log: Listed | None, before: LogPosition | None, position: LogPosition
    ) -> list[Span]:
        """What is left of a log's part of a batch, after what is lost of it. before: where it begins, None
        for the log's beginning."""
        since = before.address if before is not None else 0 if log is None else log.bases[0]
        until = position.address
        if since >= until:
            return []
        if log is None:
            gap = Gap(since, until, "missing", records_between(before, position))
            self._report_missing(name, Loss(name, gap))
            return [lost_span(_absent(name), gap)]
        found = []
        if before is not None and since < log.bases[0]:
            if (pruned := self._report_pruned(log, before, position)) is not None:
                found.append(lost_span(log, pruned))
            since = log.bases[0]
        ordinal = before.ordinal if before is not None and before.address == since else None
        if since < until:
            found.append(Span(log, since, until, ordinal))
        return found

    def _report_missing(self, name: str, loss: Loss) -> None:
        """A log of a batch that was planned before is not among the logs."""
        if name in self._watching.unselected:
            self._lost(
                f"a batch that is repeated has records of log {name!r}, which is no longer selected by "
                f"{self._selects()}",
                "select it until the batch is done, or set it to false to leave them out",
                loss,
            )
            return
        here = self._watching.known.get(name)
        what = (
            f"log {name!r} was deleted or moved"
            if here is None
            else (f"{here.path} is another log than the batch's")
        )
        self._lost(
            f"{what}, {records_lost(loss.gap.records_lost)} lost",
            "set it to false to leave out this log's part of the batch",
            loss,
        )

    def _report_pruned(self, log: Listed, before: LogPosition, position: LogPosition) -> Gap | None:
        with Log(log.path, Storage()) as opened:
            gap = opened.listed(lambda: opened.pruned_before(before.address, before.ordinal))
        if gap is None:
            return None
        end, count, more = min(gap.end, position.address), gap.records_lost, ""
        if end < gap.end:
            count = records_between(before, position)
            more = f" in this batch, and {records_lost(gap.records_lost)} with the batches after it"
        lost = Gap(before.address, end, "pruned", count)
        self._lost(
            f"{log.path}: addresses {before.address} to {end} are pruned, {records_lost(count)} lost{more}",
            "set it to false to continue with what is left",
            Loss(log.name, lost),
        )
        return lost

    def _lost(self, what: str, to_do: str, *losses: Loss) -> None:
        if self._options.fail_on_loss:
            raise UsageError(f"option failOnDataLoss: {what}", hint=to_do)
        for loss in losses:
            self._backlog.lost(loss)
        warn("%s; failOnDataLoss is false, so the query goes on", what)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Batches of the partition's records. Raises GapFound, StorageError."""
        return read_pieces(pieces_in(partition), self._schema, self._options)

    # --- the cursor -------------------------------------------------------------------------

    def commit(self, end: Offset) -> None:
        """The cursor is durable at the offset on return, so retention may delete the slabs before it.
        Raises CursorLocked, CursorDiverged, CursorForeign, StorageError."""
        self._move_cursors(from_json(end))

    def _move_cursors(self, positions: dict[str, LogPosition], *, only_new: bool = False) -> None:
        cursor, logs = self._options.cursor, self._watching.known
        if cursor is None:
            return
        for name, position in by_present_name(positions, logs).items():
            if self._committed.get(name) != position:
                self._move_cursor(cursor, logs[name], position, only_new=only_new)

    def _move_cursor(
        self, cursor: str, log: Listed, position: LogPosition, *, only_new: bool
    ) -> None:
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
                self._committed[log.name] = position

    def stop(self) -> None:
        """Closes all files."""
        self._watching.close()

    def __reduce__(self) -> Any:
        return parcel(StreamReader, self._options, self._schema)
