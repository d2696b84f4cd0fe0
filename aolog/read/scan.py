"""From slabs to frames of records, in order, across slabs and over damage (FORMAT.md, *Reading*).

A scan has an address, and the ordinal that it expects there. `next` returns a frame of records; or a
gap, whose loss the next intact part (a frame, a seal, the next slab's header) shows; or None: nothing
more for now. A scan only moves forward; seek.py finds where it begins.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias

from aolog.errors import AologError, CodecUnavailable, NotALog, StorageFailed, counted
from aolog.format.columns import decode_run
from aolog.format.compression import check_codec, raw_len
from aolog.format.frame import CODEC_SHIFT, FLAGS_WITH_CODEC, FRAME_HEADER_LEN, KIND_RECORDS, Frame
from aolog.format.slab import ADDRESS_END
from aolog.format.stretch import GATHERED_BYTES, Stretch
from aolog.log.interruption import pass_on
from aolog.log.walk import Damage, Tail
from aolog.read.batch import RecordFrame
from aolog.read.gaps import Progress
from aolog.record import Gap, GapReason, Position

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aolog.format.columns import Columns
    from aolog.format.stretch import Survey
    from aolog.log.directory import Log
    from aolog.log.slab_file import Slab
    from aolog.log.walk import Walker

ScanOutcome: TypeAlias = RecordFrame | Gap
BATCH_BYTES = (
    64 << 10
)  # a batch of several results has to be copied together: larger ones are not faster
_RAW_BYTES = 4 << 20  # decompressed at once: a compressed read may expand a thousand times


class Place(NamedTuple):
    """Where a scan begins. ordinal: None if unknown."""

    address: int  # of the first wanted record
    ordinal: int | None  # of the first wanted record
    slab: int  # base of the slab to begin in
    offset: int | None  # of a frame in it, or of its damage or its end; None: its first frame

    @property
    def position(self) -> Position:
        """Of the first wanted record."""
        return Position(self.address, self.ordinal)


class Entering(NamedTuple):
    """A scan between two slabs: the next one is at `base`, or after it if that one is gone."""

    base: int
    # Where the scan begins; its listing is good enough for the first slab.
    place: Place | None = None
    left_base: int | None = None  # of the slab before, if the scan was in it
    left_end: int = 0  # address at the end of that slab's file


class Within(NamedTuple):
    """A scan in a slab."""

    slab: Slab
    walker: Walker | None  # None: nothing in the slab can be read
    found: list[Frame] | Damage | None = None  # what the walker has passed, and is no result yet


State: TypeAlias = Entering | Within


class Step(NamedTuple):
    """What follows from a state and what was found there."""

    state: State
    progress: Progress
    is_last: bool = False  # nothing more for now


def _size(frame: Frame) -> int:
    """The bytes that a frame takes in memory. Raises CodecUnavailable."""
    size, flags = frame.end - frame.offset, frame.header.flags
    if flags < FLAGS_WITH_CODEC:
        return size
    check_codec(flags >> CODEC_SHIFT)
    return max(size, FRAME_HEADER_LEN + raw_len(frame.body))


class Auditor(Protocol):
    """What sees the intact frames of a scan, marks and seals too, before their records are returned."""

    def survey(self, slab: Slab, walker: Walker) -> Survey | None:
        """Moves the walker over the plain frames that come next, if any, and counts them."""

    def walked(self, slab: Slab, frames: Sequence[tuple[Frame, Columns | None]]) -> None:
        """Those that were not surveyed: as many as follow one another, with their columns if they can be
        decoded."""


class Scan:
    """Frames of a log from a place on. Not thread-safe. It refreshes the log's listing, but not for what begins at
    `until` or later.

    `next` and `peek` raise CodecUnavailable, each time, at records that cannot be decompressed here.
    After an error of ours repeat the call.
    """

    def __init__(
        self, log: Log, place: Place, *, until: int = ADDRESS_END, audit: Auditor | None = None
    ) -> None:
        self.log = log
        # Bytes of a result of several frames; callers set what they want next.
        self.most = GATHERED_BYTES
        self._until = until
        self._audit = audit
        self._state: State = Entering(place.slab, place)
        self._progress = Progress(place.position)
        self._out: deque[ScanOutcome] = deque()  # results that were not returned yet

    def close(self) -> None:
        """Idempotent."""
        self._state = Entering(0)

    @property
    def slab(self) -> Slab | None:
        """That it is in; None between two."""
        return self._state.slab if isinstance(self._state, Within) else None

    @property
    def position(self) -> Position:
        """After what it has found so far."""
        return self._progress.position

    @property
    def reached(self) -> int:
        """The address up to which it has walked: a cursor's position may be past that."""
        state, address = self._state, self.position.address
        if isinstance(state, Within) and state.walker is not None:
            return min(address, state.slab.base + state.walker.offset)
        if isinstance(state, Entering) and state.place is not None:
            return min(address, state.place.slab + (state.place.offset or 0))
        return address

    def next(self) -> ScanOutcome | None:
        """The next frame or gap; None: nothing more for now, ask again."""
        return self._out.popleft() if self._find(1) else None

    def peek(self) -> ScanOutcome | None:
        """What `next` will return, without moving on."""
        return self._out[0] if self._out or self._find(1) else None

    def _find(self, count: int) -> bool:
        """Whether there are so many results now. A step is complete before anything is assigned."""
        while len(self._out) < count:
            state, progress, is_last = self._step(self._state, self._progress)
            self._state, self._progress = state, progress._replace(results=())
            self._out += progress.results
            if is_last:
                return False
        return True

    def drop(self, count: int = 1) -> None:
        """Moves on past so many results of `peek` or `batch`."""
        for _ in range(count):
            self._out.popleft()

    def replace(self, *parts: RecordFrame | None) -> None:
        """These parts of the next result, without None, take its place."""
        self._out.popleft()
        self._out.extendleft(part for part in reversed(parts) if part is not None)

    def batch(self, max_bytes: int | None) -> list[RecordFrame]:
        """The frame that `peek` returned, and those after it up to a gap, another epoch, or `max_bytes` of
        all; without moving on. None: BATCH_BYTES, or what the first one has."""
        out = self._out
        first = out[0]
        assert isinstance(first, RecordFrame)
        if max_bytes is None:
            max_bytes = max(first.size, BATCH_BYTES)
        elif first.size > max_bytes:
            first, rest = first.cut_by_size(max_bytes)
            if rest is not None:
                self.replace(first, rest)
        frames, room = [first], max_bytes - first.size
        while room > 0:
            try:
                if len(out) == len(frames) and not self._find(len(frames) + 1):
                    break
            except AologError as error:  # the next call raises it again, and has no frames to lose
                pass_on(error)
                break
            found = out[len(frames)]
            if not isinstance(found, RecordFrame) or found.epoch != first.epoch:
                break
            if found.size > room:
                break
            frames.append(found)
            room -= found.size
        return frames

    def first_frame(self) -> RecordFrame | None:
        """The next frame; skips gaps."""
        while (found := self.next()) is not None:
            if isinstance(found, RecordFrame):
                return found
        return None

    def pruned(self, ordinal: int | None) -> list[tuple[Gap, int | None]]:
        """The losses to pruning that it has found and not yet returned, and the next one in the log as
        it is listed; each with the records of the log before it, None if unknown. ordinal: records
        before its next result. Raises FileNotFoundError."""
        lost: list[tuple[Gap, int | None]] = []
        for found in self._out:
            if isinstance(found, RecordFrame):
                ordinal = found.end_ordinal
                continue
            if found.reason == "pruned" and found.records_lost != 0:
                lost.append((found, ordinal))
            known = ordinal is not None and found.records_lost is not None
            ordinal = (ordinal or 0) + (found.records_lost or 0) if known else None
        if self.slab is None or self.slab.base < self.log.bases[0]:
            address, ordinal = self._needs_next()
            if (ahead := self.log.pruned_before(address, ordinal)) is not None:
                lost.append((ahead, ordinal))
        return lost

    def _needs_next(self) -> Position:
        """Of what it needs next from the log's files: the end of its open slab, which it can read to its
        end even after the slab is removed."""
        slab, gap = self.slab, self._progress.gap
        if slab is None:
            return self.position if gap is None else Position(gap.begin, self._progress.expected)
        end = slab.end()
        ordinal = None if slab.header is None else slab.header.base_ordinal + end.ordinal
        return Position(slab.base + end.offset, ordinal)

    # --- steps -------------------------------------------------------------------------------

    def _step(self, state: State, progress: Progress) -> Step:
        if isinstance(state, Entering):
            return self._enter(state, progress)
        slab, walker, found = state
        if walker is None:
            return self._leave(state, progress)
        if isinstance(found, Damage):
            begin, end = found
            reason: GapReason = "corrupt" if self._was_durable(slab, end) else "torn_or_corrupt"
            damaged = progress.damaged(slab.base + begin, slab.base + end, reason)
            return Step(Within(slab, walker), damaged)
        if found:
            return self._take(Within(slab, walker), progress, found)
        if slab.compressed:
            if frames := walker.run():
                return Step(Within(slab, walker, frames), progress)
        elif plain := self._plain(slab, walker):
            state = state if found is None else Within(slab, walker)
            return Step(state, _past(plain, progress))
        outcome = walker.next()
        if isinstance(outcome, Tail):
            if progress.gap is None:
                progress = progress.moved(slab.base + outcome.begin, progress.position.ordinal)
            return self._leave(state, progress)
        frame_or_damage = [outcome] if isinstance(outcome, Frame) else outcome
        return Step(Within(slab, walker, frame_or_damage), progress)

    def _plain(self, slab: Slab, walker: Walker) -> list[RecordFrame]:
        """The plain frames that come next."""
        base, header, begin = slab.base, slab.header, walker.offset
        if self._audit is None:
            return [RecordFrame.of(each, base, header) for each in walker.gather(base, self.most)]
        survey = self._audit.survey(slab, walker)
        return [] if survey is None else [RecordFrame.of(survey.stretch(begin), base, header)]

    def _take(self, state: Within, progress: Progress, frames: list[Frame]) -> Step:
        """Past frames that are not plain, or may be compressed."""
        slab = state.slab
        if slab.compressed:
            frames, waiting = _portion(slab, frames)
            state = state._replace(found=waiting)
        decoded = list(zip(frames, decode_run(frames, codecs=slab.compressed), strict=True))
        if self._audit is not None:
            self._audit.walked(slab, decoded)
        for frame, columns in decoded:
            if columns is None and frame.header.kind == KIND_RECORDS:
                # A correct hash over invalid columns is damage too.
                begin, end = slab.base + frame.offset, slab.base + frame.end
                progress = progress.damaged(begin, end, "corrupt")
                continue
            alone = RecordFrame.of(Stretch.alone(frame, columns), slab.base, slab.header)
            progress = _past([alone._replace(size=_size(frame))], progress)
        return Step(state, progress)

    def _was_durable(self, slab: Slab, end: int) -> bool:
        """Whether what was before an offset was durable."""
        if slab.header is None:
            return False
        i = self.log.index_of(slab.base) + 1
        after = self.log.header(i) if i < len(self.log.bases) else None
        return (after is not None and after.shows_sealed(slab.header)) or slab.marked() >= end

    def _leave(self, state: Within, progress: Progress) -> Step:
        """Leaves the slab if another one follows. Otherwise the slab may grow."""
        slab, walker, _ = state
        if slab.limit is None and progress.position.address < self._until:
            self.log.refresh_after(slab)
            slab.limit = self.log.limit(slab.base)
        if slab.limit is None:
            return Step(state, progress, is_last=True)
        if walker is not None and walker.limit is None:
            walker.limit = slab.limit
            return Step(state, progress)  # first read what was written since the last look
        left_end = slab.base + slab.file.end(None)
        self.log.forget(slab.base)
        return Step(Entering(slab.base + slab.limit, None, slab.base, left_end), progress)

    def _enter(self, state: Entering, progress: Progress) -> Step:
        """Opens the slab that follows, if there is one."""
        if state.place is None:
            self.log.refresh()
        i = self.log.index_of(state.base)
        if i < 0 or self.log.bases[i] != state.base:
            i += 1  # it was removed: take the next one
        if i >= len(self.log.bases):
            return Step(state, progress, is_last=True)
        try:
            slab = self.log.slab(i)
        except FileNotFoundError:  # pruned since the listing
            if not self.log.refresh(force=True):  # it is still listed
                raise StorageFailed(
                    "listed, and not there",
                    hint="where it is a symbolic link, bring back what it leads to",
                    path=self.log.slab_path(self.log.bases[i]),
                ) from None
            return Step(state, progress)
        address = progress.position.address
        if state.left_base is not None and not slab.lacks_header and slab.base < address:
            raise NotALog(
                f"it ended before {address}, up to where this reader has read, and was "
                f"written again from {slab.base} on",
                hint="another program cut it short; open it again",
                path=self.log.path,
            )
        offset = None
        if state.place is not None and state.place.slab == slab.base:
            offset = state.place.offset
        elif not slab.lacks_header:  # otherwise part of a hole: the next header counts it
            progress = _over_hole(state, progress, slab, first=i == 0)
        if slab.foreign is not None:
            progress = progress._replace(passed_foreign=True)
        if not slab.lacks_header:
            return Step(Within(slab, slab.walker(offset)), progress)
        return Step(Within(slab, None), self._lost_end(slab, progress))

    def _lost_end(self, slab: Slab, progress: Progress) -> Progress:
        """Past a slab of which no header is left, if it is the log's last."""
        if slab.limit is not None:
            return progress
        # A header is durable before its slab has a name: it was there. If this is such a slab: of a log
        # without headers, a power cut may take the first bytes and leave others.
        reason: GapReason = "torn_or_corrupt" if self.log.known_format.shown is None else "corrupt"
        if slab.foreign is not None:
            reason = "foreign"
        begin = progress.position.address
        end = max(begin, slab.base + slab.end_offset)  # a cursor may be past the file's
        return progress.damaged(begin, end, reason).intact(None).moved(end, None)


def _past(frames: list[RecordFrame], progress: Progress) -> Progress:
    """Past intact frames, of which the first closes a gap; what they have from the wanted address on."""
    progress = progress.intact(frames[0].ordinal)
    wanted = progress.position.address
    results = [frame for frame in frames if frame.end > wanted and frame.columns.records]
    if results and (first := results[0]).address < wanted:
        rest = first.after(first.index_of(wanted))
        results[:1] = [] if rest is None else [rest]
    position = Position(max(wanted, frames[-1].end), frames[-1].end_ordinal)
    return progress._replace(position=position, results=(*progress.results, *results))


def _portion(slab: Slab, frames: list[Frame]) -> tuple[list[Frame], list[Frame]]:
    """As many of the first frames as can be decompressed and kept in memory; and the others."""
    size = 0
    for i, frame in enumerate(frames):
        try:
            size += _size(frame)
        except CodecUnavailable as error:
            if i == 0:
                address, count = slab.base + frame.offset, counted(frame.header.records, "record")
                raise CodecUnavailable(
                    f"{count} at address {address} cannot be read: {error.reason}",
                    hint=error.hint,
                    **error.details,
                    path=slab.file.path,
                    address=address,
                    end=slab.base + frame.end,
                ) from None
            size = _RAW_BYTES + 1
        if i and size > _RAW_BYTES:
            return frames[:i], frames[i:]
    return frames, []


def _over_hole(state: Entering, progress: Progress, slab: Slab, *, first: bool) -> Progress:
    """Past the bytes between the last intact byte and a slab that was opened. first: it is the log's."""
    head, begin = slab.header, progress.position.address
    end = slab.base if head is None else min(head.predecessor_end, slab.base)
    gone = slab.base != state.base  # the slab that should follow is missing
    if gone and first:
        progress = progress.damaged(begin, slab.base, "pruned")
    elif end > begin:
        reason: GapReason = "missing"
        if progress.passed_foreign:
            reason = "foreign"
        elif head is None:  # the bases alone say where a slab should be
            is_gone = first and state.left_end < slab.base
            reason = "pruned" if is_gone else "torn_or_corrupt"
        elif head.predecessor_base == state.left_base:
            reason = "corrupt"
        elif first:  # the slab that this scan left was the last one that is gone
            reason = "pruned"
        progress = progress.damaged(begin, end, reason)
    counted = None if head is None else head.known_ordinal
    progress = progress._replace(passed_foreign=False).intact(counted)
    if head is not None and head.predecessor_cut:
        cut_end = min(end + head.predecessor_cut, slab.base)  # the gap ends before the slab
        progress = progress.found(Gap(end, cut_end, "torn", None))
    return progress.moved(slab.base, None if head is None else head.base_ordinal)
