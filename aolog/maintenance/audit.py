"""One pass over a whole log: reads and hashes every byte that a frame covers, once.

The gaps come from a scan, as for every reader. In addition each slab's frames are counted as its writer
counted them, to compare the seal with the frames, and to show `repair` which bytes are intact. Reads
only; verify.py judges the result.
"""

from __future__ import annotations

from contextlib import suppress
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

import xxhash

from aolog.format.frame import KIND_SEAL, Frame
from aolog.format.slab import (
    HEADER_COPIES,
    HEADER_LEN,
    MAGIC,
    NO_TIMESTAMP,
    TRAILER_LEN,
    Index,
    NewerVersion,
    Seal,
    SlabHeader,
    decode_seal_body,
    decode_slab_header,
    decode_trailer,
)
from aolog.format.stretch import survey_of
from aolog.read import seek
from aolog.read.batch import RecordFrame
from aolog.read.scan import Scan

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from aolog.format.columns import Columns
    from aolog.format.stretch import Survey
    from aolog.log.directory import Log
    from aolog.log.slab_file import Slab
    from aolog.log.walk import Walker
    from aolog.record import Gap
    from aolog.storage.directory import Inside
    from aolog.storage.file import Stat

# What a seal says of the frames besides their index, in the order of its fields.
_SUMMARY = "records", "frames", "least timestamp", "greatest timestamp", "hash of the frame headers"


class SlabAudit:
    """The contents of one slab. Offsets are relative to the slab."""

    frames: int = 0  # intact ones before the seal
    records: int = 0  # in those frames
    least_us: int = NO_TIMESTAMP
    greatest_us: int = NO_TIMESTAMP
    durable: int = 0  # offset up to which a frame shows that everything is durable
    seal_header: SlabHeader | None = None  # in the intact seal; None without one
    copies: tuple[SlabHeader | NewerVersion | None, ...] = ()  # of the header
    trailer: int | None = None  # the seal's offset in the trailer; None without an intact trailer
    # Only zeros after the magic, as in repair's copy of an unreadable slab.
    is_emptied: bool = False
    limit: int | None = None  # offset at which the successor begins
    stat: Stat | None = None  # of the file, after the pass

    def __init__(self, slab: Slab, path: Inside) -> None:
        self.base = slab.base
        self.path = path
        self.has_headers = slab.has_headers
        self.header = slab.header
        self.foreign = slab.foreign  # the UUID of another log, if no header copy is this log's
        self.data_begin = slab.data_begin
        self.differences: list[str] = []  # between seal and frames; empty if frames are missing
        self.index = Index([], [], [])
        self._salt = slab.salt
        self._hash = xxhash.xxh3_64()
        self.runs: list[tuple[int, int]] = []  # ranges of intact frames, the seal included

    @property
    def headers_hash(self) -> int:
        """The hash of all frame headers before the seal, as in a seal; without headers each frame has its offset
        before its own."""
        return int(self._hash.intdigest())

    @property
    def size(self) -> int:
        """The file's size, cut at the successor's base."""
        size = self.stat.size if self.stat is not None else 0
        return size if self.limit is None else min(size, self.limit)

    @property
    def true_base(self) -> int | None:
        """The base in its header, if the slab is under another slab's name."""
        bases = (copy.base for copy in self.copies if isinstance(copy, SlabHeader))
        return next((base for base in bases if base != self.base), None)

    @property
    def end(self) -> int:
        """The offset after the last intact frame."""
        return self.runs[-1][1] if self.runs else self.data_begin

    def survey(self, walker: Walker) -> Survey | None:
        """Counts the plain frames that come next."""
        begin = walker.offset
        found = walker.survey(self.index.last_offset, self.greatest_us, headers=True)
        if found is not None:
            self._add(begin, found)
        return found

    def walked(self, frames: Sequence[tuple[Frame, Columns | None]]) -> None:
        """Counts the intact frames that come next."""
        for is_seal, group in groupby(frames, lambda each: each[0].header.kind == KIND_SEAL):
            run = list(group)
            if is_seal:
                for seal, _ in run:
                    self._extend(seal.offset, seal.end)
                    self._note_seal(seal)
            else:
                seen = self.index.last_offset, self.greatest_us
                self._add(run[0][0].offset, survey_of(run, self._salt, *seen, headers=True))

    def _extend(self, begin: int, end: int) -> None:
        """Adds a range of intact frames."""
        if self.runs and self.runs[-1][1] == begin:
            begin, _ = self.runs.pop()
        self.runs.append((begin, end))

    def _add(self, begin: int, found: Survey) -> None:
        self._extend(begin, found.end)
        if found.durable >= 0:
            self.durable = found.durable
        self._hash.update(found.headers)
        for point in found.points:
            self.index.note(*point)
        if found.batches and (found.least_us < self.least_us or not self.records):
            self.least_us = found.least_us
        self.greatest_us = found.greatest_us
        self.frames += found.frames
        self.records += found.records

    def _note_seal(self, frame: Frame) -> None:
        seal = decode_seal_body(frame.body)
        self.durable = frame.end
        if seal is None or seal.header.base != self.base:
            self.differences.append("its contents are invalid")
            return
        self.seal_header = seal.header
        if self.runs == [(self.data_begin, frame.end)]:  # without damage between them
            range_us, hashed = (self.least_us, self.greatest_us), self.headers_hash
            counted = Seal(seal.header, self.records, self.frames, *range_us, hashed, self.index)
            for what, in_seal, here in zip(_SUMMARY, seal[1:-1], counted[1:-1], strict=True):
                if in_seal != here:
                    self.differences.append(f"it has {what} {in_seal}, the frames have {here}")
            if seal.index != self.index:
                self.differences.append("its index differs from the frames' offsets")
        self.index = Index([], [], [])  # frees the largest attribute


class Audit(NamedTuple):
    """A whole log."""

    slabs: list[SlabAudit]  # in order
    gaps: list[Gap]  # as for a reader of the whole log
    frames: int
    records: int
    bytes: int  # of slab files
    end: int  # address after the last intact frame
    tail_bytes: int  # after the end; 0 if they are all zero


class _Pass:
    """The slabs that a scan has seen."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._slabs: dict[int, SlabAudit] = {}
        self.batches = self.records = 0  # that can be read

    def of(self, slab: Slab) -> SlabAudit:
        """What was counted of a slab."""
        if slab.base not in self._slabs:
            self._slabs[slab.base] = SlabAudit(slab, self._log.slab_path(slab.base))
        return self._slabs[slab.base]

    def survey(self, slab: Slab, walker: Walker) -> Survey | None:
        """As scan.Auditor."""
        found = self.of(slab).survey(walker)
        if found is not None:
            self.batches += found.batches
            self.records += found.records
        return found

    def walked(self, slab: Slab, frames: Sequence[tuple[Frame, Columns | None]]) -> None:
        """As scan.Auditor."""
        self.of(slab).walked(frames)
        readable = [columns.records for _, columns in frames if columns is not None]
        self.batches += len(readable)
        self.records += sum(readable)


def audit(log: Log, *, progress: Callable[[int, int], None] | None = None) -> Audit:
    """Reads what the slab files hold now, and little of what a writer appends meanwhile. An unfinished
    frame is not damage."""
    entries = [log.storage.entry(log.slab_path(base)) for base in log.bases]
    sizes = [0 if entry is None else entry.size for entry in entries]
    total, last_address = sum(sizes), log.bases[-1] + sizes[-1]
    seen = _Pass(log)
    done = tail_bytes = 0
    gaps: list[Gap] = []
    scan = Scan(log, log.listed(lambda: seek.earliest(log)), audit=seen)
    while (found := scan.next()) is not None:
        if isinstance(found, RecordFrame):
            if found.address >= last_address:
                break  # the rest was appended meanwhile; with a fast writer this loop would never end
            done += found.end - found.address
        else:
            gaps.append(found)
            done += found.end - found.begin
        if progress is not None:
            progress(min(done, total), total)
    end, bases = scan.position.address, log.bases
    if (last := scan.slab) is not None:
        bases = bases[: log.index_of(last.base) + 1]
        tail = end - last.base, last.end_offset
        # Without headers zeros count too: the Go program takes them for records.
        if found is None and (not last.has_headers or not last.file.is_blank(*tail)):
            tail_bytes = tail[1] - tail[0]
    listed = []
    for i in range(len(bases)):
        with suppress(FileNotFoundError):  # pruned meanwhile
            slab = log.slab(i)
            listed.append(_finish(seen.of(slab), slab))
    if progress is not None:
        progress(total, total)
    # Slabs that were pruned during the pass are not a loss.
    first = listed[0].base if listed else end
    gaps = [gap for gap in gaps if gap.reason != "pruned" or gap.end > first]
    size = sum(found.size for found in listed)
    return Audit(listed, gaps, seen.batches, seen.records, size, end, max(0, tail_bytes))


def _finish(found: SlabAudit, slab: Slab) -> SlabAudit:
    """Adds what is not in the frames."""
    found.stat = slab.file.stat()
    found.limit = slab.limit
    if not found.has_headers:
        return found
    found.copies = tuple(
        decode_slab_header(slab.file.pread(HEADER_LEN, at)) for at in HEADER_COPIES
    )
    if slab.header is None:
        prelude = slab.file.pread(slab.data_begin, 0)
        found.is_emptied = prelude == MAGIC[: len(prelude)].ljust(len(prelude), b"\0")
    end = slab.end_offset
    trailer = decode_trailer(slab.file.pread(TRAILER_LEN, max(0, end - TRAILER_LEN)))
    if trailer is not None and slab.header is not None and trailer[1] == slab.header.salt:
        found.trailer = trailer[0]
    if found.seal_header is None and (seal := slab.seal()) is not None:  # since it was walked
        found.seal_header = seal.header
    return found
