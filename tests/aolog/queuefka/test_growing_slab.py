"""The slab of format 1 that grows, compiled and in Python: the same calls make the same bytes and the same
errors."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import aolog
from aolog.format.native.speed import compiled
from aolog.queuefka.slab import PythonPayloads
from tests.aolog.conftest import NEVER, snapshot

BASE, FULL_AT = 1 << 40, 2000
HALVES = [PythonPayloads, *([compiled.Payloads] if hasattr(compiled, "Payloads") else [])]
both_halves = pytest.mark.skipif(len(HALVES) < 2, reason="the build has no compiled frames")

# Around the bounds from which on a payload is not copied, and the copied ones are a buffer.
LENGTHS = [1, 2, 7, 100, 700, (16 << 10) - 1, 16 << 10, (16 << 10) + 1, (64 << 10) - 16, 70_000]
PAYLOADS = st.sampled_from(LENGTHS).map(
    lambda length: bytes(range(1, 252)) * (length // 251) + b"x" * (length % 251)
)


# --- frames ---------------------------------------------------------------------------------------


@both_halves
@given(
    st.lists(st.tuples(st.lists(PAYLOADS, max_size=8), st.integers(0, 9), st.booleans())),
    st.sampled_from([0, 1, FULL_AT, 1 << 40]),
)
def test_both_halves_make_the_same_frames_of_the_same_values(
    calls: list[tuple[list[bytes], int, bool]], full_at: int
) -> None:
    slabs = [half(BASE, 8, full_at) for half in HALVES]
    written = [b"", b""]
    for values, begin, writes in calls:
        added = [slab.add_values(values, begin) for slab in slabs]
        assert added[0] == added[1]
        for i, slab in enumerate(slabs):
            if writes:
                written[i] += b"".join(slab.pending)
                slab.pending.clear()
        assert slabs[0].offset == slabs[1].offset
        assert slabs[0].records == slabs[1].records
    for i, slab in enumerate(slabs):
        written[i] += b"".join(slab.pending)
        assert len(written[i]) == slab.offset - 8
    assert written[0] == written[1]


@pytest.mark.parametrize("half", HALVES)
@pytest.mark.parametrize(("full_at", "taken"), [(25, 2), (26, 2), (27, 3), (0, 1)])
def test_a_slab_takes_values_until_it_is_full_and_at_least_one(
    half: Any, full_at: int, taken: int
) -> None:
    slab = half(BASE, 0, full_at)
    values = [b"12345"] * 9
    addresses = np.frombuffer(slab.add_values(values, 0), np.uint64)
    assert addresses.tolist() == [BASE + 13 * i for i in range(taken)]
    assert (slab.offset, slab.written, slab.records) == (13 * taken, 0, taken)
    assert len(slab.add_values(values, taken)) == 8
    assert len(slab.add_values(values, 9)) == 0


@pytest.mark.parametrize("half", HALVES)
def test_only_bytes_within_the_bound_can_be_stored_as_they_are(half: Any) -> None:
    assert half.are_storable([b"x", b"12345"], 5)
    assert half.are_storable([], 5)
    for other in (b"", b"123456", None, "x", bytearray(b"x")):
        assert not half.are_storable([b"x", other, b"y"], 5)
        assert not half.are_storable([b"x", b"y", other], 5)


@pytest.mark.parametrize("half", HALVES[1:])
@pytest.mark.parametrize("values", [[b"x", b""], [b"x", None], [b"x", bytearray(b"y")], (b"x",)])
def test_compiled_frames_refuse_what_is_not_plain_and_add_nothing(half: Any, values: Any) -> None:
    slab = half(BASE, 0, 1 << 20)
    with pytest.raises(TypeError):
        slab.add_values(values, 0)
    with pytest.raises(ValueError, match="negative"):
        slab.add_values([b"x"], -1)
    assert (slab.offset, slab.records, slab.pending) == (0, 0, [])


# --- writers --------------------------------------------------------------------------------------


class PlainWriter(aolog.Writer):
    """A writer whose `append` does not use the compiled inlet."""

    def append(self, value: Any, **other: Any) -> int:
        return self._append(value, **other)


VALUES = st.one_of(
    st.binary(max_size=30),
    st.sampled_from([None, b"", "text", bytearray(b"array"), b"v" * 60, b"w" * 61, b"z" * 90]),
)
CALLS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), VALUES),
        st.tuples(st.just("append"), st.binary(min_size=1, max_size=30)),
        st.tuples(st.just("key"), VALUES),
        st.tuples(st.just("append_many"), st.lists(VALUES, max_size=6)),
        st.tuples(st.just("append_many"), st.lists(st.binary(min_size=1, max_size=30), max_size=9)),
        st.tuples(st.just("flush"), st.none()),
    ),
    max_size=20,
)
OPTIONS: list[dict[str, Any]] = [
    {}, {"slab_bytes": 100}, {"flush_records": 3},
    {"flush_records": 2, "sync": "flush"},
]  # fmt: skip  # a table


def outcome(writer: aolog.Writer, name: str, argument: Any) -> Any:
    try:
        if name == "append":
            return writer.append(argument)
        if name == "key":
            return writer.append(argument, key=b"k")
        if name == "append_many":
            return writer.append_many(argument).tolist()
        return writer.flush()
    except aolog.AologError as error:
        return type(error), str(error)


@settings(max_examples=40)
@given(CALLS, st.sampled_from(OPTIONS), st.sampled_from([40, 80, 1 << 20]))
@example(
    [("append", b"v" * n) for n in (17, 17, 17, 18, 17)], {"slab_bytes": 100}, 1 << 20
)  # to the byte
@example([("append", b"v" * 24)] * 5, {}, 64)  # to the byte
@example([("append", b"v")] * 7, {"flush_records": 3}, 1 << 20)
def test_an_append_leaves_the_same_files_with_and_without_the_inlet(
    calls: list[tuple[str, Any]], options: dict[str, Any], unwritten_bytes: int
) -> None:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr("aolog.write.options.FLUSH_BYTES", unwritten_bytes)
        paths = [Path(folder, name) for name in ("compiled", "plain")]
        chosen = {
            **NEVER,
            **options,
            "format": "queuefka",
            "max_record_bytes": 60,
            "batch_bytes": 0,
        }
        writers = [
            kind(path, **chosen)
            for kind, path in zip((aolog.Writer, PlainWriter), paths, strict=True)
        ]
        for name, argument in calls:
            results = [outcome(writer, name, argument) for writer in writers]
            assert results[0] == results[1]
            assert writers[0].end == writers[1].end
            assert writers[0].durable == writers[1].durable
            assert snapshot(paths[0]) == snapshot(paths[1])
        for writer in writers:
            writer.close()
        assert snapshot(paths[0]) == snapshot(paths[1])


def test_many_values_go_on_in_the_next_slab_as_the_go_program_does(tmp_path: Path) -> None:
    values = [b"%d" % i * 3 for i in range(100)]
    with aolog.Writer(tmp_path / "many", format="queuefka", slab_bytes=64) as writer:
        addresses = writer.append_many(iter(values))
        assert addresses.dtype == np.uint64
        assert writer.append_many([]).tolist() == []
    with aolog.Writer(tmp_path / "each", format="queuefka", slab_bytes=64) as writer:
        assert [writer.append(value) for value in values] == addresses.tolist()
    assert snapshot(tmp_path / "many") == snapshot(tmp_path / "each")
    with aolog.Reader(tmp_path / "many") as reader:
        assert [(r.address, r.value) for r in reader] == list(
            zip(addresses.tolist(), values, strict=True)
        )


def test_addresses_of_format_1_end_at_two_to_the_63(tmp_path: Path) -> None:
    last = tmp_path / f"{2**63 - 8:020}.slab"
    last.write_bytes(b"")
    with pytest.raises(aolog.UsageError, match="2\\^63"):
        aolog.Writer(tmp_path, format="queuefka")
    assert last.read_bytes() == b""
