"""What must come out of a damaged log, from FORMAT.md's rules and the bytes that were changed.

A frame is intact if its bytes are the ones that were written, at their place, in a slab that still has
a header. Bytes are compared; nothing is hashed or searched. From that follow the records that every
reader returns, the gaps with their counts and reasons, and the end. Slabs of another log may be among
the files: the headers that are left decide whose log it is.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

from aolog.record import Gap, GapReason, Record
from fuzz.layout import (
    DATA_BEGIN,
    HEADER_AT,
    HEADER_LEN,
    RECORDS,
    SLAB_MAGIC,
    VERSION_MAX,
    Frame,
    Known,
    Slab,
    base_of,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Expected", "expect"]


class Expected(NamedTuple):
    """records, gaps: in the order of the log. end: after the last intact frame. tail_bytes: after the end,
    not blank, in the last slab. headers: how many slabs have one (format 2). newer: a newer release wrote
    a slab, and reading is refused there. unclear: nothing shows whose log it is, and everything is
    refused. log: what is known of the log."""

    records: list[Record]
    gaps: list[Gap]
    end: int
    tail_bytes: int
    headers: int
    newer: bool
    unclear: bool
    log: Known


_PROBES = 8  # slabs that are searched for the log's format


class _View(NamedTuple):
    """A file as it is now. data: all of it. end: where the slab ends, by name or by size. copies:
    slabs whose headers are in it, in the order of their places. header: the one of them that
    counts. foreign: none does, and one is another log's."""

    base: int
    data: bytes
    end: int
    copies: list[Slab]
    header: Slab | None = None
    foreign: bool = False

    @property
    def uuid(self) -> bytes | None:
        """The log's UUID in the slab's own header."""
        return next((slab.uuid for slab in self.copies if slab.base == self.base), None)

    @property
    def newer(self) -> bool:
        """Whether a newer release wrote it."""
        return (
            self.header is None
            and not self.foreign
            and any(
                len(self.data) >= at + HEADER_LEN
                and self.data[at : at + 8] == SLAB_MAGIC
                and struct.unpack_from("<H", self.data, at + 8)[0] > VERSION_MAX
                for at in HEADER_AT
            )
        )

    def holds(self, slab: Slab, begin: int, end: int) -> bool:
        """Whether [begin, end) is there and as it was written."""
        return end <= self.end and self.data[begin:end] == slab.data[begin:end]


def expect(known: Known, files: Mapping[str, bytes]) -> Expected:
    """What a reader from the beginning returns. Other files than slabs do not count."""
    sizes = sorted(
        (base, data) for name, data in files.items() if (base := base_of(name)) is not None
    )
    ends = [base for base, _ in sizes[1:]]
    limits = [end - base for (base, _), end in zip(sizes, ends, strict=False)]
    if all(slab.format == 1 for slab in known.slabs):
        return _expect_format_1(known, sizes, limits)
    views = []
    for i, (base, data) in enumerate(sizes):
        end = min(len(data), limits[i]) if i < len(limits) else len(data)
        views.append(_View(base, data, end, _copies(known, data, end)))
    uuids = [view.uuid for view in views if view.uuid is not None]
    uuid = _decide(uuids)
    if uuids and uuid is None:
        newer = any(view.newer for view in views)
        return Expected([], [], 0, 0, len(uuids), newer, unclear=True, log=known)
    if known.other is not None and any(slab.uuid == uuid for slab in known.other.slabs):
        known = known.other._replace(other=known._replace(other=None))
    return _Reading(known, [_judged(view, uuid) for view in views]).run()


def _decide(uuids: list[bytes]) -> bytes | None:
    """The log's UUID, without cursors; None if it is undecided."""
    if not uuids or uuids[0] == uuids[-1]:
        return uuids[0] if uuids else None
    ranked = sorted({(uuids.count(uuid), uuid) for uuid in uuids}, reverse=True)
    return ranked[0][1] if ranked[0][0] > ranked[1][0] else None


def _copies(known: Known, data: bytes, end: int) -> list[Slab]:
    found = [
        slab
        for at in HEADER_AT
        for slab in known.all_slabs
        if slab.format == 2 and data[at : at + HEADER_LEN] == slab.data[:HEADER_LEN]
    ]
    for slab in known.all_slabs:
        seal = slab.seal
        if (
            seal is not None
            and seal.end == end
            and data[seal.begin : end] == slab.data[seal.begin :]
        ):
            found.append(slab)
    return found


def _judged(view: _View, uuid: bytes | None) -> _View:
    ours = [slab for slab in view.copies if slab.uuid == uuid]
    header = next((slab for slab in ours if slab.base == view.base), None)
    foreign = header is None and uuid is not None and len(ours) < len(view.copies)
    return view._replace(header=header, foreign=foreign)


def _shows_format(known: Known, view: _View) -> bool:
    """Whether anything in a slab shows format 2; the header of another slab does too."""
    second = view.data[HEADER_AT[1] : HEADER_AT[1] + HEADER_LEN]
    return (
        view.header is not None
        or view.data.startswith(SLAB_MAGIC[:4])
        or any(slab.format == 2 and slab.data[:HEADER_LEN] == second for slab in known.all_slabs)
    )


class _Reading:
    def __init__(self, known: Known, views: list[_View]) -> None:
        self.known = known
        self.views = views
        self.records: list[Record] = []
        self.gaps: list[Gap] = []
        self.at = views[0].base  # after the last intact byte
        first = views[0].header
        self.ordinal: int | None = 0 if views[0].base == 0 else None
        if first is not None:
            self.ordinal = first.base_ordinal
        self.tail = 0
        self.left: int | None = None
        self.passed_foreign = False

    def run(self) -> Expected:
        for i, view in enumerate(self.views):
            if view.newer:
                break
            following = self.views[i + 1] if i + 1 < len(self.views) else None
            if view.header is not None:
                if i > 0:
                    self._hole(view.header)
                self._slab(view, view.header, following)
            elif following is None:
                end = max(self.at, view.base + len(view.data))
                sure = any(_shows_format(self.known, seen) for seen in self.views[:_PROBES])
                reason: GapReason = "corrupt" if sure else "torn_or_corrupt"
                self.gaps.append(Gap(self.at, end, "foreign" if view.foreign else reason, None))
                self.at = end
            self.passed_foreign = view.header is None and (view.foreign or self.passed_foreign)
            self.left = view.base
        headers = sum(view.header is not None for view in self.views)
        newer = any(view.newer for view in self.views)
        return Expected(
            self.records,
            self.gaps,
            self.at,
            self.tail,
            headers,
            newer,
            unclear=False,
            log=self.known,
        )

    def _hole(self, head: Slab) -> None:
        """Between the last intact byte and where this slab says that its predecessor ended."""
        lost = None
        if self.ordinal is not None and not head.ordinal_unsure:
            lost = max(0, head.base_ordinal - self.ordinal)
        if head.predecessor_end > self.at:
            reason: GapReason = "corrupt" if head.predecessor_base == self.left else "missing"
            if self.passed_foreign:
                reason = "foreign"
            self.gaps.append(Gap(self.at, head.predecessor_end, reason, lost))
        if head.predecessor_cut:
            end = head.predecessor_end
            self.gaps.append(Gap(end, end + head.predecessor_cut, "torn", None))
        self.at = max(self.at, head.base)
        self.ordinal = head.base_ordinal

    def _slab(self, view: _View, slab: Slab, following: _View | None) -> None:
        at = DATA_BEGIN
        continued = (
            following is not None
            and following.header is not None
            and following.header.predecessor_base == view.base
            and following.header.epoch == slab.epoch
        )
        for frame in slab.frames:
            if not view.holds(slab, frame.begin, frame.end):
                continue
            if frame.begin > at:
                sure = continued or _marked(view, slab, frame.begin)
                expected = self.ordinal
                lost = None if expected is None else slab.base_ordinal + frame.ordinal - expected
                begin, end = view.base + at, view.base + frame.begin
                self.gaps.append(Gap(begin, end, "corrupt" if sure else "torn_or_corrupt", lost))
            if frame.kind == RECORDS:
                self.records += self.known.of(slab, frame)
            self.ordinal = slab.base_ordinal + frame.ordinal + frame.records
            at = frame.end
        self.at = max(self.at, view.base + at)
        if following is None and any(view.data[at : view.end]):
            self.tail = view.end - at


def _marked(view: _View, slab: Slab, begin: int) -> bool:
    """Whether an intact frame from `begin` on has the durable flag."""
    return any(
        frame.durable and frame.begin >= begin and view.holds(slab, frame.begin, frame.end)
        for frame in slab.frames
    )


# --- format 1 --------------------------------------------------------------------------------


def _expect_format_1(known: Known, sizes: list[tuple[int, bytes]], limits: list[int]) -> Expected:
    """A changed frame is skipped if its length and the next frame are as they were written; otherwise the
    rest of its slab is lost."""
    records: list[Record] = []
    gaps: list[Gap] = []
    reached = tail = 0
    for i, (base, data) in enumerate(sizes):
        last = i >= len(limits)
        end = len(data) if last else min(len(data), limits[i])
        slab = next((s for s in known.slabs if s.base == base), None)
        frames = slab.frames if slab is not None else ()
        original = slab.data if slab is not None else b""
        if i and base > reached:
            gaps.append(Gap(reached, base, "torn_or_corrupt", None))
        at, j = 0, 0
        while j < len(frames) and slab is not None:
            frame = frames[j]
            if (
                frame.end <= end
                and data[frame.begin : frame.end] == original[frame.begin : frame.end]
            ):
                records += known.of(slab, frame)
                at, j = frame.end, j + 1
            elif _is_skipped(frames[j : j + 2], data, original, end):
                gaps.append(Gap(base + frame.begin, base + frame.end, "torn_or_corrupt", None))
                at, j = frame.end, j + 1
            else:
                break
        reached = base + at
        tail = end - at if last else 0
    return Expected(records, gaps, reached, tail, 0, newer=False, unclear=False, log=known)


def _is_skipped(frames: tuple[Frame, ...], data: bytes, original: bytes, end: int) -> bool:
    if len(frames) < 2:
        return False
    bad, after = frames
    return (
        after.end <= end
        and data[bad.begin : bad.begin + 4] == original[bad.begin : bad.begin + 4]
        and data[after.begin : after.end] == original[after.begin : after.end]
    )
