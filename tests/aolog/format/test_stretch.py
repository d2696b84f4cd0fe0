"""Plain frames, counted or gathered as columns: both halves do the same, and stop where they should."""

from __future__ import annotations

import random
import struct
from itertools import pairwise
from typing import Any

import pytest

from aolog.format.columns import encode_columns
from aolog.format.frame import (
    CODEC_SHIFT,
    FLAG_DURABLE,
    KIND_MARK,
    KIND_RECORDS,
    KIND_SEAL,
    encode_frame,
)
from aolog.format.framing import Salted
from aolog.format.native.speed import compiled
from aolog.format.slab import INDEX_SPACING, SlabHeader
from aolog.format.stretch import (
    GATHERED_BYTES,
    MOVED_BYTES,
    SMALL_BYTES,
    Stretch,
    Window,
    gather,
    python_gather,
    python_survey,
    read_gather,
    survey,
)
from aolog.queuefka.format1 import encode_record
from aolog.queuefka.framing import CHAINED
from aolog.read.batch import RecordFrame
from aolog.record import Record

SALT = 0xC0FFEE
BEGIN = 8192
BASE = 1 << 40
HEADER = SlabHeader(bytes(16), BASE, base_ordinal=0, salt=SALT, epoch=1, created_us=0)

with_both = pytest.mark.skipif(
    not hasattr(compiled, "gather"), reason="without the compiled half there is nothing to compare"
)


class Chain:
    """Frames of a slab that grows."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.offsets: list[int] = []
        self.records: list[Record] = []  # of the intact frames of records

    @property
    def end(self) -> int:
        return BEGIN + len(self.data)

    def put(
        self, body: bytes, *, ordinal: int | None = None, count: int = 1, **fields: int
    ) -> None:
        self.offsets.append(self.end)
        known = len(self.records) if ordinal is None else ordinal
        frame, _ = encode_frame(self.end, SALT, [body], ordinal=known, count=count, **fields)
        self.data += b"".join(map(bytes, frame))

    def add(self, records: list[Record], *, stamp_us: int = 7, flags: int = 0) -> None:
        """A frame of these records, whose addresses do not count."""

        def column(name: str) -> list[Any] | None:
            given = [getattr(record, name) for record in records]
            return given if any(given) else None

        columns, parts = encode_columns(
            [record.value for record in records],
            timestamps=column("timestamp"),
            keys=column("key"),
            topics=column("topic"),
            headers=column("headers"),
        )
        address = BASE + self.end
        self.put(
            b"".join(map(bytes, parts)),
            count=len(records),
            columns=columns,
            timestamp_us=stamp_us,
            flags=flags,
        )
        for i, record in enumerate(records):
            us = stamp_us if column("timestamp") is None else record.timestamp
            self.records.append(record._replace(address=address + i, timestamp=us))

    def window(self, data: bytes | None = None, *, skip: int = 0) -> Window:
        """The slab's bytes from BEGIN on, in which a walk goes on after `skip` of them."""
        chunk = bytes(self.data) if data is None else data
        return Window(chunk, memoryview(chunk), BEGIN, BEGIN + skip, Salted(SALT))


def record(value: bytes | None = b"v", **fields: Any) -> Record:
    return Record(0, None, None, value, (), None)._replace(**fields)


def payloads(values: list[bytes], begin: int = 0) -> Window:
    chunk = b"".join(bytes(part) for value in values for part in encode_record(value))
    return Window(chunk, memoryview(chunk), begin, begin, CHAINED)


def records_of(stretch: Stretch, header: SlabHeader | None = HEADER) -> list[Record]:
    return list(RecordFrame.of(stretch, BASE, header).records())


def read(window: Window) -> list[Record]:
    """All records of the plain frames at the beginning of a window."""
    return [each for stretch in gather(window, BASE) for each in records_of(stretch)]


# --- what a stretch is ----------------------------------------------------------------------


def test_small_frames_become_one_stretch_whose_records_are_theirs() -> None:
    chain = Chain()
    for i in range(100):
        chain.add([record(b"%d" % i)], stamp_us=i)
    (stretch,) = gather(chain.window(), BASE)
    assert stretch[:6] == (BEGIN, chain.end, 100, 100, 0, 99)
    assert records_of(stretch) == chain.records


def test_records_keep_all_that_their_frames_have_in_common_or_alone() -> None:
    chain = Chain()
    chain.add([record(b"a")])
    chain.add([record(b"b", key=b"k"), record(None), record(b"")], stamp_us=8)
    chain.add([record(b"c", topic="t"), record(b"d", topic="t")])
    chain.add([record(b"e", topic="u"), record(b"f")])
    chain.add([record(b"g", headers=(("n", b"1"), ("n", None))), record(b"h")])
    chain.add([record(b"i", timestamp=-5), record(b"j", timestamp=9, headers=(("m", b""),))])
    (stretch,) = gather(chain.window(), BASE)
    assert records_of(stretch) == chain.records
    assert stretch.timestamp_us == 8


def test_one_topic_of_all_frames_stays_one() -> None:
    chain = Chain()
    for _ in range(3):
        chain.add([record(topic="orders")] * 2)
    (stretch,) = gather(chain.window(), BASE)
    assert (stretch.columns.topic, stretch.columns.topics) == ("orders", None)


def test_a_large_frame_with_more_than_values_is_alone_and_is_not_copied() -> None:
    chain = Chain()
    chain.add([record(b"a")])
    chain.add([record(bytes(SMALL_BYTES), key=b"k")])
    chain.add([record(b"b")])
    window = chain.window()
    first, large, last = gather(window, BASE)
    assert (first.frames, large.frames, last.frames) == (1, 1, 1)
    assert large.columns.values is not None
    assert large.columns.values.data.obj is window.chunk


def test_frames_with_nothing_but_values_join_unless_they_are_long() -> None:
    chain = Chain()
    for size in (1, SMALL_BYTES, 5, MOVED_BYTES - 100):
        chain.add([record(b"v" * size)])
        chain.add([record(b"w" * size), record(b"")])
    window = chain.window()
    (stretch,) = gather(window, BASE)
    assert records_of(stretch) == chain.records
    assert window.chunk == chain.data  # others may have seen it
    chain.add([record(bytes(MOVED_BYTES))])
    assert [stretch.frames for stretch in gather(chain.window(), BASE)] == [8, 1]


def test_a_stretch_of_several_frames_is_bounded() -> None:
    chain = Chain()
    for _ in range(2 * GATHERED_BYTES // 1000):
        chain.add([record(bytes(1000))])
    stretches = gather(chain.window(), BASE)
    lengths = [stretch.end - stretch.begin for stretch in stretches]
    assert max(lengths) <= GATHERED_BYTES < max(lengths) + 1040
    assert read(chain.window()) == chain.records
    assert {stretch.frames for stretch in gather(chain.window(), BASE, 3 * 1048)} == {3, 1}


def test_a_topic_that_would_be_copied_too_often_ends_a_stretch() -> None:
    chain = Chain()
    half = GATHERED_BYTES // 2 // 249 + 1
    chain.add([record(b"", topic="t" * 249)] * half)
    chain.add([record(b"", topic="u" * 249)] * half)
    assert [stretch.frames for stretch in gather(chain.window(), BASE)] == [1, 1]


def test_a_mark_joins_the_frames_before_it_and_ends_a_walk_that_begins_with_it() -> None:
    chain = Chain()
    chain.add([record()])
    chain.add([record()])
    chain.put(b"", kind=KIND_MARK, flags=FLAG_DURABLE, count=0, ordinal=2)
    mark = chain.offsets[-1]
    chain.add([record()])
    (stretch,) = gather(chain.window(), BASE)
    assert (stretch.end, stretch.frames, records_of(stretch)) == (chain.end, 3, chain.records)
    assert gather(chain.window(skip=mark - BEGIN), BASE) == []


def test_a_hole_in_the_ordinals_begins_another_stretch() -> None:
    chain = Chain()
    chain.add([record()])
    chain.put(b"v", ordinal=5)
    chain.put(b"v", ordinal=6)
    assert [(s.ordinal, s.records) for s in gather(chain.window(), BASE)] == [(0, 1), (5, 2)]


def test_payloads_of_format_1_have_an_address_each() -> None:
    window = payloads([b"a", b"bc", b"def"], begin=100)
    (stretch,) = gather(window, BASE)
    read = records_of(stretch, None)
    assert [r.value for r in read] == [b"a", b"bc", b"def"]
    assert [r.address - BASE for r in read] == [100, 109, 119]
    assert {r.timestamp for r in read} == {None}


# --- where a walk stops ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "fields",
    [
        {"kind": KIND_SEAL, "count": 0},
        {"kind": KIND_MARK, "count": 1},
        {"kind": KIND_RECORDS, "flags": 1 << CODEC_SHIFT},
        {"kind": KIND_RECORDS, "count": 2},
        {"kind": KIND_RECORDS, "columns": 1},
        {"kind": KIND_RECORDS, "columns": 0x400},
        {"kind": KIND_RECORDS, "columns": 2},
        {"columns": 1, "count": 2, "body": struct.pack("<4I3s", 0, 5, 3, 0, b"abc")},
        {"columns": 1, "count": 2, "body": struct.pack("<4I3s", 1, 2, 3, 0, b"abc")},
        {"columns": 1, "count": 2, "body": struct.pack("<4I3s", 0, 2, 4, 0, b"abc")},
        {"columns": 1, "count": 2, "body": struct.pack("<4I3s", 0, 2, 2, 0, b"abc")},
    ],
    ids=str,
)
def test_a_walk_stops_before_a_frame_that_is_not_plain(fields) -> None:
    chain = Chain()
    chain.add([record(b"a")])
    end = chain.end
    chain.put(**{"body": b"contents", **fields})
    chain.add([record(b"b")])
    assert [stretch.end for stretch in gather(chain.window(), BASE)] == [end]
    found = survey(chain.window(), -1, 0, headers=False)
    assert found is not None
    assert (found.end, found.frames) == (end, 1)
    assert survey(chain.window(skip=end - BEGIN), -1, 0, headers=False) is None


@pytest.mark.parametrize("names", [{"topic": "ö"}, {"headers": (("ö", b""),)}], ids=str)
def test_a_text_that_is_not_ascii_is_left_to_python(names) -> None:
    chain = Chain()
    chain.add([record(**names)])
    assert gather(chain.window(), BASE) == []


def test_a_damaged_bit_anywhere_ends_the_walk_before_its_frame() -> None:
    chain = Chain()
    for i in range(5):
        chain.add([record(b"value %d" % i, key=b"k")])
    rng = random.Random(1)
    for _ in range(200):
        at = rng.randrange(len(chain.data))
        data = bytearray(chain.data)
        data[at] ^= 1 << rng.randrange(8)
        damaged = sum(offset <= BEGIN + at for offset in chain.offsets) - 1
        assert read(chain.window(bytes(data))) == chain.records[:damaged]


# --- surveys --------------------------------------------------------------------------------


def test_a_survey_counts_frames_records_and_times_and_marks_each_16_kib() -> None:
    chain = Chain()
    for i in range(100):
        chain.add([record(bytes(500), timestamp=1000 - i), record(timestamp=1000 + i)],
                  stamp_us=1000 + i, flags=FLAG_DURABLE * (i == 50))  # fmt: skip  # one frame
    chain.put(b"", kind=KIND_MARK, flags=0, count=0, ordinal=200)
    found = survey(chain.window(), -1, 17, headers=True)
    assert found is not None
    assert found[:9] == (chain.end, 101, 100, 200, 0, 200, chain.offsets[50], 901, 1099)
    offsets = [point.offset for point in found.points]
    assert offsets[0] == BEGIN
    steps = [b - a for a, b in pairwise(offsets)]
    assert all(INDEX_SPACING <= step < INDEX_SPACING + 700 for step in steps)
    assert found.points[0].greatest_before_us == 17
    assert [m.ordinal for m in found.points] == [2 * chain.offsets.index(at) for at in offsets]
    heads = [chain.data[at - BEGIN : at - BEGIN + 40] for at in chain.offsets]
    assert found.headers == b"".join(heads)


# --- both halves ----------------------------------------------------------------------------


def _draw_record(rng: random.Random, shape: int) -> Record:
    size = rng.choice([0, 1, 8, 100, 700])
    return record(
        None if rng.random() < 0.1 else rng.randbytes(size),
        key=rng.randbytes(3) if shape & 1 and rng.random() < 0.7 else None,
        topic=rng.choice(["t", "t", "uu", "ö", None]) if shape & 2 else None,
        headers=tuple(
            (rng.choice(["n", "name", "n", "ö"]), rng.choice([None, b"", b"value"]))
            for _ in range(rng.randrange(3))
        )
        if shape & 4
        else (),
        timestamp=rng.randrange(-100, 100) if shape & 8 else None,
    )


def _draw(rng: random.Random) -> Chain:
    chain = Chain()
    for _ in range(rng.randrange(1, 60)):
        kind = rng.random()
        if kind < 0.8:
            shape = rng.choice([0, 0, rng.randrange(16)])
            count = rng.choice([1, 1, 1, 2, 9, 40])
            chain.add([_draw_record(rng, shape) for _ in range(count)], stamp_us=rng.randrange(99))
        elif kind < 0.84:
            sizes = rng.choices([0, 9, SMALL_BYTES], k=rng.choice([1, 2]))
            chain.add([record(rng.randbytes(size)) for size in sizes], stamp_us=rng.randrange(99))
        elif kind < 0.9:
            ordinal = rng.choice([len(chain.records), len(chain.records), 3])
            chain.put(b"", kind=KIND_MARK, flags=rng.randrange(2), count=0, ordinal=ordinal)
        elif kind < 0.96:
            chain.put(
                rng.randbytes(rng.choice([1, SMALL_BYTES - 40, SMALL_BYTES])),
                ordinal=rng.randrange(9),
            )
        else:  # right hashes around any columns
            words = struct.pack("<9I", *rng.choices([0, 0, 0, 1, 2, 4, 8, 0xFFFFFFFF], k=9))
            bits = rng.choice([1, 3, 5, 9, 0x19, 0x21, 0x41, 0x61, 0x101, 0x301, 0x3FF, 0x401])
            chain.put(words + bytes(rng.randrange(40)), count=rng.choice([0, 1, 2]), columns=bits)
    return chain


def _plain(value: Any) -> Any:
    """The same without views."""
    if isinstance(value, memoryview):
        return bytes(value)
    return tuple(map(_plain, value)) if isinstance(value, tuple) else value


def _agree(window: Window, rng: random.Random) -> None:
    most = rng.choice([1, 5000, GATHERED_BYTES])
    by_c, by_python = gather(window, BASE, most), python_gather(window, BASE, most)
    assert _plain(tuple(by_c)) == _plain(tuple(by_python))
    for indexed, headers in ((-1, True), (rng.randrange(BEGIN), False)):
        given = survey(window, indexed, 5, headers=headers)
        assert given == python_survey(window, indexed, 5, headers=headers)


@with_both
@pytest.mark.parametrize("seed", range(8))
def test_both_halves_survey_and_gather_the_same(seed) -> None:
    rng = random.Random(seed)
    for _ in range(40):
        chain = _draw(rng)
        data = bytearray(chain.data)
        for _ in range(rng.choice([0, 0, 1, 2])):
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        cut = bytes(data[: rng.choice([len(data), rng.randrange(len(data))])])
        skip = min(len(cut), rng.choice([0, 0, rng.choice(chain.offsets) - BEGIN]))
        _agree(chain.window(cut, skip=skip), rng)


@with_both
@pytest.mark.parametrize("seed", range(4))
def test_both_halves_survey_and_gather_the_same_of_format_1(seed) -> None:
    rng = random.Random(seed)
    sizes = [1, 2, 100, SMALL_BYTES - 8, SMALL_BYTES]
    for _ in range(40):
        whole = payloads([rng.randbytes(rng.choice(sizes)) for _ in range(rng.randrange(1, 40))])
        data = bytearray(whole.chunk)
        if rng.random() < 0.5:
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        chunk = bytes(data[: rng.choice([len(data), rng.randrange(len(data))])])
        _agree(Window(chunk, memoryview(chunk), 0, 0, CHAINED), rng)


@with_both
@pytest.mark.parametrize("seed", range(4))
def test_a_read_with_its_stretches_is_the_read_and_the_stretches(seed, tmp_path) -> None:
    rng = random.Random(seed)
    for _ in range(20):
        chain = _draw(rng)
        data = bytearray(bytes(BEGIN) + chain.data)
        if rng.random() < 0.5:
            data[rng.randrange(BEGIN, len(data))] ^= 1 << rng.randrange(8)
        path = tmp_path / "slab"
        path.write_bytes(data)
        at = rng.choice(chain.offsets)
        size = rng.randrange(1, len(data) - at + 1)
        window = chain.window(bytes(data[at : at + size]))._replace(chunk_at=at, offset=at)
        with path.open("rb") as file:
            framing = window.framing
            found = read_gather(file.fileno(), size, at, framing, BASE)
            past_the_end = read_gather(file.fileno(), size + len(data), at, framing, BASE)
        assert read_gather(-1, size, at, framing, BASE) is None
        rest = window._replace(chunk=bytes(data[at:]), view=memoryview(data)[at:])
        for given, read in ((found, window), (past_the_end, rest)):
            expected = python_gather(read, BASE)
            assert (given is None) == (expected == [])
            if given is not None:
                chunk, stretches = given
                assert _plain(tuple(stretches)) == _plain(tuple(expected))
                left = expected[-1].end - at
                assert (len(chunk), chunk[left:]) == (len(read.chunk), read.chunk[left:])


@with_both
def test_compiled_walks_refuse_what_is_not_a_chunk() -> None:
    for name in ("survey", "gather"):
        walk = getattr(compiled, name)
        rest = (-1, 0, False) if name == "survey" else (0,)
        views = () if name == "survey" else (memoryview(b""),)
        for chunk, at, offset in (
            (bytearray(b"x"), 0, 0),
            (b"x", 2, 0),
            (b"x", -1, 0),
            (b"x", 0, -1),
        ):
            with pytest.raises((TypeError, ValueError)):
                walk(chunk, *views, at, offset, SALT, *rest)
