"""frame: arbitrary bytes as a slab's content.

A walker returns frames, damage and a tail, moves forward, ends, raises nothing, and takes no more memory
and time than the bytes allow; every frame is within the slab. A reader raises only the log's own errors. The compiled walk and its Python
twin find the same.

A case is a slab in hex and changes of it. Some changes have right hashes, so that hostile fields are
believed.
"""

from __future__ import annotations

import importlib
import struct
import sys
import time
import tracemalloc
from typing import TYPE_CHECKING

import xxhash

import aolog
from aolog.format.columns import decode_run
from aolog.format.frame import KIND_RECORDS, decode_header, encode_frame
from aolog.format.frame import Frame as LogFrame
from aolog.format.framing import Salted
from aolog.format.slab import Index, Seal, SlabHeader, encode_seal
from aolog.format.stretch import Window, gather, python_gather, python_survey, survey
from aolog.log.directory import Log
from aolog.log.walk import Damage as WalkDamage
from aolog.log.walk import Tail, Walker
from aolog.queuefka.framing import CHAINED
from aolog.read.batch import RecordFrame
from aolog.read.scan import Scan
from aolog.read.seek import earliest
from aolog.storage.directory import Inside
from aolog.storage.storage import Storage
from fuzz.check import Mismatch
from fuzz.layout import DATA_BEGIN, FRAME_HEADER_LEN
from fuzz.shapes import CODECS

if TYPE_CHECKING:
    import random

    from fuzz.disk import Disk
    from fuzz.target import Case

__all__ = ["FrameTarget"]

SALT = 0x0BADCAFE
NAME = "00000000000000000000.slab"
MEMORY_MAX = 16 << 20  # a walker's chunk and its copy, and what Python keeps
SECONDS_MAX = 5.0  # a thousand times what a few KiB take
_WORDS = (0, 1, 2, 7, 8, 0xFF, 0x7FFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFCE, 0xFFFFFFCF, 0xFFFFFFFF)
_COLUMNS = (0, 1, 3, 5, 0x0D, 0x1D, 0x29, 0x51, 0xD1, 0x101, 0x301, 0x3FF, 0xFFFFFFFF)


class FrameTarget:
    """See the module."""

    measures = True  # memory, which is slow: not when an engine counts on speed

    def __init__(self, disk: Disk) -> None:
        self._disk = disk

    def draw(self, rng: random.Random) -> Case:
        """A valid slab, or junk; then changes."""
        steps: list[list[str | int]] = []
        at = DATA_BEGIN
        for _ in range(rng.randrange(1, 6)):
            if rng.random() < 0.3:
                steps.append(_packed_frame(rng))
                at += FRAME_HEADER_LEN + len(str(steps[-1][-1])) // 16 * 8 + 8
                continue
            if rng.random() < 0.6:
                steps.append(_good_frame(rng))
                at += FRAME_HEADER_LEN + len(str(steps[-1][-1])) // 16 * 8 + 8
                continue
            body = _body(rng)
            kind = rng.choice([1, 1, 1, 1, 2, 3, rng.randrange(256)])
            columns = rng.choice(_COLUMNS)
            count = rng.choice([0, 1, 1, 2, 3, len(body), *_WORDS])
            steps.append(["frame", kind, rng.randrange(2), count, columns, body.hex()])
            at += FRAME_HEADER_LEN + len(body) + -len(body) % 8
        for _ in range(rng.choice([0, 1, 2, 4])):
            place = rng.randrange(DATA_BEGIN, at)
            what = rng.choice(["flip", "field", "field", "insert", "cut", "seal"])
            if what == "flip":
                steps.append(["flip", place, rng.randrange(8)])
            elif what == "field":  # of some frame, with the hash made right
                number, field = rng.randrange(6), rng.choice([2, 3, 4, 24, 28, 32])
                steps.append(["field", number, field, rng.choice(_WORDS)])
            elif what == "insert":
                steps.append(["insert", place, rng.randbytes(rng.choice([1, 8, 40, 300])).hex()])
            elif what == "cut":
                steps.append(["cut", place])
            else:
                steps.append(["seal", rng.choice(_WORDS)])
        if rng.random() < 0.2:
            old: list[list[str | int]] = []
            old += [["old", rng.randbytes(rng.randrange(1, 60)).hex()] for _ in range(4)]
            steps = [*old, *(step for step in steps if step[0] not in {"frame", "field", "seal"})]
            steps = [_near_begin(step) for step in steps]
            return {"steps": steps, "format": 1}
        return {"steps": steps, "format": 2, "codecs": rng.random() < 0.8}

    def run(self, case: Case) -> str:
        """Walks it, then reads it as a log."""
        begin = DATA_BEGIN if case["format"] == 2 else 0
        content = build(case["steps"], begin)
        prelude = _prelude(codecs=case.get("codecs", False)) if begin else b""
        return self.run_bytes(prelude + content, case["format"])

    def run_bytes(self, slab: bytes, log_format: int) -> str:
        """Walks and reads these bytes as a whole slab file."""
        path = self._disk.put({NAME: slab})
        if self.measures:
            tracemalloc.start()
        begun_s = time.monotonic()
        try:
            words = [_walk(path, slab, log_format), _read(path)]
            _compare_halves(slab, log_format)
            took_s = time.monotonic() - begun_s
            peak = tracemalloc.get_traced_memory()[1] if self.measures else 0
        finally:
            if self.measures:
                tracemalloc.stop()
        if peak > MEMORY_MAX + 8 * len(slab):
            raise Mismatch(f"{peak} bytes of memory for {len(slab)} of slab")
        if took_s > SECONDS_MAX:
            raise Mismatch(f"{took_s:.1f} s for {len(slab)} bytes of slab")
        return "; ".join(words)


def build(steps: list[list[str | int]], begin: int = DATA_BEGIN) -> bytes:
    """The content after the prelude, which ends at `begin`."""
    data = b""
    starts: list[int] = []
    for step in steps:
        what, *rest = step
        texts = [value for value in rest if isinstance(value, str)]
        numbers = [value for value in rest if isinstance(value, int)]
        if what == "frame":
            kind, flags, count, columns = numbers
            starts.append(len(data))
            offset = DATA_BEGIN + len(data)
            data += -len(data) % 8 * b"\0"
            parts, _ = encode_frame(
                offset + -offset % 8, SALT, [bytes.fromhex(texts[0])], kind=kind, flags=flags,
                count=count & 0xFFFFFFFF, columns=columns,
            )  # fmt: skip  # as the field table has them
            data += b"".join(map(bytes, parts))
        elif what == "old":
            value = bytes.fromhex(texts[0])
            data += struct.pack("<II", len(value), xxhash.xxh32_intdigest(value)) + value
        elif what == "flip":
            at = numbers[0] - begin
            if 0 <= at < len(data):
                data = data[:at] + bytes([data[at] ^ 1 << numbers[1]]) + data[at + 1 :]
        elif what == "field" and starts:
            data = _with_field(data, starts[numbers[0] % len(starts)], numbers[1], numbers[2])
        elif what == "insert":
            at = max(0, numbers[0] - begin)
            data = data[:at] + bytes.fromhex(texts[0]) + data[at:]
        elif what == "cut":
            data = data[: max(0, numbers[0] - begin)]
        elif what == "seal":
            data += -len(data) % 8 * b"\0"
            seal = Seal(_header(), numbers[0], numbers[0], 0, 0, 0, Index([], [], []))
            parts = encode_seal(_small(seal), DATA_BEGIN + len(data), flags=1, timestamp_us=0)
            data += b"".join(map(bytes, parts))
    return data


def _good_frame(rng: random.Random) -> list[str | int]:
    """A value, or a column of them, as a writer makes it."""
    if rng.random() < 0.5:
        return ["frame", 1, rng.randrange(2), 1, 0, rng.randbytes(rng.randrange(50)).hex()]
    values = [rng.randbytes(rng.randrange(9)) for _ in range(rng.randrange(1, 6))]
    ends = [sum(map(len, values[:i])) for i in range(len(values) + 1)]
    offsets = struct.pack(f"<{len(ends)}I", *ends)
    body = offsets + bytes(-len(offsets) % 8) + b"".join(values)
    return ["frame", 1, rng.randrange(2), len(values), 1, body.hex()]


def _packed_frame(rng: random.Random) -> list[str | int]:
    """A good frame's body, compressed, with lengths that may be wrong, and zeros after it."""
    _, kind, flags, count, columns, text = _good_frame(rng)
    unit = bytes.fromhex(str(text))
    raw = unit if columns else unit * rng.choice([1, 9, 900])
    codec = rng.choice([1, 2, 1, 2, rng.randrange(16)])
    packed = _compress(codec, raw) if rng.random() < 0.8 else rng.randbytes(rng.randrange(60))
    lengths = [len(raw), len(packed)]
    if rng.random() < 0.3:
        lengths[rng.randrange(2)] = rng.choice([*_WORDS, len(raw) + 1, len(packed) + 1])
    body = struct.pack("<II", *lengths) + packed + bytes(rng.choice([0, 0, 5, len(raw) >> 10]))
    return ["frame", kind, int(flags) | codec << 4, count, columns, body.hex()]


def _compress(codec: int, raw: bytes) -> bytes:
    """By the codec's own library, where it is installed."""
    name = {1: "zstd", 2: "lz4"}.get(codec)
    if name == "lz4" and name in CODECS:
        from lz4.block import compress

        packed: bytes = compress(raw, store_size=False)
        return packed
    if name == "zstd" and name in CODECS:
        module = "compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd"
        return bytes(importlib.import_module(module).compress(raw))
    return raw


def _near_begin(step: list[str | int]) -> list[str | int]:
    what, at, *rest = step
    return [what, at % 100 if isinstance(at, int) else at, *rest]


def _small(seal: Seal) -> Seal:
    return seal._replace(records=seal.records & 0xFFFFFFFF)


def _with_field(data: bytes, start: int, field: int, word: int) -> bytes:
    """A frame's header with another field and a right hash."""
    start += -start % 8
    head = data[start : start + FRAME_HEADER_LEN]
    if len(head) < FRAME_HEADER_LEN:
        return data
    size = 1 if field in {2, 3} else 4
    new = (word & (1 << 8 * size) - 1).to_bytes(size, "little")
    head = head[:field] + new + head[field + size :]
    seed = (SALT ^ DATA_BEGIN + start >> 3) & 0xFFFFFFFF
    head = head[:36] + struct.pack("<I", xxhash.xxh32_intdigest(head[:36], seed))
    return data[:start] + head + data[start + FRAME_HEADER_LEN :]


def _body(rng: random.Random) -> bytes:
    """Junk, or words that a column's offsets may be."""
    if rng.random() < 0.5:
        return rng.randbytes(rng.choice([0, 1, 5, 8, 24, 100]))
    words = [rng.choice([*_WORDS, *range(9)]) for _ in range(rng.choice([2, 4, 8, 20]))]
    return struct.pack(f"<{len(words)}I", *words) + rng.choice([b"", b"k1v1", bytes(9)])


def _header(*, codecs: bool = False) -> SlabHeader:
    return SlabHeader(
        topic_uuid=bytes(16), base=0, base_ordinal=0, salt=SALT, epoch=1, created_us=0,
        slab_bytes=1 << 20, reach=1 << 33, compressed=codecs,
    )  # fmt: skip  # as the field table has them


def _prelude(*, codecs: bool) -> bytes:
    return _header(codecs=codecs).encode_prelude()


def _walk(path: str, slab: bytes, log_format: int) -> str:
    """The kinds of a walker's outcomes, as words. Raises Mismatch unless they cover the slab in order."""
    begin = DATA_BEGIN if log_format == 2 else 0
    file = Storage().open_read(Inside(path, NAME))
    seen = set()
    try:
        walker = Walker(file, Salted(SALT) if log_format == 2 else CHAINED, begin)
        at = begin
        for _ in range(len(slab) + 2):
            found = walker.next()
            if isinstance(found, Tail):
                if found.begin != at:
                    raise Mismatch(f"a tail at {found.begin}, and not at {at}")
                left = slab[at:]
                seen.add("torn" if any(left) else "blank" if left else "need more")
                return "+".join(sorted(seen))
            if isinstance(found, WalkDamage):
                inside = found.begin == at < found.end < len(slab)
                seen.add("corrupt")
                at = found.end
            else:
                inside = found.offset == at < found.end <= len(slab)
                seen.add("frame" if _is_right(found, slab, log_format) else "?")
                at = found.end
            if not inside:
                raise Mismatch(f"{found[:2]} is not what begins at {at} of {len(slab)}")
    finally:
        file.close()
    raise Mismatch("the walk does not end")


def _is_right(found: LogFrame, slab: bytes, log_format: int) -> bool:
    """Whether the frame's columns can be decoded. Raises Mismatch if a hash of it is wrong."""
    begin = found.offset + (FRAME_HEADER_LEN if log_format == 2 else 8)
    if log_format == 1:
        (stored,) = struct.unpack_from("<I", slab, found.offset + 4)
        right = xxhash.xxh32_intdigest(slab[begin : found.end]) == stored
    else:
        head = decode_header(slab, found.offset, found.offset, SALT)
        hashed = xxhash.xxh3_64_intdigest(slab[begin : found.end])
        right = head == found.header and hashed == head.body_hash
    if not right:
        raise Mismatch(f"the frame at {found.offset} is not intact")
    if log_format == 2 and found.header.kind == KIND_RECORDS:
        try:
            return decode_run([found], codecs=True) != [None]
        except aolog.CodecUnavailable:
            return False
    return True


def _compare_halves(slab: bytes, log_format: int) -> None:
    """The compiled walk and its Python twin find the same plain frames, from each intact frame on."""
    begin, framing = (DATA_BEGIN, Salted(SALT)) if log_format == 2 else (0, CHAINED)
    view = memoryview(slab)
    for at in [frame.offset for frame in framing.intact(slab, view, 0, begin, -1)] or [begin]:
        if at > len(slab):
            return
        window = Window(slab, view, 0, at, framing)
        if gather(window, 1 << 40) != python_gather(window, 1 << 40):
            raise Mismatch(f"the halves gather other stretches from {at} on")
        for until in (-1, 3):
            twins = [
                each(window, -1, 0, headers=True, until=until) for each in (survey, python_survey)
            ]
            if twins[0] != twins[1]:
                raise Mismatch(f"the halves survey other frames from {at} on")


def _read(path: str) -> str:
    """Reads the slab as a log: records are in order, and only the log's own errors are raised."""
    try:
        with Log(path, Storage()) as log:
            scan = Scan(log, earliest(log))
            frames = 0
            while (found := scan.next()) is not None:
                frames += isinstance(found, RecordFrame)
            scan.close()
        with aolog.Reader(path) as reader:
            addresses = [record.address for record in reader]
            end = reader.end()
        with aolog.Reader(path, "latest") as reader:
            reader.lag()
        aolog.verify(path)
    except aolog.AologError as error:
        return error.code
    if addresses != sorted(set(addresses)):
        raise Mismatch("addresses do not grow")
    return "read" if addresses and addresses[-1] < end else "nothing to read"


def reseal_chain(content: bytes) -> bytes:
    """The bytes as frames, one after the other, with right magics and hashes."""
    data = bytearray(content)
    at = 0
    while at + FRAME_HEADER_LEN <= len(data):
        (body_len,) = struct.unpack_from("<I", data, at + 4)
        body_len %= len(data) - at - FRAME_HEADER_LEN + 1
        padded = min(len(data), at + FRAME_HEADER_LEN + body_len + -body_len % 8)
        data[at : at + 2] = b"\xa0\xf2"
        data[at + 2] = data[at + 2] % 3 + 1
        data[at + 3] &= 0x31 if data[at + 2] == KIND_RECORDS else 1
        struct.pack_into("<I", data, at + 4, body_len)
        body_hash = xxhash.xxh3_64_intdigest(bytes(data[at + FRAME_HEADER_LEN : padded]))
        struct.pack_into("<Q", data, at + 8, body_hash)
        head = bytes(data[at : at + 36])
        seed = (SALT ^ DATA_BEGIN + at >> 3) & 0xFFFFFFFF
        struct.pack_into("<I", data, at + 36, xxhash.xxh32_intdigest(head, seed))
        at = padded
    return bytes(data)
