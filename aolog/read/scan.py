"""From slabs to frames of records, in order, across slabs and over every kind of damage.

A scan has an address, and the ordinal that it expects there. `next` returns a frame of records; or a
gap, whose loss the next intact part (a frame, a seal, the next slab's header) shows; or None: nothing
more for now.

Damage has two forms: damage inside a slab (walk.py), and a hole between the last intact byte of a slab
and the place where the next slab's header says that its predecessor ended. A slab without a header,
or of another log, is part of such a hole. Holes and damage that touch are one gap. A scan only moves
forward; seek.py finds where it begins.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from aolog.errors import AologError, CodecUnavailable, StorageFailed
from aolog.format.columns import decode_run
from aolog.format.compression import check_codec, raw_len
from aolog.format.frame import CODEC_SHIFT, FLAGS_WITH_CODEC, FRAME_HEADER_LEN, KIND_RECORDS, Frame
from aolog.log.pruned_records import pruned_before
from aolog.log.walk import Damage, Tail
from aolog.read.batch import RecordFrame
from aolog.read.gaps import OpenGap
from aolog.record import Gap, GapReason

if TYPE_CHECKING:
    from collections.abc import Callable

    from aolog.format.columns import Columns
    from aolog.log.directory import Log
    from aolog.log.slab_file import Slab
    from aolog.log.walk import Walker

ScanOutcome: TypeAlias = RecordFrame | Gap
_RAW_BYTES = 4 << 20  # decompressed at once: a compressed read may expand a thousand times


class Place(NamedTuple):
    """Where a scan begins."""

    address: int  # of the first wanted record
    slab: int  # base of the slab to begin in
    offset: int | None  # of a frame in it, or of its damage or its end; None: its first frame
    ordinal: int | None  # of the first wanted record; None if unknown


_make_frame = partial(tuple.__new__, RecordFrame)  # a third of the class's own call


def _size(frame: Frame) -> int:
    """The bytes that a frame takes in memory. Raises CodecUnavailable."""
    size, flags = frame.end - frame.offset, frame.header.flags
    if flags < FLAGS_WITH_CODEC:
        return size
    check_codec(flags >> CODEC_SHIFT)
    return max(size, FRAME_HEADER_LEN + raw_len(frame.body))


class Scan:
    """Frames of a log from a place on. Not thread-safe. It refreshes the log's listing.

    audit: called with each intact frame, marks and seals too, before it is returned, and with its
    columns if they can be decoded. `next` and `peek` raise CodecUnavailable, each time, at records
    that cannot be decompressed here.
    """

    def __init__(
        self,
        log: Log,
        place: Place,
        *,
        audit: Callable[[Slab, Frame, Columns | None], None] | None = None,
    ) -> None:
        self.log = log
        self.address = place.address
        self.ordinal = place.ordinal
        self.slab: Slab | None = None
        self._walker: Walker | None = None
        self._place: Place | None = place
        self._next_base = place.slab
        self._left_base: int | None = None
        self._left_end = 0
        self._passed_foreign = False  # whether a slab of another log came after the last header
        self._gap: OpenGap | None = None
        self._out: deque[ScanOutcome] = deque()
        self._intact: list[Frame] = []  # frames that are not decompressed yet
        self._damage: Damage | None = None  # passed by the walker, and no part of a gap yet
        self._audit = audit

    def close(self) -> None:
        """Idempotent."""
        self.slab = self._walker = None

    def next(self) -> ScanOutcome | None:
        """The next frame or gap; None: nothing more for now, ask again."""
        found = self.peek()
        if found is not None:
            self._out.popleft()
        return found

    def peek(self) -> ScanOutcome | None:
        """What `next` will return, without moving on."""
        return self._out[0] if self._find(1) else None

    def _find(self, count: int) -> bool:
        """Whether there are so many results now."""
        while len(self._out) < count:
            if not (self._enter() if self.slab is None else self._step(self.slab)):
                return False
        return True

    def drop(self, count: int) -> None:
        """Moves on past so many results of `peek` or `batch`."""
        for _ in range(count):
            self._out.popleft()

    def put_back(self, frame: RecordFrame) -> None:
        """The next result: the rest of a frame that was dropped."""
        self._out.appendleft(frame)

    def batch(self, max_bytes: int) -> list[RecordFrame]:
        """The frame that `peek` returned, and those after it up to a gap, another epoch, or `max_bytes` of
        all; without moving on."""
        frames: list[RecordFrame] = []
        room, epoch = max_bytes, None
        while True:
            for found in islice(self._out, len(frames), None):
                if frames and (
                    not isinstance(found, RecordFrame) or found.size > room or found.epoch != epoch
                ):
                    return frames
                assert isinstance(found, RecordFrame)
                frames.append(found)
                room -= found.size
                epoch = found.epoch
            if room <= 0:
                return frames
            try:
                if not self._find(len(frames) + 1):
                    return frames
            except AologError:  # the next call raises it again, and has no frames to lose
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
                at = found.ordinal
                ordinal = None if at is None else at + found.columns.records
                continue
            if found.reason == "pruned" and found.records_lost != 0:
                lost.append((found, ordinal))
            known = ordinal is not None and found.records_lost is not None
            ordinal = (ordinal or 0) + (found.records_lost or 0) if known else None
        if self.slab is None or self.slab.base < self.log.bases[0]:
            address, ordinal = self._needs_next()
            if (ahead := pruned_before(self.log, address, ordinal)) is not None:
                lost.append((ahead, ordinal))
        return lost

    def _needs_next(self) -> tuple[int, int | None]:
        """(address, ordinal) of what it needs next from the log's files: the end of its open slab,
        which it can read to its end even after the slab is removed."""
        slab, gap = self.slab, self._gap
        if slab is None:
            return (self.address, self.ordinal) if gap is None else (gap.begin, gap.expected)
        end = slab.end()
        ordinal = None if slab.header is None else slab.header.base_ordinal + end.ordinal
        return slab.base + end.offset, ordinal

    # --- within a slab: each step is True if it got further ----------------------------------

    def _step(self, slab: Slab) -> bool:
        walker = self._walker
        if walker is None:
            return self._leave(slab, None)
        if self._damage is not None:
            begin, end = self._damage
            reason: GapReason = "corrupt" if self._was_durable(slab, end) else "torn_or_corrupt"
            self._open_gap(slab.base + begin, slab.base + end, reason)
            self._damage = None
            return True
        frames = self._intact or walker.run()
        if not frames:
            outcome = walker.next()
            if isinstance(outcome, Tail):
                return self._leave(slab, outcome)
            if isinstance(outcome, Damage):
                self._damage = outcome
                return True
            frames = [outcome]
        if slab.compressed:
            frames = self._portion(slab, frames)
        self._take(slab, frames)
        return True

    def _portion(self, slab: Slab, frames: list[Frame]) -> list[Frame]:
        """As many of the first frames as can be decompressed and kept in memory; the others wait."""
        self._intact, size = frames, 0
        for i, frame in enumerate(frames):
            try:
                size += _size(frame)
            except CodecUnavailable as error:
                if i == 0:
                    raise slab.located(error, frame) from None
                size = _RAW_BYTES + 1
            if i and size > _RAW_BYTES:
                self._intact = frames[i:]
                return frames[:i]
        self._intact = []
        return frames

    def _take(self, slab: Slab, frames: list[Frame]) -> None:
        """Puts frames of records out, from the wanted address on. Any frame closes a gap."""
        base, header, compressed = slab.base, slab.header, slab.compressed
        stamp = ordinal = None
        for frame, columns in zip(frames, decode_run(frames, codecs=compressed), strict=True):
            if self._audit is not None:
                self._audit(slab, frame, columns)
            offset, end, (kind, _, _, _, timestamp_us, before, records, _), _ = frame
            begin, end_address = base + offset, base + end
            if columns is None and kind == KIND_RECORDS:
                # A correct hash over invalid columns is damage too.
                self._open_gap(begin, end_address, "corrupt")
                continue
            if header is not None:
                stamp, ordinal = timestamp_us, header.base_ordinal + before
            if self._gap is not None:
                self._close_gap(ordinal)
            wanted = self.address
            if end_address > wanted:
                self.address = end_address
            if columns is None:
                continue
            skip = wanted - begin if wanted > begin else 0
            if skip < records:
                epoch = 0 if header is None else header.epoch
                size = _size(frame) if compressed else end - offset
                fields = (begin, end_address, size, skip, stamp, ordinal, columns, epoch, None)
                self._out.append(_make_frame(fields))
            self.ordinal = None if ordinal is None else ordinal + records

    def _was_durable(self, slab: Slab, end: int) -> bool:
        """Whether what was before an offset was durable."""
        if slab.header is None:
            return False
        i = self.log.index_of(slab.base) + 1
        after = self.log.header(i) if i < len(self.log.bases) else None
        return (after is not None and after.shows_sealed(slab.header)) or slab.marked() >= end

    # --- from slab to slab -------------------------------------------------------------------

    def _leave(self, slab: Slab, tail: Tail | None) -> bool:
        """Leaves the slab if another one follows. Otherwise the slab may grow."""
        if tail is not None and self._gap is None:
            self.address = max(self.address, slab.base + tail.begin)
        if slab.limit is None:
            self.log.refresh_after(slab)
            successor = self.log.after(slab.base)
            if successor is None:
                return False
            slab.limit = successor - slab.base
        if self._walker is not None and self._walker.limit is None:
            self._walker.limit = slab.limit
            return True  # first read what was written since the last look
        self._next_base = slab.base + slab.limit
        self._left_base = slab.base
        self._left_end = slab.base + slab.file.end(None)
        self.log.forget(slab.base)
        self.slab = self._walker = None
        return True

    def _enter(self) -> bool:
        """Opens the slab that follows; False if there is none yet."""
        if self._place is None:  # else the listing in which the place was found is good enough
            self.log.refresh()
        i = self.log.index_of(self._next_base)
        if i < 0 or self.log.bases[i] != self._next_base:
            i += 1  # it was removed: take the next one
        if i >= len(self.log.bases):
            return False
        try:
            slab = self.log.slab(i)
        except FileNotFoundError:  # pruned since the listing
            if not self.log.refresh(force=True):  # it is still listed
                raise StorageFailed(
                    "listed, and not there",
                    hint="where it is a symbolic link, bring back what it leads to",
                    path=self.log.slab_path(self.log.bases[i]),
                ) from None
            return True
        reason: GapReason | None = None
        if slab.lacks_header and slab.limit is None:
            # A header is durable before its slab has a name: it was there. If this is such a slab:
            # of a log without headers, a power cut may take the first bytes and leave others.
            reason = "corrupt" if self.log.shows_format else "torn_or_corrupt"
            if slab.foreign is not None:
                reason = "foreign"
        end = max(self.address, slab.base + slab.end_offset)  # a cursor may be past the file's
        place, self._place = self._place, None  # from here on nothing raises
        offset = None
        if place is not None and place.slab == slab.base:
            offset = place.offset
        else:
            self._bridge_hole(slab, first=i == 0)
        self.slab = slab
        self._passed_foreign |= slab.foreign is not None
        if not slab.lacks_header:
            self._walker = slab.walker(offset)
        elif reason is not None:
            self._open_gap(self.address, end, reason)
            self.address = end
            self._close_gap(None)
        return True

    def _bridge_hole(self, slab: Slab, *, first: bool) -> None:
        """Adds the bytes between the last intact byte and a slab just opened to the gap."""
        head = slab.header
        if slab.lacks_header:
            return  # part of a hole: the next slab with a header counts it
        passed_foreign, self._passed_foreign = self._passed_foreign, False
        end = slab.base if head is None else min(head.predecessor_end, slab.base)
        gone = slab.base != self._next_base  # the slab that should follow is missing
        if gone and first:
            self._open_gap(self.address, slab.base, "pruned")
        elif end > self.address:
            reason: GapReason = "missing"
            if passed_foreign:
                reason = "foreign"
            elif head is None:  # the bases alone say where a slab should be
                is_gone = first and self._left_end < slab.base
                reason = "pruned" if is_gone else "torn_or_corrupt"
            elif head.predecessor_base == self._left_base:
                reason = "corrupt"
            elif first:  # the slab that this scan left was the last one that is gone
                reason = "pruned"
            self._open_gap(self.address, end, reason)
        self._close_gap(None if head is None or head.ordinal_unsure else head.base_ordinal)
        if head is not None and head.predecessor_cut:
            cut_end = min(end + head.predecessor_cut, slab.base)  # the gap ends before the slab
            self._out.append(Gap(end, cut_end, "torn", None))
        self.address = max(self.address, slab.base)
        self.ordinal = None if head is None else head.base_ordinal

    # --- gaps --------------------------------------------------------------------------------

    def _open_gap(self, begin: int, end: int, reason: GapReason) -> None:
        """Opens a gap from the wanted address on, or extends the open one."""
        gap = self._gap or OpenGap(max(begin, self.address), end, reason, self.ordinal)
        self._gap = gap.extended(end, reason)

    def _close_gap(self, ordinal: int | None) -> None:
        """Ends the gap: the next part is intact, with `ordinal` records of the log before it."""
        gap, self._gap = self._gap, None
        if gap is None:
            return
        self.ordinal = ordinal  # later losses are counted from here
        self._out.append(gap.counted(ordinal))
        self.address = max(self.address, gap.end)
