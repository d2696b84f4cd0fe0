"""The open frame and the frames of a slab, compiled and in Python: the same calls make the same bytes."""

from __future__ import annotations

import inspect
import shutil
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import aolog
from aolog.format.native import inlet
from aolog.format.slab import INDEX_SPACING, Index
from aolog.write.validate import OFFSET_BYTES, check_record
from tests.compiling import ROOT, build

compiled = pytest.importorskip(
    "aolog.format.native._speed", reason="no compiler: everything runs in Python"
)
NOW_US = 1_700_000_000_000_000
BASE, OFFSET, SALT = 1 << 20, 8192, 7
KINDS = [compiled.Frames, inlet.PythonFrames] if hasattr(compiled, "Frames") else []


class Reference:
    """Does what a writer does with a record that its inlet passes on, without limits and policies."""

    passed_on = 0

    def __init__(self: Any, first: int = 0) -> None:
        self._begin(first, NOW_US)

    def _append(
        self: Any,
        value: Any,
        *,
        key: Any = None,
        headers: Any = (),
        timestamp: Any = None,
        topic: Any = None,
    ) -> int:
        self.passed_on += 1
        address: int = self._put(*check_record(value, key, headers, timestamp, topic))
        return address

    def admit(
        self: Any,
        limit: int = 1 << 40,
        most: int = 1 << 40,
        record_max: int = 1 << 40,
        *frames: Any,
    ) -> Any:
        self._prepare(*(inlet.Lock() for _ in range(3)), set(), record_max, limit, most, False)
        self._admit(limit, most, *frames)
        return self

    def join(self: Any, **record: Any) -> int | None:
        joined: int | None = self._join(*(NONE | record).values())
        return joined

    def shut(self: Any) -> None:
        self._shut()

    def cut(self: Any, frames: Any, pack: Any = None) -> Any:
        return self._cut(frames, pack)

    def state(self: Any) -> tuple[int, int, int, int]:
        return self._first, self._count, self._size, self._end


class PythonTaker(Reference, inlet.PythonInlet):
    pass


class CompiledTaker(Reference, compiled.Inlet):  # type: ignore[misc]  # it has no type information
    pass


class Kept:
    """Frames that keep what they are given."""

    def add_records(self, *body: Any) -> int:
        self.body = body
        return 0


def parts_of(taker: Any) -> tuple[int, int, bytes, int, int]:
    kept = Kept()
    taker.cut(kept)
    records, columns, parts, greatest, least, codec = kept.body
    assert codec == 0
    return records, columns, b"".join(parts), greatest, least


def frames_of(kind: Any) -> Any:
    return kind(BASE, OFFSET, 1 << 30, SALT, Index([], [], []))


def bytes_of(frames: Any) -> bytes:
    return b"".join(frames.pending)


def face(frames: Any) -> tuple[Any, ...]:
    return (
        bytes_of(frames), frames.offset, frames.written, frames.full_at, frames.records, frames.frames,
        frames.least_us, frames.greatest_us, frames.last_kind, tuple(frames.index), frames.headers_hash(),
    )  # fmt: skip  # one list


# --- records, plain and odd -------------------------------------------------------------------------


class Name(str):
    __slots__ = ()


short = st.none() | st.binary(max_size=6)
PLAIN: dict[str, st.SearchStrategy[Any]] = {
    "value": short,
    "key": short,
    "headers": st.lists(st.tuples(st.sampled_from(["h", "ä", ""]), short), max_size=3).map(tuple),
    "timestamp": st.none() | st.integers(-3, 3),
    "topic": st.none() | st.sampled_from("tuü"),
}
ODD_PAIRS: list[Any] = [
    (Name("n"), b"1"), (3, b"1"), ("\ud800", b"1"), ("n" * 40, None), ("h", "text"),
    ("h", bytearray(b"b")), ("h", b"v" * 40), ["h", b"1"], ("h",), ("h", b"1", 2), "hi", 5, None,
]  # fmt: skip  # one list
ODD: dict[str, list[Any]] = {
    "value": [bytearray(b"b"), "text", 1, b"v" * 40],
    "key": [memoryview(b"m"), "text", 1.5, b"k" * 40],
    "headers": [None, [("h", b"1")], 5, "hi", *(((("h", b"1")), pair) for pair in ODD_PAIRS)],
    "timestamp": [True, 1.5, "1", 1 << 63, -(1 << 63), -(1 << 63) - 1, (1 << 63) - 1],
    "topic": ["", 5, b"t", Name("t"), "\ud800", "t" * 30, "t" * 250],
}
# Columns that some lists of records do not use at all, so that a column begins late or never.
RECORD = st.sets(st.sampled_from([name for name in PLAIN if name != "value"])).flatmap(
    lambda names: st.fixed_dictionaries({name: PLAIN[name] for name in ("value", *sorted(names))})
)
ODD_PLACES = st.lists(
    st.tuples(
        st.integers(0, 9),
        st.sampled_from([(name, entry) for name, entries in ODD.items() for entry in entries]),
    ),
    max_size=2,
)
RECORDS = st.lists(RECORD, min_size=1, max_size=10)
NONE = {"value": None, "key": None, "headers": (), "timestamp": None, "topic": None}


def with_odd(
    records: list[dict[str, Any]], odd: list[tuple[int, tuple[str, Any]]]
) -> list[dict[str, Any]]:
    changed = [dict(record) for record in records]
    for at, (name, entry) in odd:
        changed[at % len(changed)][name] = entry
    return changed


def outcome(append: Any, record: dict[str, Any]) -> Any:
    other = dict(record)
    try:
        return append(other.pop("value"), **other)
    except aolog.RecordRefused as error:
        return str(error)


@example([{"value": b"", "topic": "a"}, {"value": b"", "topic": "b"}], [], 80, 8)
@given(RECORDS, ODD_PLACES, st.integers(0, 80), st.integers(0, 8))
def test_both_halves_take_the_same_records_and_make_the_same_frames(
    records: list[dict[str, Any]], odd: list[tuple[int, tuple[str, Any]]], limit: int, most: int
) -> None:
    given_ = with_odd(records, odd)
    python, other = PythonTaker(BASE + OFFSET), CompiledTaker(BASE + OFFSET)
    other.admit(limit, most)
    for record in given_:
        assert outcome(python.append, record) == outcome(other.append, record)
        assert python.state() == other.state()
    if python.state()[1]:
        made = [frames_of(kind) for kind in (inlet.PythonFrames, *KINDS[:1])]
        for frames, taker in zip(made, (python, other), strict=False):
            frames.durable = BASE + OFFSET
            assert taker.cut(frames) == BASE + OFFSET
            assert taker.state()[1:] == (0, 0, 0)
        faces = list(map(face, made))
        assert faces[0] == faces[-1]


@given(RECORDS, ODD_PLACES, st.integers(0, 80), st.integers(0, 8), st.booleans())
def test_a_record_joins_where_append_would_take_it_and_otherwise_nothing_changes(
    records: list[dict[str, Any]],
    odd: list[tuple[int, tuple[str, Any]]],
    limit: int,
    most: int,
    each: bool,
) -> None:
    appended, joined = CompiledTaker(BASE), CompiledTaker(BASE)
    into = [[frames_of(kind)] * each for kind in (KINDS[:1] or [inlet.PythonFrames]) * 2]
    for taker, frames in zip((appended, joined), into, strict=True):
        taker.admit(limit * (1 + 9 * each), most, 60, *frames)
    for record in with_odd(records, odd):
        before = joined.state(), appended.passed_on
        expected = outcome(appended.append, record)
        taken = joined.join(**record)
        assert joined.passed_on == 0
        if appended.passed_on > before[1] or not isinstance(expected, int):
            assert (taken, joined.state()) == (None, before[0])
            break
        assert (taken, joined.state()) == (expected, appended.state())
    assert PythonTaker(BASE).admit().join(value=b"always") is None


@example([{"value": b"", "topic": "t" * 249}], [])
@example([{"value": b"", "topic": "t" * 250}], [(0, ("value", b""))])
@given(RECORDS, ODD_PLACES)
def test_a_body_of_columns_is_that_of_its_records(
    records: list[dict[str, Any]], odd: list[tuple[int, tuple[str, Any]]]
) -> None:
    whole = [{**NONE, **record} for record in with_odd(records, odd)]
    columns = [[record[name] for record in whole] for name in NONE]
    unused = [
        name != "value" and column == [NONE[name]] * len(whole)
        for name, column in zip(NONE, columns, strict=True)
    ]
    columns_or_none = [None if skip else c for skip, c in zip(unused, columns, strict=True)]
    made = compiled.body(*columns_or_none, NOW_US)
    try:
        checked = [check_record(**record) for record in whole]
    except aolog.RecordRefused:
        assert made is None
        return
    if not odd:
        assert made is not None
    if made is not None:
        size, longest, body = made
        sizes = [record[5] for record in checked]
        assert (size, longest) == (sum(sizes), max(sizes))
        python = PythonTaker()
        for record in whole:
            outcome(python.append, record)
        assert body == parts_of(python)


def test_a_record_joins_until_a_bound_and_goes_to_the_writer_from_there_on() -> None:
    taker = CompiledTaker(100)
    assert (taker.append(b"shut"), taker.passed_on) == (100, 1)
    taker.admit(limit=40, most=5, record_max=30)
    assert [taker.append(b"ab"), taker.append(b"c", key=b"k")] == [101, 102]
    assert (taker.passed_on, taker.state()) == (1, (100, 3, 8 + 6 + 10, 103))
    taker.append(b"x" * (40 - 24 - OFFSET_BYTES))  # the limit would be reached
    assert taker.passed_on == 2
    taker.admit(limit=400, most=5, record_max=30)
    taker.append(b"d")
    assert taker.passed_on == 3  # there are as many as may be
    taker.admit(limit=400, most=40, record_max=30)
    taker.append(b"v" * 31)
    assert taker.passed_on == 4  # it is over a record's bound
    taker.append(b"v" * 30)
    assert taker.passed_on == 4
    taker.shut()
    taker.append(b"e")
    assert taker.passed_on == 5


def test_addresses_end_below_two_to_the_63() -> None:
    taker = CompiledTaker(2**63 - 2).admit()
    assert taker.append(b"x") == 2**63 - 2
    assert taker.passed_on == 0
    with pytest.raises(OverflowError):
        CompiledTaker(2**63)


@pytest.mark.parametrize("taker", [PythonTaker, CompiledTaker])
def test_wrong_arguments_are_the_writers_to_refuse(taker: Any) -> None:
    one = taker().admit()
    for wrong in ((), (b"x", b"two")):
        with pytest.raises(TypeError):
            one.append(*wrong)
    with pytest.raises(TypeError, match="unknown"):
        one.append(b"x", unknown=1)
    assert one.append(value=b"named") == 0
    not_interned = str(b"key", "ascii")
    assert one.append(b"x", **{not_interned: b"k"}) == 1
    records, _, body, *_ = parts_of(one)
    assert (records, b"k" in body) == (2, True)


def test_both_halves_promise_the_same_of_append() -> None:
    assert inspect.getdoc(compiled.Inlet.append) == inspect.getdoc(inlet.PythonInlet.append)
    ours = inspect.signature(inlet.PythonInlet.append).parameters
    theirs = inspect.signature(compiled.Inlet.append).parameters
    assert {n: p.default for n, p in theirs.items()} == {n: p.default for n, p in ours.items()}


# --- frames ---------------------------------------------------------------------------------------

pytestmark_frames = pytest.mark.skipif(not KINDS, reason="the build found no xxhash.h")
PARTS = st.lists(st.binary(max_size=40), min_size=1, max_size=4)
ADDED = st.tuples(
    st.integers(1, 40), st.integers(0, 0x3FF), PARTS, st.integers(-5, 5), st.integers(0, 2)
)


@pytestmark_frames
@given(st.lists(ADDED, max_size=6), st.integers(0, 400))
def test_frames_of_given_bodies_are_the_same(
    added: list[tuple[int, int, list[bytes], int, int]], padding: int
) -> None:
    made = [frames_of(kind) for kind in KINDS]
    for frames in made:
        for records, columns, parts, stamp, codec in added:
            views = [memoryview(part) for part in parts] + [b"\0" * padding * 64]
            frames.durable = max(frames.durable, frames.base + frames.offset * (stamp % 2))
            frames.add_records(records, columns, views, stamp + 3, stamp, codec)
    assert face(made[0]) == face(made[1])


@pytestmark_frames
def test_a_frame_a_record_is_made_without_the_writer_until_something_is_due() -> None:
    frames = frames_of(KINDS[0])
    taker = CompiledTaker()
    taker.admit(1000, 100, 100, frames)
    addresses = [taker.append(b"v" * 60, key=b"k") for _ in range(5)]
    assert addresses == [BASE + OFFSET + i * (addresses[1] - addresses[0]) for i in range(5)]
    assert (taker.passed_on, frames.records, frames.frames) == (0, 5, 5)
    for _ in range(5):
        taker.append(b"v" * 60)
    assert taker.passed_on > 0  # 1000 bytes are reached
    full = frames_of(KINDS[0])
    full.full_at = full.offset
    taker = CompiledTaker()
    taker.admit(1000, 100, 100, full)
    taker.append(b"v")
    assert (taker.passed_on, full.records) == (1, 0)


@pytestmark_frames
@pytest.mark.parametrize("kind", KINDS)
def test_the_index_has_an_entry_for_each_16_kib(kind: Any) -> None:
    frames = frames_of(kind)
    for i in range(20):
        frames.add_records(1, 0, [b"x" * 5000], i, i, 0)
    offsets, ordinals, greatest = frames.index
    assert offsets[0] == OFFSET
    assert all(b - a >= INDEX_SPACING for a, b in pairwise(offsets))
    assert [(o - OFFSET) // 5040 for o in offsets] == ordinals
    assert greatest[1:] == [o - 1 for o in ordinals[1:]]


@pytest.mark.parametrize("taker", [PythonTaker, CompiledTaker])
def test_a_body_may_be_compressed_on_its_way(taker: Any) -> None:
    one, kept = taker(), Kept()
    assert one.cut(kept) is None
    one.append(b"value", key=b"k")
    whole: list[Any] = []

    def pack(records: int, parts: list[bytes]) -> tuple[int, list[bytes]]:
        whole.append((records, b"".join(parts)))
        return 2, [b"packed"]

    one.cut(kept, pack)
    one.append(b"value", key=b"k")
    assert whole == [(1, parts_of(one)[2])]
    assert (kept.body[0], kept.body[2], kept.body[5]) == (1, [b"packed"], 2)


@pytestmark_frames
@pytest.mark.parametrize("kind", KINDS)
def test_frames_refuse_what_is_not_theirs(kind: Any) -> None:
    frames = frames_of(kind)
    with pytest.raises(TypeError):
        frames.add_records(1, 0, ["text"], 0, 0, 0)
    with pytest.raises(TypeError):
        frames.add_records(1, 0)
    assert (frames.offset, frames.records, bytes_of(frames)) == (OFFSET, 0, b"")


# --- a build without xxhash.h ---------------------------------------------------------------------

WITHOUT = """
import importlib.util, sys
name = "aolog.format.native._speed"
spec = importlib.util.spec_from_file_location(name, sys.argv[1])
sys.modules[name] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(sys.modules[name])
import aolog
from aolog.format.native import inlet
assert aolog.backend == "compiled" and inlet.Frames is inlet.PythonFrames, inlet.Frames
for batch_bytes in (0, 1 << 16):
    with aolog.Writer(f"{sys.argv[2]}/{batch_bytes}", batch_bytes=batch_bytes) as writer:
        for i in range(100):
            writer.append(b"%d" % i, key=b"k")
        writer.append_many([b"100", None], keys=[b"k", b"k"])
    records = list(aolog.Reader(writer.path))
    assert [r.value for r in records] == [b"%d" % i for i in range(101)] + [None]
    assert {r.key for r in records} == {b"k"} and aolog.verify(writer.path).ok
"""


@pytest.mark.skipif(shutil.which("gcc") is None, reason="no compiler")
def test_a_build_without_the_hash_makes_its_frames_in_python(tmp_path: Path) -> None:
    flags = ["-O0", "-Wall", "-Werror", "-DAOLOG_WITHOUT_XXHASH"]
    built = build("aolog.format.native._speed", into=tmp_path, flags=flags)
    subprocess.run([sys.executable, "-c", WITHOUT, built, tmp_path], cwd=ROOT, check=True)
