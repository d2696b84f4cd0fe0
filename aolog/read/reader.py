"""`Reader`: the records of a log, one by one, in batches, or as they are appended; over damage.

A reader never blocks, disturbs or corrupts a writer: the only lock that it holds is its cursor's.
"""

from __future__ import annotations

import time
from itertools import chain
from typing import TYPE_CHECKING, Any, Self

from aolog.errors import UsageError, load_optional, not_copied
from aolog.format.slab import ADDRESS_END
from aolog.log.tiers import with_archive
from aolog.read.batch import Batch, RecordFrame
from aolog.read.gaps import GapReport
from aolog.read.view import ReaderView
from aolog.record import both
from aolog.storage.place import located
from aolog.storage.storage import Storage

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable, Iterator

    import pyarrow as pa

    from aolog.format.native.speed import Rows
    from aolog.read.seek import Start
    from aolog.record import Gap, Lag, Record


class Reader:
    """Reads a log. Begins at `start`, or at the position of the named cursor if it was committed.

    start: "earliest", "latest", an address (also one inside a frame), or a datetime (the first record
    with this timestamp or a later one). cursor: the name of a durable position that `commit` sets; one
    reader at a time may hold it. protect: whether retention keeps the records after the cursor.
    archive: the URL of the log's archive; a slab that is not local is read from there.
    on_gap: called with each Gap that the reader meets. strict: raise GapFound at a gap; the next read
    continues after it. With neither, each gap is logged as a warning.

    Methods that read raise NotALog if another program cut the log short, and a writer went on, before the
    position: open it again. They raise CodecUnavailable at records that cannot be decompressed here, each time;
    `details["end"]` is the address after these records.

    After a StorageError repeat the call: it returns what the failed one would have returned. If anything
    unexpected interrupts a call, such as KeyboardInterrupt or the exception of a signal handler, the
    reader has failed: later calls raise CallInterrupted, nothing is skipped or committed, and the next
    reader continues from the cursor. An exception in your own code between two records, or in `on_gap`,
    changes nothing.

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
        archive: str | None = None,
        storage: Storage | None = None,
    ) -> None:
        storage = storage or Storage()
        # Stays valid when the process changes its directory.
        self.path = located(path) if archive is None else with_archive(path, archive, storage)
        gaps = GapReport(self.path, on_gap, strict=strict)
        self._view = ReaderView(self.path, start, cursor, gaps, protect=protect, storage=storage)

    # --- the position -----------------------------------------------------------------------

    def seek(self, where: Start | None = None, *, ordinal: int | None = None) -> int:
        """Moves to a place, given as for `start`, or to the record with `ordinal` records of the log
        before it. Returns the address. Raises what the constructor raises; the position stays then."""
        self._view.check()
        if (where is None) == (ordinal is None):
            raise UsageError("seek needs either a place or an ordinal")
        self._view.seek("earliest" if where is None else where, ordinal)
        return self.tell()

    def tell(self) -> int:
        """The address of the next record, also before it is appended."""
        return self._view.position.address

    @property
    def ordinal(self) -> int | None:
        """The number of records of the log before the next one; None in a log of queuefka, and
        after damage whose records cannot be counted."""
        return self._view.position.ordinal

    @property
    def topic(self) -> str | None:
        """The log's default topic."""
        header = self._view.log.last_header()
        return None if header is None else header.topic

    @property
    def topic_uuid(self) -> bytes | None:
        """The log's UUID, 16 bytes; None in a log of queuefka."""
        header = self._view.log.last_header()
        return None if header is None else header.topic_uuid

    @property
    def epoch(self) -> int:
        """The epoch of the slab that contains the position; 0 in a log of queuefka."""
        return self._view.epoch

    @property
    def has_cursor_position(self) -> bool:
        """Whether the named cursor was ever committed."""
        return self._view.has_cursor_position

    def end(self) -> int:
        """The address after the last record now."""
        return self._view.end().address

    def durable(self) -> int | None:
        """Everything before this address survives power loss; more may. None in a log of
        queuefka."""
        return self._view.durable()

    @property
    def gaps(self) -> list[Gap]:
        """The gaps that the reader has met, in order."""
        return list(self._view.gaps.gaps)

    # --- reading ----------------------------------------------------------------------------

    def read(self) -> Record | None:
        """The next record; None if there is none yet."""
        view = self._view
        try:  # fail-stop, as each method of the view
            reading = view.reading
            while True:
                if reading is not None and reading.rows is RecordFrame.records:
                    record: Record | None = next(reading.records, None)
                    if record is not None:
                        return record
                if (reading := view.rows_of(RecordFrame.records)) is None:
                    return None
        except BaseException as error:
            view.after_error(error)
            raise

    def __iter__(self) -> Iterator[Record]:
        """The records up to the end of the log, including those appended meanwhile."""
        return chain.from_iterable(self._frames(RecordFrame.records))

    def up_to(self, end: int) -> Iterator[Record]:
        """The records of the frames that begin before `end`. With an earlier result of `end()` the
        iteration ends, however fast the writer is."""
        return chain.from_iterable(self._frames(RecordFrame.records, end))

    def values(self) -> Iterator[bytes | None]:
        """The value of each record; takes down to half the time of iterating over records.

        After each value, the position, gaps, commits and errors are those of its record. Calls of
        `read` and others may come between: all continue from the one position.
        """
        return chain.from_iterable(self._frames(RecordFrame.values))

    def _frames(
        self, rows: Callable[[RecordFrame], Rows], end: int = ADDRESS_END
    ) -> Iterator[Iterator[Any]]:
        """The rows of each frame, one iterator per frame: no Python code runs between rows. An exception
        in this method loses nothing: the view has the position."""
        while (reading := self._view.rows_of(rows, end)) is not None:
            yield iter(reading.records)

    def read_batch(self, max_bytes: int | None = None, timeout: float = 0.0) -> Batch | None:
        """The next records as one batch; None if there is none within `timeout` seconds. Waits as
        `follow` does.

        A batch has whole frames: at least one, and more up to `max_bytes` in their slabs. By default it has
        as many as can become Arrow without a copy of their values: up to 528 KiB, and 64 KiB of frames that have
        keys, headers, or timestamps of records. The position is after the batch on return.
        """
        until_s = time.monotonic() + timeout if timeout > 0 else None
        return self._view.take(max_bytes, lambda batch: batch, until_s=until_s)

    def to_arrow(self, columns: Iterable[str] | None = None) -> pa.RecordBatchReader:
        """The records up to the end of the log now, and perhaps some that are appended meanwhile, as a
        stream of record batches with the columns of `Batch.to_arrow`. Reading the stream moves the
        position. Raises what `Batch.to_arrow` raises; the stream raises what `read_batch` raises."""
        made: pa.RecordBatchReader = load_optional("aolog.read.arrow").stream(self._view, columns)
        return made

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """`to_arrow`, for libraries that read Arrow streams: `polars.DataFrame(reader)`."""
        return self.to_arrow().__arrow_c_stream__(requested_schema)

    def follow(self, timeout: float | None = None) -> Iterator[Record]:
        """The records, also those that are appended later. Ends after `timeout` seconds without a
        record; None: never. A wait raises NotALog if another log was put in the place of this one."""
        while True:
            yield from self
            if not self._view.wait(None if timeout is None else time.monotonic() + timeout):
                return

    # --- commit and lag ---------------------------------------------------------------------

    def commit(self) -> None:
        """Stores the position in the cursor; durable on return. The next reader with this cursor begins
        there.

        If the log's writer syncs, the log is made durable up to the position first, so that a cursor
        is never ahead of its log. Raises UsageError without a cursor, CursorReplaced, StorageError.
        """
        self._view.commit()

    def lag(self) -> Lag:
        """The unread records between the position and the end of the log now."""
        return self._view.lag()

    def pruned(self) -> Gap | None:
        """The unread records that retention removed, as a gap; None if there are none. The slab that the
        reader has open does not count: the reader can still read all of it."""
        lost = None
        for gap, _ in self._view.pruned():
            lost = both(lost, gap)
        return lost

    # --- closing ----------------------------------------------------------------------------

    def close(self) -> None:
        """Releases files and the cursor; commits nothing. Idempotent."""
        self._view.close()

    __reduce__ = not_copied("pass the log's path and the cursor's name, and open a Reader there")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        where = "failed" if self._view.has_failed else f"at {self.tell()}"
        return f"<aolog.Reader {self.path} {where}>"


def view_of(reader: Reader) -> ReaderView:
    """What the rest of this project calls of a reader, and users do not need."""
    return reader._view
