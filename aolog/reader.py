"""Reader: records of a log, one by one, in batches, or as they come; from anywhere, over damage.

A reader never blocks, disturbs or corrupts a writer: it reads files by position and holds no
lock but its own cursor's.
"""

from __future__ import annotations

import contextlib
import os
import time
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Self, TypeAlias, TypeVar

from aolog import lifetime, seek
from aolog.batch import Batch, RecordFrame
from aolog.cursor import CursorFile, Position
from aolog.errors import (
    AddressBeyondEnd,
    AddressPruned,
    CursorDiverged,
    CursorForeign,
    Forked,
    GapFound,
    LogClosed,
    UsageError,
)
from aolog.log import Log
from aolog.record import Gap, Lag, Record
from aolog.scan import Place, Scan
from aolog.storage import Storage
from aolog.watch import Watch, watch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from aolog.slab import SlabHeader

__all__ = ["Reader", "Start"]

_T = TypeVar("_T")
Start: TypeAlias = Literal["earliest", "latest"] | int | datetime

BATCH_BYTES = 64 << 10  # frames are put together up to this: larger ones gain nothing
_LOOKS_MAX = 3  # at a listing, before it is given up that slabs vanish under it
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Reader:
    """Reads a log. Begins at `start`, or where the named cursor stands if it was committed.

    start: "earliest", "latest", an address (any; one inside a frame counts), or a datetime (the
    first record as late as this). cursor: name of a durable position that `commit` sets; one
    reader at a time may hold it. protect: whether retention keeps what the cursor has not
    passed. on_gap: called with each Gap as it is met. strict: raise GapFound at a gap; reading
    again goes on behind it. resync: format 1 only, search for frames behind a broken chain; what
    it finds is a guess.

    Not thread-safe; use one a thread. Closed by `close` or `with`. Raises NotALog, NewerFormat,
    PermissionDenied, AddressPruned, AddressBeyondEnd, CursorLocked, CursorForeign,
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
        resync: bool = False,
        storage: Storage | None = None,
    ) -> None:
        self.path = str(Path(path).absolute())  # slabs to come do not move with the process
        self.storage = storage or Storage()
        self._on_gap = on_gap
        self._strict = strict
        self._protect = protect
        self._resync = resync
        self._gaps: list[Gap] = []
        self._refusal: LogClosed | Forked | None = None
        self._watch: Watch | None = None
        self._records: Iterator[Record] | None = None
        self._frame: RecordFrame | None = None
        self._held: RecordFrame | None = None
        self._cursor: CursorFile | None = None
        self._log = Log(self.path, self.storage)
        try:
            self._log.require_slabs()
            position = None
            if cursor is not None:
                self._cursor = CursorFile(self.path, cursor, self.storage)
                position = self._cursor.position
            if position is None:
                place = self._place(start)
            else:
                place = self._listed(partial(self._resume, position))
        except BaseException:
            self._release()
            raise
        self._stand(place)
        lifetime.opened(self)

    # --- where ------------------------------------------------------------------------------

    def _place(self, where: Start, ordinal: int | None = None) -> Place:
        for _ in range(_LOOKS_MAX):  # slabs may be pruned while they are looked at
            self._log.refresh()
            self._log.require_slabs()
            try:
                if ordinal is not None:
                    return seek.at_ordinal(self._log, ordinal)
                if where == "earliest":
                    return seek.earliest(self._log)
                if where == "latest":
                    return seek.latest(self._log)
                if isinstance(where, datetime):
                    return seek.at_time(self._log, _microseconds(where))
                if isinstance(where, bool) or not hasattr(where, "__index__"):
                    raise UsageError(
                        f"start={where!r}",
                        hint='use "earliest", "latest", an address or a datetime',
                    )
                return seek.at_address(self._log, where.__index__())
            except FileNotFoundError:
                self._log.refresh(force=True)
        return seek.earliest(self._log)

    def _stand(self, place: Place) -> None:
        self._scan = Scan(self._log, place, resync=self._resync)
        self._records = self._frame = self._held = None
        self._address, self._ordinal = place.address, place.ordinal

    def _identity(self) -> tuple[bytes, int]:
        """(topic UUID, epoch) of the slab that a position in it is committed with."""
        log = self._log
        if log.format == 1:
            first = log.slab(0)
            head = first.file.pread(8, 0).ljust(8, b"\0")
            return log.bases[0].to_bytes(8, "little") + head, 0
        for i in reversed(range(max(log.position(self._address), 0) + 1)):
            header = log.slab(i).header
            if header is not None:
                return header.topic_uuid, header.epoch
        return bytes(16), 0

    def _resume(self, position: Position) -> Place:
        """Where a cursor says; loudly if the log is not the one it was."""
        self._address = position.address
        if self._log.format == 1:
            self._check_format_1(position)
        else:
            self._check_course(position)
        try:
            place = seek.at_address(self._log, position.address)
        except AddressPruned:  # the scan tells, with the count, from where the cursor stood
            return Place(position.address, position.address, None, position.ordinal)
        except AddressBeyondEnd:
            # Lost with the page cache: the next epoch begins above every cursor.
            end = seek.latest(self._log)
            return end._replace(address=position.address, ordinal=position.ordinal)
        return place._replace(address=position.address, ordinal=position.ordinal)

    def _check_course(self, position: Position) -> None:
        log = self._log
        uuid = None
        for i in reversed(range(len(log.bases))):
            header = log.slab(i).header
            if header is None:
                continue
            uuid = uuid or header.topic_uuid
            if header.epoch <= position.epoch:
                break
            if header.base < position.address:
                raise CursorDiverged(
                    f"the cursor stands at {position.address} of epoch {position.epoch}, and the "
                    f"log went another way at {header.base} (epoch {header.epoch}): it was copied "
                    "or restored",
                    hint="look at both, then set the cursor with `aolog cursor set`",
                    path=self.path,
                )
        if uuid is not None and uuid != position.topic_uuid:
            raise CursorForeign(
                "the cursor belongs to another log",
                hint="remove it with `aolog cursor delete`, or restore its log",
                path=self.path,
            )

    def _check_format_1(self, position: Position) -> None:
        base = int.from_bytes(position.topic_uuid[:8], "little")
        i = self._log.position(base)
        if i < 0 or self._log.bases[i] != base:
            return  # pruned: nothing left to compare with
        head = self._log.slab(i).file.pread(8, 0).ljust(8, b"\0")
        if position.topic_uuid[8:] not in {head, bytes(8)}:
            raise CursorForeign(
                "the first frame is not the one that the cursor was committed with",
                hint="remove it with `aolog cursor delete`, or restore its log",
                path=self.path,
            )

    def seek(self, where: Start | None = None, *, ordinal: int | None = None) -> int:
        """Goes to a place as `start` names it, or to the record with `ordinal` records of the
        log before it; the address. Errors as for the constructor, with the position kept."""
        self._check()
        if (where is None) == (ordinal is None):
            raise UsageError("seek needs a place or an ordinal, and not both")
        place = self._place("earliest" if where is None else where, ordinal)
        self._scan.close()
        self._stand(place)
        return self._address

    def seek_position(self, address: int, ordinal: int | None) -> None:
        """Goes back to a position that `tell` and `ordinal` once said; gaps are told anew."""
        self._check()
        try:
            place = self._place(address)
        except AddressBeyondEnd:  # lost with the page cache: the next epoch begins above it
            place = self._place("latest")
        place = place._replace(address=address, ordinal=ordinal)
        self._scan.close()
        self._stand(place)

    def stand_at(self, position: Position) -> None:
        """Goes where a cursor stands, without holding it. Raises CursorForeign, CursorDiverged."""
        self._check()
        place = self._listed(lambda: self._resume(position))
        self._scan.close()
        self._stand(place)

    def tell(self) -> int:
        """Address of the next record that `read` returns, or of where it will be."""
        frame = self._frame
        if frame is not None and self._address >= frame.address + frame.columns.records:
            return frame.end  # all of it was read
        return self._address

    @property
    def ordinal(self) -> int | None:
        """Records of the log before the next one; None in format 1, or behind damage that
        nothing counts."""
        return self._ordinal

    @property
    def topic(self) -> str | None:
        """The log's default topic."""
        header = self._last_header()
        return None if header is None else header.topic

    @property
    def topic_uuid(self) -> bytes | None:
        """16 bytes that name the log; None in format 1."""
        header = self._last_header()
        return None if header is None else header.topic_uuid

    @property
    def epoch(self) -> int:
        """Of the slab in which the position lies; 0 in format 1."""
        slab = self._scan.slab
        header = self._last_header() if slab is None else slab.header
        return 0 if header is None else header.epoch

    @property
    def has_cursor_position(self) -> bool:
        """Whether the named cursor was ever committed."""
        return self._cursor is not None and self._cursor.position is not None

    def _last_header(self) -> SlabHeader | None:
        for i in reversed(range(len(self._log.bases))):
            try:
                header = self._log.slab(i).header
            except FileNotFoundError:
                continue
            if header is not None:
                return header
        return None

    def end(self) -> int:
        """Address behind the last record that is there now."""
        self._check()
        self._log.refresh()
        return seek.latest(self._log).address

    @property
    def gaps(self) -> list[Gap]:
        """Gaps met so far, in order."""
        return list(self._gaps)

    # --- reading ----------------------------------------------------------------------------

    def read(self) -> Record | None:
        """The next record; None: nothing more for now."""
        if self._records is not None:
            record = next(self._records, None)
            if record is not None:
                self._passed(record)
                return record
            self._left()
        if not self._begin_frame():
            return None
        return self.read()

    def __iter__(self) -> Iterator[Record]:
        """Records up to the end as it is when it is reached."""
        while True:
            if self._records is None and not self._begin_frame():
                return
            records = self._records
            assert records is not None
            for record in records:
                self._passed(record)
                yield record
                if self._records is not records:
                    break  # the caller read or sought: on from there
            else:
                self._left()

    def _passed(self, record: Record) -> None:
        self._address = record.address + 1
        if self._ordinal is not None:
            self._ordinal += 1

    def _left(self) -> None:
        """The frame is read to its end: an address behind its records is the next frame's."""
        if self._frame is not None:
            self._address = max(self._address, self._frame.end)
        self._records = self._frame = None

    def _begin_frame(self) -> bool:
        frame = self._next_frame()
        if frame is None:
            return False
        self._frame, self._records = frame, frame.records()
        if frame.ordinal is not None:
            self._ordinal = frame.ordinal + frame.skip
        return True

    def _next_frame(self) -> RecordFrame | None:
        """The next frame; gaps on the way are told."""
        self._check()
        if self._held is not None:
            frame, self._held = self._held, None
            return frame
        while (found := self._scan.next()) is not None:
            if isinstance(found, RecordFrame):
                return found
            self._tell(found)
        self._address = max(self._address, self._scan.address)
        return None

    def _tell(self, gap: Gap) -> None:
        self._gaps.append(gap)
        self._address = max(self._address, gap.end)
        if gap.records_lost is not None and self._ordinal is not None:
            self._ordinal += gap.records_lost
        else:
            self._ordinal = self._scan.ordinal
        if self._on_gap is not None:
            self._on_gap(gap)
        if self._strict:
            lost = "an unknown number of" if gap.records_lost is None else gap.records_lost
            raise GapFound(
                f"addresses {gap.begin} to {gap.end} cannot be read ({gap.reason}): {lost} records",
                hint="read again to go on behind them; `aolog verify` shows all",
                path=self.path,
                gap=gap,
            )

    def read_batch(self, max_bytes: int = BATCH_BYTES, timeout: float = 0.0) -> Batch | None:
        """The next records as one batch; None if there is none within `timeout` seconds.

        Whole frames, at least one; small ones are put together while they take no more than
        `max_bytes` of their slabs. The position is behind all of them on return.
        """
        first = None if self._records is None else self._rest_of_frame()
        if first is None:
            first = self._next_frame()
        if first is None and timeout > 0:
            first = self._await_frame(time.monotonic() + timeout)
        if first is None:
            return None
        frames, size = [first], first.size
        while size < max_bytes and not self._gap_is_next():
            frame = self._next_frame()
            if frame is None:
                break
            if size + frame.size > max_bytes or frame.epoch != first.epoch:
                self._held = frame
                break
            frames.append(frame)
            size += frame.size
        last = frames[-1]
        self._address = last.end
        self._ordinal = None if last.ordinal is None else last.ordinal + last.columns.records
        return Batch(frames)

    def _gap_is_next(self) -> bool:
        """A gap is told between batches, not inside one."""
        if self._held is not None:
            return False
        found = self._scan.peek()
        return isinstance(found, Gap)

    def _rest_of_frame(self) -> RecordFrame | None:
        """What one-by-one reading left of a frame."""
        frame, records = self._frame, self._records
        self._frame = self._records = None
        if frame is None or records is None:
            return None
        skip = self._address - frame.address
        return frame._replace(skip=skip) if skip < frame.columns.records else None

    def _await_frame(self, until: float | None) -> RecordFrame | None:
        if self._watch is None:
            self._watch = watch(self.path)
        while True:
            frame = self._next_frame()
            if frame is not None:
                return frame
            left = None if until is None else until - time.monotonic()
            if left is not None and left <= 0:
                return None
            self._watch.wait(left)

    def follow(self, timeout: float | None = None) -> Iterator[Record]:
        """Records as they come. Ends when none came for `timeout` seconds; None: never."""
        while True:
            yield from self
            until = None if timeout is None else time.monotonic() + timeout
            frame = self._await_frame(until)
            if frame is None:
                return
            self._held = frame

    # --- position ---------------------------------------------------------------------------

    def commit(self) -> None:
        """The position is durable in the cursor on return: a reader that names it begins there.

        Where the log's writer syncs, what the cursor passes is made durable first, so that a
        cursor is never ahead of its log. Raises UsageError without a cursor, StorageError.
        """
        self.commit_at(self.tell(), self._ordinal)

    def commit_at(self, address: int, ordinal: int | None) -> None:
        """As `commit`, for a position that this reader has passed: what was acknowledged may be
        less than what was read. ordinal: records of the log before it, None if unknown."""
        self._check()
        if self._cursor is None:
            raise UsageError(
                "the reader has no cursor to commit", hint='open it with cursor="name"'
            )
        i = self._log.position(address)
        if i >= 0 and i + 1 == len(self._log.bases):
            with contextlib.suppress(FileNotFoundError):
                slab = self._log.slab(i)
                if slab.header is None or slab.header.synced:  # format 1 does not say: as if
                    slab.file.datasync()
        here, self._address = self._address, address
        try:
            uuid, epoch = self._listed(self._identity)
        finally:
            self._address = here
        self._cursor.commit(Position(address, ordinal, uuid, epoch, self._protect))

    def lag(self) -> Lag:
        """What lies between the position and the end of the log as it is now."""
        return self.lag_from(self.tell(), self._ordinal)

    def lag_from(self, address: int, ordinal: int | None) -> Lag:
        """As `lag`, from another position."""
        self._check()
        self._log.refresh()
        return self._listed(lambda: self._lag(address, ordinal))

    def _listed(self, look: Callable[[], _T]) -> _T:
        """What `look` finds in the listed slabs, which may be pruned meanwhile."""
        for _ in range(_LOOKS_MAX):
            try:
                return look()
            except FileNotFoundError:
                self._log.refresh(force=True)
        return look()

    def _lag(self, address: int, ordinal: int | None) -> Lag:
        end = seek.latest(self._log)
        here = max(address, self._log.bases[0])
        records = None
        if end.ordinal is not None and ordinal is not None:
            records = max(0, end.ordinal - ordinal)
        if end.address <= here or records == 0:
            return Lag(0 if self._log.format == 2 else records, 0, 0.0)
        size = 0
        for i in range(max(self._log.position(here), 0), len(self._log.bases)):
            slab = self._log.slab(i)
            stop = end.offset if slab.base == end.slab and end.offset else slab.end_offset
            size += max(0, stop - max(here - slab.base, 0))
        return Lag(records, size, self._age_s(here))

    def _age_s(self, address: int) -> float | None:
        """Age of the first record at or behind an address."""
        frame = self._frame
        if frame is None or not frame.address <= address < frame.end:
            try:
                scan = Scan(self._log, seek.at_address(self._log, address))
            except (AddressPruned, AddressBeyondEnd):
                return None
            try:
                frame = scan.first_frame()
            finally:
                scan.close()
        if frame is None or frame.timestamp_us is None:
            return None
        stamp = frame.timestamp_us
        if frame.columns.timestamps is not None:
            skip = min(max(address - frame.address, 0), frame.columns.records - 1)
            stamp = frame.columns.timestamps.cast("q")[skip]
        return max(0.0, time.time() - stamp / 1e6)

    # --- closing ----------------------------------------------------------------------------

    def _check(self) -> None:
        if self._refusal is not None:
            raise self._refusal

    def close(self) -> None:
        """Gives files and cursor free; commits nothing. Idempotent."""
        if self._refusal is None:
            self._scan.close()
            self._release()
            self._refusal = LogClosed("the reader is closed", hint="open another", path=self.path)
            lifetime.closed(self)

    def _release(self) -> None:
        self._records = self._frame = self._held = None  # what is asked next is refused
        if self._cursor is not None:
            self._cursor.close()
        if self._watch is not None:
            self._watch.close()
            self._watch = None
        self._log.close()

    def after_fork_in_child(self) -> None:
        """Called by `lifetime` in a forked child: the cursor's lock is the parent's."""
        self._scan.close()
        self._release()
        self._refusal = Forked(
            "the reader was opened before a fork",
            hint="open a Reader of its own in the child",
            path=self.path,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<aolog.Reader {self.path} at {self._address}>"


def _microseconds(moment: datetime) -> int:
    if moment.tzinfo is None:
        raise UsageError(
            "a datetime without a time zone", hint="use datetime.now(timezone.utc) and the like"
        )
    return (moment - _EPOCH) // timedelta(microseconds=1)  # exact, as a float of seconds is not
