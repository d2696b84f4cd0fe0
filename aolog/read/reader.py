"""`Reader`: the records of a log, one by one, in batches, or as they are appended; over damage.

A reader never blocks, disturbs or corrupts a writer: it reads files by position, and the only lock
that it holds is its cursor's.
"""

from __future__ import annotations

import time
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, Self

from aolog.errors import AddressBeyondEnd, Forked, LogClosed, UsageError, load_optional, not_copied
from aolog.log import lifetime
from aolog.log.cursor_file import CursorFile, Position
from aolog.log.directory import Log
from aolog.log.pruned_records import both, pruned_before
from aolog.read import seek
from aolog.read.batch import Batch, FrameRecords, RecordFrame
from aolog.read.cursor import check_end, identity, prepared, resume
from aolog.read.gaps import GapReport
from aolog.read.lag import lag
from aolog.read.scan import Scan
from aolog.storage.place import located
from aolog.storage.storage import Storage
from aolog.storage.watch import WAIT_S_MAX, WAIT_S_MIN, Watch

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable, Iterator

    import pyarrow as pa

    from aolog.format.native.speed import Rows
    from aolog.read.scan import Place
    from aolog.read.seek import Start
    from aolog.record import Gap, Lag, Record

BATCH_BYTES = 64 << 10  # default size of a batch: larger ones are not faster


class Reader:
    """Reads a log. Begins at `start`, or at the position of the named cursor if it was committed.

    start: "earliest", "latest", an address (also one inside a frame), or a datetime (the first record
    with this timestamp or a later one). cursor: the name of a durable position that `commit` sets; one
    reader at a time may hold it. protect: whether retention keeps the records after the cursor.
    on_gap: called with each Gap that the reader meets. strict: raise GapFound at a gap; the next read
    continues after it. With neither, each gap is logged as a warning.

    Methods that read raise CodecUnavailable at records that cannot be decompressed here, each time;
    `details["end"]` is the address after these records.

    Not thread-safe: use one reader per thread. Close it with `close` or `with`. Raises NotALog,
    NewerFormat, PermissionDenied, AddressPruned, AddressBeyondEnd, CursorLocked, CursorForeign,
    CursorDiverged, CursorCorrupt.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        start: Start = "earliest",
        *,
        cursor: str | None = None,
        on_gap: Callable[[Gap], None] | None = None,
        strict: bool = False,
        protect: bool = True,
        storage: Storage | None = None,
    ) -> None:
        self.path = located(path)  # stays valid when the process changes its directory
        self._storage = storage or Storage()
        self._protect = protect
        self._gaps = GapReport(self.path, on_gap, strict=strict)
        self._refusal: LogClosed | Forked | None = None
        self._watch: Watch | None = None
        self._reading: FrameRecords | None = None  # the frame that is read record by record
        self._held: RecordFrame | None = None  # the next frame, if it was read ahead
        self._cursor: CursorFile | None = None
        self._log = Log(self.path, self._storage)
        try:
            self._log.require_slabs()
            position = None
            if cursor is not None:
                self._cursor = CursorFile(self.path, cursor, self._storage)
                position = self._cursor.position
            if position is None:
                place = self._log.listed(partial(seek.find, self._log, start, None))
            else:
                place = self._log.listed(partial(resume, self._log, position))
        except BaseException:
            self._release()
            raise
        self._move(place)
        lifetime.opened(self, self._storage.system, Reader._after_fork_in_child)

    # --- the position -----------------------------------------------------------------------

    def _place(self, where: Start, ordinal: int | None = None) -> Place:
        self._log.refresh_end()
        return self._log.listed(partial(seek.find, self._log, where, ordinal))

    def _move(self, place: Place) -> None:
        self._scan = Scan(self._log, place)
        self._drop_frames()
        self._address, self._ordinal = place.address, place.ordinal

    def seek(self, where: Start | None = None, *, ordinal: int | None = None) -> int:
        """Moves to a place, given as for `start`, or to the record with `ordinal` records of the log
        before it. Returns the address. Raises what the constructor raises; the position stays then."""
        self._check()
        if (where is None) == (ordinal is None):
            raise UsageError("seek needs either a place or an ordinal")
        self._move(self._place("earliest" if where is None else where, ordinal))
        return self._address

    def tell(self) -> int:
        """The address of the next record, also before it is appended."""
        return self._address if self._reading is None else self._reading.address

    @property
    def ordinal(self) -> int | None:
        """The number of records of the log before the next one; None in format 1, and after damage
        whose records cannot be counted."""
        return self._ordinal if self._reading is None else self._reading.ordinal

    @property
    def topic(self) -> str | None:
        """The log's default topic."""
        header = self._log.last_header()
        return None if header is None else header.topic

    @property
    def topic_uuid(self) -> bytes | None:
        """The log's UUID, 16 bytes; None in format 1."""
        header = self._log.last_header()
        return None if header is None else header.topic_uuid

    @property
    def epoch(self) -> int:
        """The epoch of the slab that contains the position; 0 in format 1."""
        slab = self._scan.slab
        header = self._log.last_header() if slab is None else slab.header
        return 0 if header is None else header.epoch

    @property
    def has_cursor_position(self) -> bool:
        """Whether the named cursor was ever committed."""
        return self._cursor is not None and self._cursor.position is not None

    def end(self) -> int:
        """The address after the last record now."""
        self._check()
        self._log.refresh_end()
        return self._log.listed(lambda: seek.latest(self._log)).address

    def durable(self) -> int | None:
        """Everything before this address survives power loss; more may. None in format 1."""
        self.end()  # finds the last slab
        return self._log.listed(lambda: seek.durable(self._log))

    @property
    def gaps(self) -> list[Gap]:
        """The gaps that the reader has met, in order."""
        return list(self._gaps.gaps)

    # --- reading ----------------------------------------------------------------------------

    def read(self) -> Record | None:
        """The next record; None if there is none yet."""
        while (reading := self._rows_of(RecordFrame.records)) is not None:
            record: Record | None = next(reading.records, None)
            if record is not None:
                return record
            self._end_frame()
        return None

    def __iter__(self) -> Iterator[Record]:
        """The records up to the end of the log, including those appended meanwhile."""
        return chain.from_iterable(self._frames(RecordFrame.records))

    def up_to(self, end: int) -> Iterator[Record]:
        """The records of the frames that begin before `end`. With an earlier result of `end()` the
        iteration ends, however fast the writer is."""
        self._held = self._end_frame() or self._held
        return chain.from_iterable(self._frames(RecordFrame.records, end))

    def values(self) -> Iterator[bytes | None]:
        """The value of each record; takes down to half the time of iterating over records.

        After each value, the position, gaps, commits and errors are those of its record. Calls of
        `read` and others may come between: all continue from the one position.
        """
        return chain.from_iterable(self._frames(RecordFrame.values))

    def _frames(
        self, rows: Callable[[RecordFrame], Rows], end: int | None = None
    ) -> Iterator[Iterator[Any]]:
        """The rows of each frame, one iterator per frame: no Python code runs between rows."""
        while (end is None or self._is_before(end)) and (
            reading := self._rows_of(rows)
        ) is not None:
            yield iter(reading.records)
            if self._reading is reading:  # otherwise the caller has moved the position
                self._end_frame()

    def _rows_of(self, rows: Callable[[RecordFrame], Rows]) -> FrameRecords | None:
        """The frame that is being read, as rows of this kind; None if there is none yet."""
        reading = self._reading
        if reading is not None and reading.rows is rows:
            return reading
        frame = self._end_frame() or self._next_frame()
        if frame is not None:
            self._reading = FrameRecords(frame, rows)
        return self._reading

    def _end_frame(self) -> RecordFrame | None:
        """Stops reading a frame record by record. Returns the frame with its unread records, if any."""
        reading, self._reading = self._reading, None
        if reading is None:
            return None
        self._ordinal, self._address = reading.ordinal, max(self._address, reading.address)
        return reading.end()

    def _drop_frames(self) -> None:
        self._end_frame()
        self._held = None

    def _next_frame(self) -> RecordFrame | None:
        """The next frame. Reports gaps before it."""
        self._check()
        if self._held is not None:
            frame, self._held = self._held, None
            return frame
        while (found := self._scan.next()) is not None:
            if isinstance(found, RecordFrame):
                return found
            self._report(found)
        self._address = max(self._address, self._scan.address)
        return None

    def _is_before(self, end: int) -> bool:
        """Whether the next frame begins before an address. Reports gaps before that."""
        self._check()
        if self._reading is not None or self._address >= end:
            return self.tell() < end
        while (found := self._held or self._scan.peek()) is not None:
            if isinstance(found, RecordFrame):
                return found.address < end
            if found.begin >= end:
                return False
            self._scan.next()
            self._report(found)
        self._address = max(self._address, self._scan.address)
        return False

    def _report(self, gap: Gap) -> None:
        self._address = max(self._address, gap.end)
        if gap.records_lost is not None and self._ordinal is not None:
            self._ordinal += gap.records_lost
        else:
            self._ordinal = self._scan.ordinal
        self._gaps.report(gap)

    def read_batch(self, max_bytes: int = BATCH_BYTES, timeout: float = 0.0) -> Batch | None:
        """The next records as one batch; None if there is none within `timeout` seconds. Waits as
        `follow` does.

        A batch has whole frames: at least one, and more up to `max_bytes` in their slabs. The position
        is after the batch on return.
        """
        first = self._end_frame() or self._next_frame()
        if first is None and timeout > 0:
            first = self._await_frame(time.monotonic() + timeout)
        if first is None:
            return None
        frames = self._scan.gather(first, max_bytes)
        last = frames[-1]
        self._address = last.end
        self._ordinal = None if last.ordinal is None else last.ordinal + last.columns.records
        return Batch(frames)

    def _await_frame(self, until: float | None) -> RecordFrame | None:
        """The next frame; None at the time-out. The caller has just found none."""
        look = self._watch is None  # the frame may have been written before the watch began
        if self._watch is None:
            self._watch = Watch(self.path)
        woken, wait_s = True, WAIT_S_MIN
        while True:
            frame = self._next_frame() if look else None
            if frame is not None:
                return frame
            if not woken:  # nothing happens here: perhaps it happens in another log
                self._log.check_place(self._scan.slab)
            look = True
            left = wait_s if until is None else until - time.monotonic()
            if left <= 0:
                return None
            woken = self._watch.wait(min(wait_s, left))
            wait_s = min(2 * wait_s, WAIT_S_MAX)

    def to_arrow(self, columns: Iterable[str] | None = None) -> pa.RecordBatchReader:
        """The records up to the end of the log now, and perhaps some that are appended meanwhile, as a
        stream of record batches with the columns of `Batch.to_arrow`. Reading the stream moves the
        position. Raises what `Batch.to_arrow` raises; the stream raises what `read_batch` raises."""
        made: pa.RecordBatchReader = load_optional("aolog.read.arrow").stream(self, columns)
        return made

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """`to_arrow`, for libraries that read Arrow streams: `polars.DataFrame(reader)`."""
        return self.to_arrow().__arrow_c_stream__(requested_schema)

    def follow(self, timeout: float | None = None) -> Iterator[Record]:
        """The records, also those that are appended later. Ends after `timeout` seconds without a
        record; None: never. A wait raises NotALog if another log was put in the place of this one."""
        while True:
            yield from self
            until = None if timeout is None else time.monotonic() + timeout
            frame = self._await_frame(until)
            if frame is None:
                return
            self._held = frame

    # --- commit and lag ---------------------------------------------------------------------

    def commit(self) -> None:
        """Stores the position in the cursor; durable on return. The next reader with this cursor begins
        there.

        If the log's writer syncs, the log is made durable up to the position first, so that a cursor
        is never ahead of its log. Raises UsageError without a cursor, CursorReplaced, StorageError.
        """
        prepare_commit(self, self.tell(), self.ordinal)()

    def lag(self) -> Lag:
        """The unread records between the position and the end of the log now."""
        return lag_from(self, self.tell(), self.ordinal)

    def pruned(self) -> Gap | None:
        """The unread records that retention removed, as a gap; None if there are none. The slab that the
        reader has open does not count: the reader can still read all of it."""
        lost = None
        for gap, _ in pruned_from(self, self.tell(), self.ordinal):
            lost = both(lost, gap)
        return lost

    # --- closing ----------------------------------------------------------------------------

    def _check(self) -> None:
        if self._refusal is not None:
            raise self._refusal

    def close(self) -> None:
        """Releases files and the cursor; commits nothing. Idempotent."""
        if self._refusal is None:
            self._scan.close()
            self._release()
            self._refusal = LogClosed("the reader is closed", hint="open another", path=self.path)
            lifetime.closed(self)

    def _release(self) -> None:
        self._drop_frames()
        if self._cursor is not None:
            self._cursor.close()
        if self._watch is not None:
            self._watch.close()
            self._watch = None
        self._log.close()

    def _after_fork_in_child(self) -> None:
        """Releases everything in a forked child: the cursor's lock is the parent's."""
        self._scan.close()
        self._release()
        self._refusal = Forked(
            "the reader was opened before a fork",
            hint="open another Reader in the child",
            path=self.path,
        )

    __reduce__ = not_copied("pass the log's path and the cursor's name, and open a Reader there")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<aolog.Reader {self.path} at {self.tell()}>"


# --- internal: for the bridge and the command line -------------------------------------------


def return_to(reader: Reader, address: int, ordinal: int | None) -> None:
    """Moves back to a position that `tell` and `ordinal` returned earlier. Gaps after it are reported
    again."""
    reader._check()
    try:
        place = reader._place(address)
    except AddressBeyondEnd:  # lost with the page cache: the next epoch begins above it
        place = reader._place("latest")
    reader._move(place._replace(address=address, ordinal=ordinal))


def resume_at(reader: Reader, position: Position, *, kept_outside: bool = False) -> None:
    """Moves to a cursor's position, without holding the cursor. kept_outside: the position was not
    stored in the log's directory, so a restore of the log did not restore it. Raises
    CursorForeign, CursorDiverged."""
    reader._check()
    place = reader._log.listed(lambda: resume(reader._log, position))
    if kept_outside:
        reader._log.listed(lambda: check_end(reader._log, position))
    reader._move(place)


def prepare_commit(reader: Reader, address: int, ordinal: int | None) -> Callable[[], None]:
    """`Reader.commit` in two steps, for a position that the reader has passed: returns the call that
    commits it. Another thread may make that call while this thread reads. Make one call at a time, in
    order, before `close`. ordinal: records of the log before the position, None if unknown."""
    reader._check()
    if reader._cursor is None:
        raise UsageError("the reader has no cursor to commit", hint='open it with cursor="name"')
    return prepared(reader._log, reader._cursor, position_at(reader, address, ordinal))


def position_at(reader: Reader, address: int, ordinal: int | None) -> Position:
    """The position as a cursor stores it, with the log's UUID and the epoch."""
    reader._check()
    uuid, epoch = reader._log.listed(lambda: identity(reader._log, address))
    return Position(address, ordinal, uuid, epoch, reader._protect)


def lag_from(reader: Reader, address: int, ordinal: int | None) -> Lag:
    """`Reader.lag` from another position."""
    reader._check()
    reader._log.refresh_end()
    frame = None if reader._reading is None else reader._reading.frame
    return reader._log.listed(lambda: lag(reader._log, address, ordinal, frame))


def pruned_from(reader: Reader, address: int, ordinal: int | None) -> list[tuple[Gap, int | None]]:
    """`Reader.pruned` from any position: each gap, with the number of records of the log before it,
    None if unknown."""
    reader._check()
    reader._log.refresh_end()
    if address == reader.tell():
        return reader._log.listed(lambda: reader._scan.pruned(ordinal))
    gap = reader._log.listed(lambda: pruned_before(reader._log, address, ordinal))
    return [] if gap is None else [(gap, ordinal)]
