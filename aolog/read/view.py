"""`ReaderView`: an open log, a cursor, and one position that moves from frame to frame and over gaps.

A `Reader` is what users call; this is what it holds, and what the rest of this project uses.

Fail-stop: a call returns, or raises one of our errors and may be repeated, or the view fails and refuses
every later call. Results stay in the scan until they are complete, and the position moves last.
"""

from __future__ import annotations

import time
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from aolog.errors import CallInterrupted, Forked, LogClosed, NotALog, UsageError
from aolog.format.cursor_copy import CursorPosition
from aolog.format.slab import ADDRESS_END
from aolog.format.stretch import GATHERED_BYTES
from aolog.log.cursor_file import CursorFile
from aolog.log.directory import Log
from aolog.log.interruption import is_own
from aolog.read import seek
from aolog.read.batch import Batch, FrameRecords, RecordFrame
from aolog.read.cursor import check_end, furthest_past_end, identity, prepared, resume
from aolog.read.lag import lag
from aolog.read.scan import Scan
from aolog.record import Position, count_between
from aolog.storage import lifetime
from aolog.storage.watch import WAIT_S_MAX, WAIT_S_MIN, Watch

if TYPE_CHECKING:
    from collections.abc import Callable

    from aolog.format.native.speed import Rows
    from aolog.read.gaps import GapReport
    from aolog.read.scan import Place
    from aolog.read.seek import Start
    from aolog.record import Gap, Lag
    from aolog.storage.storage import Storage

_Options = ParamSpec("_Options")
_Result = TypeVar("_Result")


def _fail_stop(
    call: Callable[Concatenate[ReaderView, _Options], _Result],
) -> Callable[Concatenate[ReaderView, _Options], _Result]:
    """The method, which refuses after `close` and after a failure, and makes the view fail if something
    unexpected interrupts it."""

    @wraps(call)
    def guarded(self: ReaderView, /, *args: _Options.args, **options: _Options.kwargs) -> _Result:
        try:
            self.check()
            return call(self, *args, **options)
        except BaseException as error:
            self.after_error(error)
            raise

    return guarded


class ReaderView:
    """See the module. Not thread-safe; raises what the methods of Reader raise.

    log: as it is listed. reading: the scan's next frame, while it is read record by record. gaps: reports
    each gap.
    """

    def __init__(
        self,
        path: str,
        start: Start,
        cursor: str | None,
        gaps: GapReport,
        *,
        protect: bool,
        storage: Storage,
    ) -> None:
        self.path = path
        self.gaps = gaps
        self.reading: FrameRecords | None = None
        self._refusal: LogClosed | Forked | CallInterrupted | None = None
        self._protect = protect
        self._watch: Watch | None = None
        self._knows_end = False  # whether it has looked for what the log has lost there
        self._cursor: CursorFile | None = None
        self.log = Log(path, storage)
        try:
            self.log.require_slabs()
            find: Callable[[], Place] = partial(seek.find, self.log, start, None)
            if cursor is not None:
                self._cursor = CursorFile(path, cursor, storage)
                if self._cursor.position is not None:
                    find = partial(resume, self.log, self._cursor.position)
            self._move(self.log.listed(find))
        except BaseException:
            self._release()
            raise
        lifetime.opened(self, storage.system, ReaderView.abandon_after_fork)

    # --- fail-stop ---------------------------------------------------------------------------

    def check(self) -> None:
        """Raises LogClosed, Forked, CallInterrupted if the view can no longer be used."""
        refusal = self._refusal
        if refusal is not None:
            raise type(refusal)(refusal.reason, hint=refusal.hint, **refusal.details)

    @property
    def has_failed(self) -> bool:
        """Whether a call was interrupted. Then its position means nothing."""
        return isinstance(self._refusal, CallInterrupted)

    def after_error(self, error: BaseException) -> None:
        """After an exception in a call: the view fails unless its state is as documented."""
        if is_own(error) or error is self.gaps.raised or self._refusal is not None:
            return
        self._refusal = CallInterrupted(
            f"the reader failed: {error!r} interrupted a call",
            hint="close it and open another one, which continues from the cursor",
            path=self.path,
        )
        self._stop_rows()

    def close(self) -> None:
        """Releases files and the cursor. Idempotent."""
        self._end_with(LogClosed("the reader is closed", hint="open another", path=self.path))
        lifetime.closed(self)

    def abandon_after_fork(self) -> None:
        """Releases everything in a forked child: the cursor's lock is the parent's."""
        hint = "open another Reader in the child"
        self._end_with(Forked("the reader was opened before a fork", hint=hint, path=self.path))

    def _end_with(self, refusal: LogClosed | Forked) -> None:
        if not isinstance(self._refusal, LogClosed | Forked):
            self._scan.close()
            self._release()
            self._refusal = refusal

    def _release(self) -> None:
        self._stop_rows()
        if self._cursor is not None:
            self._cursor.close()
        if self._watch is not None:
            self._watch.close()
            self._watch = None
        self.log.close()

    # --- the position -------------------------------------------------------------------------

    @property
    def position(self) -> Position:
        """Of the next record."""
        if self.has_failed:
            self.check()
        return self._position if self.reading is None else self.reading.position

    @property
    def epoch(self) -> int:
        """As Reader."""
        slab = self._scan.slab
        header = self.log.last_header() if slab is None else slab.header
        return 0 if header is None else header.epoch

    @property
    def has_cursor_position(self) -> bool:
        """As Reader."""
        return self._cursor is not None and self._cursor.position is not None

    @_fail_stop
    def seek(self, where: Start, ordinal: int | None) -> None:
        """Moves to a place, or to the record with so many records of the log before it."""
        self._move(self._look(seek.find, where, ordinal))

    @_fail_stop
    def return_to(self, position: Position) -> None:
        """Moves back to a position that it had earlier. Gaps after it are reported again."""
        self._move(self._look(seek.back_to, position))

    @_fail_stop
    def resume_at(self, position: CursorPosition, *, kept_outside: bool = False) -> None:
        """Moves to a cursor's position, without holding the cursor. kept_outside: also as
        `check_end`. Raises CursorForeign, CursorDiverged."""
        place = self.log.listed(lambda: resume(self.log, position))
        if kept_outside:
            self.log.listed(lambda: check_end(self.log, position))
        self._move(place)

    def _look(self, look: Callable[Concatenate[Log, _Options], _Result], *args: Any) -> _Result:
        """What it finds in the log as that is now."""
        self.log.refresh_end()
        return self.log.listed(partial(look, self.log, *args))

    def _move(self, place: Place) -> None:
        self._stop_rows()
        self._scan = Scan(self.log, place)
        self._position = place.position

    def _advance(self, address: int, ordinal: int | None) -> None:
        self._position = Position(max(self._position.address, address), ordinal)

    @_fail_stop
    def end(self) -> Position:
        """After the last record now."""
        return self._look(seek.latest).position

    @_fail_stop
    def durable(self) -> int | None:
        """As Reader."""
        return self._look(seek.durable)

    # --- what can be asked of any position; the default is the view's ---------------------------

    @_fail_stop
    def prepare_commit(self, position: Position | None = None) -> Callable[[], None]:
        """`Reader.commit` in two steps, for a position that it has passed: as `prepared`."""
        if self._cursor is None:
            raise UsageError(
                "the reader has no cursor to commit", hint='open it with cursor="name"'
            )
        return prepared(self.log, self._cursor, self.to_store(position or self.position))

    @_fail_stop
    def commit(self, position: Position | None = None) -> None:
        """As Reader."""
        self.prepare_commit(position)()

    @_fail_stop
    def to_store(self, position: Position) -> CursorPosition:
        """The position as a cursor stores it, with the log's UUID and the epoch."""
        uuid, epoch = self.log.listed(lambda: identity(self.log, position.address))
        return CursorPosition(*position, uuid, epoch, self._protect)

    @_fail_stop
    def lag(self, position: Position | None = None) -> Lag:
        """The unread records between the position and the end of the log now."""
        return self._look(lag, *(position or self.position))

    @_fail_stop
    def pruned(self, position: Position | None = None) -> list[tuple[Gap, int | None]]:
        """The unread records that retention removed, as Scan.pruned returns them."""
        address, ordinal = position or self.position
        if address == self.position.address:
            return self._look(lambda _: self._scan.pruned(ordinal))
        gap = self._look(Log.pruned_before, address, ordinal)
        return [] if gap is None else [(gap, ordinal)]

    # --- frames -------------------------------------------------------------------------------

    @_fail_stop
    def rows_of(
        self, rows: Callable[[RecordFrame], Rows], end: int = ADDRESS_END
    ) -> FrameRecords | None:
        """The frame with the next record, as rows of this kind; None if there is none yet that begins before
        `end`. Then it ends there at the latest."""
        reading = self.reading
        same = reading is not None and reading.rows is rows and reading.frame.end <= end
        if reading is not None and same and not reading.is_read:
            return reading
        self._end_rows()
        frame = self._peek(end)
        if frame is not None:
            self.reading = FrameRecords(frame, rows, rows(frame))
        return self.reading

    def _stop_rows(self) -> None:
        """Iterators over the frame that is being read end."""
        reading, self.reading = self.reading, None
        if reading is not None:
            reading.end()

    def _end_rows(self) -> None:
        """Stops reading a frame record by record. Its unread records, if any, stay in the scan."""
        reading = self.reading
        if reading is not None:
            self._advance(*reading.position)
            self._scan.replace(reading.end())
            self.reading = None

    def _peek(self, end: int = ADDRESS_END, most: int = GATHERED_BYTES) -> RecordFrame | None:
        """The next frame, which stays in the scan; None if there is none yet that begins before `end`. Then
        it ends there at the latest. most: as of Scan. Reports gaps before it. No frame is being read."""
        self._scan.most = most
        while self._position.address < end:
            found = self._scan.peek()
            if found is None:
                self._advance(self._scan.position.address, self._position.ordinal)
                self.report_lost_end()
            elif isinstance(found, RecordFrame):
                if found.end <= end:
                    return found
                part, rest = found.cut(end)
                self._scan.replace(part, rest)
                return part
            elif found.begin < end:
                self._pass(found)
                continue
            return None
        return None

    @_fail_stop
    def report_lost_end(self) -> None:
        """Where it has read all: reports, once, what the log has lost at its end by another program, if
        a cursor shows that. The position stays: the next writer makes it a gap, or the end is put back."""
        if self._knows_end:
            return
        found = self.log.listed(lambda: furthest_past_end(self.log, self._scan.reached))
        self._knows_end = True
        if found is None:
            return
        lost, cursor = found
        address, ordinal = self._position
        if address >= lost.end:  # it has read what is missing
            self.gaps.warn(cursor.lost_end_text(lost))
            return
        if address > lost.begin:
            count = count_between(ordinal, cursor.ordinal)
            lost = lost._replace(begin=address, records_lost=count)
        self.gaps.report(lost, ahead=True)

    def _pass(self, gap: Gap) -> None:
        """Moves past a gap, which is the next result of the scan, and reports it."""
        ordinal = self._position.ordinal
        if gap.records_lost is None or ordinal is None:
            ordinal = self._scan.position.ordinal
        else:
            ordinal += gap.records_lost
        self._advance(gap.end, ordinal)
        self._scan.drop()
        self.gaps.report(gap)

    def take(
        self,
        max_bytes: int | None,
        use: Callable[[Batch], _Result],
        *,
        until_s: float | None = None,
        end: int = ADDRESS_END,
    ) -> _Result | None:
        """What `use` makes of the next batch; None if there is none. The position moves once the result is
        made. max_bytes: as Scan.batch. until_s: waits for a batch, up to that time of `time.monotonic`. end: None from that address on."""
        try:  # as _fail_stop, without another call a batch
            self.check()
            self._end_rows()
            if self._position.address >= end:
                self.report_lost_end()
                return None
            most = GATHERED_BYTES if max_bytes is None else min(max_bytes, GATHERED_BYTES)
            if self._peek(most=most) is None and (until_s is None or not self.wait(until_s)):
                return None
            frames = self._scan.batch(max_bytes)
            made, last = use(Batch(frames)), frames[-1]
            self._position = Position(last.end, last.end_ordinal)
            self._scan.drop(len(frames))
            return made  # noqa: TRY300 -- an exception in this line loses it
        except BaseException as error:
            self.after_error(error)
            raise

    @_fail_stop
    def wait(self, until_s: float | None) -> bool:
        """Waits for a frame, up to that time of `time.monotonic`; None: for ever. Returns whether there is
        one. The caller has just found none."""
        look = self._watch is None  # the frame may have been written before the watch began
        if self._watch is None:
            self._watch = Watch(self.path)
        woken, wait_s = True, WAIT_S_MIN
        while True:
            if look and self._peek() is not None:
                return True
            if not woken and self.log.is_replaced(self._scan.slab):  # what comes, comes in that one
                what = "another log was put in its place"
                raise NotALog(what, hint="open it again", path=self.path)
            look = True
            left_s = wait_s if until_s is None else until_s - time.monotonic()
            if left_s <= 0:
                return False
            woken = self._watch.wait(min(wait_s, left_s))
            self.check()  # a signal handler may have closed it
            wait_s = min(2 * wait_s, WAIT_S_MAX)
