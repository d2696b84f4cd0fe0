"""The layout of an undamaged log: which bytes are which frame, and which records it has.

A parser of its own reads it from intact files, by the tables in FORMAT.md: without hashes or searches,
and without the log's code, so that the oracle does not share its errors. The code that appended the
records passes them.
"""

from __future__ import annotations

import re
import struct
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from aolog.record import Record

__all__ = ["Files", "Frame", "Known", "Slab", "base_of", "know", "parse_slab", "read_files"]

Files = dict[str, bytes]  # name below the log's directory: content

HEADER_LEN = 512
HEADER_AT = (0, 4096)
DATA_BEGIN = 8192
FRAME_HEADER_LEN = 40
RECORDS, SEAL = 1, 3  # kinds of frames
VERSION_MAX = 3  # with codecs; 2 without
NO_PREDECESSOR = (1 << 64) - 1
SLAB_MAGIC = b"\x89AO\xff\r\n\x1a\n"
_FRAME = struct.Struct("<2sBBIQqIIII")
_QUEUEFKA = struct.Struct("<II")
_NAME = re.compile(r"([0-9]{20})\.slab")


class Frame(NamedTuple):
    """begin, end: offsets in the slab. ordinal: records of the slab before it. records: in it."""

    begin: int
    end: int
    kind: int
    durable: bool
    timestamp_us: int | None
    ordinal: int
    records: int


class Slab(NamedTuple):
    """An intact slab. format 1 has frames of one record each, no header and no UUID."""

    format: int
    base: int
    data: bytes
    frames: tuple[Frame, ...]
    salt: int = 0
    epoch: int = 0
    base_ordinal: int = 0
    ordinal_unsure: bool = False
    predecessor_base: int = NO_PREDECESSOR
    predecessor_end: int = 0
    predecessor_cut: int = 0
    uuid: bytes = b""

    @property
    def seal(self) -> Frame | None:
        """The last frame, if it is one."""
        last = self.frames[-1] if self.frames else None
        return last if last is not None and last.kind == SEAL else None


class Known(NamedTuple):
    """Everything that a writer ever wrote to a log. records: by address. other: the same of another log,
    whose slabs a damage may put among this one's."""

    slabs: tuple[Slab, ...]
    records: Mapping[int, Record]
    other: Known | None = None

    @property
    def all_slabs(self) -> tuple[Slab, ...]:
        """The other log's too."""
        return self.slabs if self.other is None else (*self.slabs, *self.other.slabs)

    def of(self, slab: Slab, frame: Frame) -> list[Record]:
        """The frame's records; one without a timestamp has the frame's."""
        first = slab.base + frame.begin
        found = [self.records[first + i] for i in range(frame.records)]
        return [
            record
            if record.timestamp is not None
            else record._replace(timestamp=frame.timestamp_us)
            for record in found
        ]


def base_of(name: str) -> int | None:
    """The address in a slab's name; None for other files."""
    match = _NAME.fullmatch(name)
    return int(match[1]) if match and int(match[1]) < 1 << 63 else None


def read_files(path: str) -> Files:
    """All files below a directory."""
    root = Path(path)
    return {
        str(at.relative_to(root)): at.read_bytes() for at in sorted(root.rglob("*")) if at.is_file()
    }


def know(files: Files, records: Iterable[Record], before: Known | None = None) -> Known:
    """The contents of intact files of one log. before: what was known already; its slabs are not parsed
    again."""
    old = before.slabs if before is not None else ()
    seen = {slab.data for slab in old}
    new = [
        parse_slab(base, data)
        for name, data in files.items()
        if (base := base_of(name)) is not None and data not in seen
    ]
    merged = dict(before.records) if before is not None else {}
    merged.update((record.address, record) for record in records)
    return Known((*old, *new), merged, before.other if before is not None else None)


def parse_slab(base: int, data: bytes) -> Slab:
    """The slab of an intact file, up to its last frame."""
    if not data.startswith(SLAB_MAGIC):
        return _parse_format_1(base, data)
    (flags,) = struct.unpack_from("<I", data, 12)
    (base_ordinal, salt, epoch) = struct.unpack_from("<QII", data, 40)
    before_base, before_end, before_cut = struct.unpack_from("<QQQ", data, 64)
    frames = []
    at = DATA_BEGIN
    while at + FRAME_HEADER_LEN <= len(data):
        magic, kind, frame_flags, body_len, _, stamp, ordinal, count, _, _ = _FRAME.unpack_from(
            data, at
        )
        end = at + FRAME_HEADER_LEN + body_len + -body_len % 8
        if magic != b"\xa0\xf2" or end > len(data):
            break
        frames.append(Frame(at, end, kind, bool(frame_flags & 1), stamp, ordinal, count))
        at = end
    return Slab(
        2,
        base,
        data,
        tuple(frames),
        salt,
        epoch,
        base_ordinal,
        bool(flags & 2),
        before_base,
        before_end,
        before_cut,
        data[16:32],
    )


def _parse_format_1(base: int, data: bytes) -> Slab:
    frames = []
    at = 0
    while at + _QUEUEFKA.size <= len(data):
        end = at + _QUEUEFKA.size + _QUEUEFKA.unpack_from(data, at)[0]
        if end > len(data):
            break
        frames.append(Frame(at, end, RECORDS, False, None, 0, 1))
        at = end
    return Slab(1, base, data, tuple(frames))
