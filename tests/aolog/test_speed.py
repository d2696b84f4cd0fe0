"""What runs once a record, compiled and in Python: both do the same, and each is tested."""

from __future__ import annotations

import gc
import inspect
import os
import subprocess
import sys
import threading
import weakref
from array import array
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import aolog
from aolog import speed

ROOT = Path(__file__).parents[2]
compiled = pytest.importorskip("aolog._speed", reason="no compiler: everything runs in Python")
bounded = settings(deadline=None, max_examples=100)
VALUES = st.lists(st.binary(max_size=20), max_size=30)


def offsets_of(values: list[bytes]) -> memoryview:
    return memoryview(speed._column(values) or b"")[: 4 * len(values) + 4]


class PythonTaker(speed.PythonGate):
    """Notes what may not simply join."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self.passed_on: list[tuple[object, dict[str, object]]] = []

    def _append(self, value: bytes | None, **other: Any) -> int:
        self.passed_on.append((value, {k: v for k, v in other.items() if v not in (None, ())}))
        return -1


class CompiledTaker(compiled.Gate):  # type: ignore[misc]  # it has no type information
    passed_on: list[tuple[object, dict[str, object]]]

    def __init__(self) -> None:
        self.passed_on = []

    _append = PythonTaker._append


TAKERS = [PythonTaker, CompiledTaker]


@bounded
@given(VALUES)
def test_columns_and_measures_are_the_same(values):
    column = compiled.column(values)
    assert column == speed._column(values)
    assert compiled.measure(values) == speed._measure(values)
    begin = -(-(4 * len(values) + 4) // 8) * 8
    offsets = array("I", column[: 4 * len(values) + 4])
    assert list(offsets) == [len(b"".join(values[:n])) for n in range(len(values) + 1)]
    assert column[4 * len(offsets) : begin].count(0) == begin - 4 * len(offsets)
    assert column[begin:] == b"".join(values)


@pytest.mark.parametrize("at", [0, 1, 2])
def test_a_null_has_no_place_in_a_column(at):
    values: list[bytes | None] = [b"x", b"y"]
    values.insert(at, None)
    assert compiled.column(values) is None
    assert speed._column(values) is None


@pytest.mark.parametrize("odd", [None, bytearray(b"x"), "x", 1])
def test_what_is_not_bytes_is_not_measured(odd):
    assert compiled.measure([b"x", odd]) is None
    assert speed._measure([b"x", odd]) is None


@bounded
@given(VALUES, st.data())
def test_slices_are_the_same(values, data):
    first = data.draw(st.integers(0, len(values)))
    numbers, joined = offsets_of(values), memoryview(b"".join(values))
    assert compiled.slices(numbers, joined, first) == values[first:]
    assert speed._slices(numbers, joined, first) == values[first:]


@bounded
@given(st.lists(st.lists(st.integers(0, 5) | st.integers(0, 2**32 - 1), max_size=200), max_size=4))
def test_rising_is_the_same(columns):
    for ordered in (False, True):
        numbers = [[0, *(sorted(c) if ordered else c)] for c in columns]
        views = [memoryview(array("I", column)) for column in numbers]
        expected = all(column == sorted(column) for column in numbers)
        assert compiled.rise(views) == expected
        assert speed._rise(views) == expected


def test_a_slice_outside_of_the_data_is_refused():
    numbers = offsets_of([b"abc"])
    with pytest.raises(ValueError, match="outside"):
        compiled.slices(numbers, memoryview(b"ab"), 0)
    with pytest.raises(ValueError, match="not so many"):
        compiled.slices(numbers, memoryview(b"abc"), 2)
    with pytest.raises(ValueError, match="not so many"):
        compiled.slices(b"", b"", 0)


@bounded
@given(st.lists(st.tuples(st.integers(), st.none() | st.binary(max_size=3)), max_size=10))
def test_rows_are_the_same(pairs):
    def columns() -> tuple[Any, ...]:
        values = [value for _, value in pairs]
        return iter([n for n, _ in pairs]), 5, None, iter(values), (), "topic"

    expected = [aolog.Record(n, 5, None, value, (), "topic") for n, value in pairs]
    for rows in (compiled.Rows, speed._rows):
        made = list(rows(aolog.Record, columns(), 0b1001))
        assert made == expected
        assert all(type(row) is aolog.Record for row in made)


def test_rows_refuse_what_would_not_be_a_tuple():
    with pytest.raises(TypeError, match="subclass of tuple"):
        compiled.Rows(dict, (iter([]),), 1)
    with pytest.raises(ValueError, match="first column"):
        compiled.Rows(aolog.Record, (1,) * 6, 0)
    with pytest.raises(TypeError, match="iterator"):
        compiled.Rows(aolog.Record, ([1],), 1)
    with pytest.raises(ValueError, match="shorter"):
        list(compiled.Rows(aolog.Record, (iter([1, 2]), iter([1]), 0, 0, 0, 0), 0b11))


def test_rows_are_freed_with_what_they_hold():
    kept = [b"value"]
    rows = compiled.Rows(aolog.Record, (count(), 1, 2, iter([kept]), (), None), 0b1001)
    row = next(rows)
    assert gc.is_tracked(row)
    before = sys.getrefcount(kept)
    del row
    assert sys.getrefcount(kept) == before - 1
    del rows
    assert sys.getrefcount(kept) == before - 2


def test_rows_cannot_be_made_anew_while_a_column_is_asked():
    class Meddler:
        def __iter__(self) -> Meddler:
            return self

        def __next__(self) -> int:
            rows.__init__(aolog.Record, (iter([7]),), 1)
            return 1

    rows = compiled.Rows(aolog.Record, (count(), Meddler(), 2, iter([b"v"]), (), None), 0b1011)
    assert next(rows) == (0, 1, 2, b"v", (), None)


def test_a_gate_may_be_closed_while_it_is_opened():
    """Where a number's `__index__` does it: the list that was open is let go once."""

    class Closes:
        def __index__(self) -> int:
            gate._close_gate()
            return 3

    gate, before, after = CompiledTaker(), [b"x"], []
    gate._open_gate(before, 0, 0, 100, 100, 4)
    references = sys.getrefcount(before)
    gate._open_gate(after, Closes(), 0, 100, 100, 4)
    assert sys.getrefcount(before) == references - 1
    assert gate.append(b"y") == 3


@pytest.mark.parametrize("taker", TAKERS)
def test_a_gate_lets_values_join_until_a_bound(taker):
    gate, joined = taker(), [b"there"]
    assert gate.append(b"closed") == -1
    gate._open_gate(joined, 100, 9, 40, 4, 4)
    assert [gate.append(b"ab"), gate.append(b"c")] == [101, 102]
    assert gate.append(b"x" * 20) == -1  # 40 bytes would be reached
    assert gate.append(b"d") == 103
    assert gate.append(b"e") == -1  # there are as many as may be
    assert joined == [b"there", b"ab", b"c", b"d"]
    assert gate._close_gate() == 9 + 6 + 5 + 5
    assert gate.append(b"f") == -1
    assert gate._close_gate() == 0
    assert [value for value, _ in gate.passed_on] == [b"closed", b"x" * 20, b"e", b"f"]


def test_both_halves_promise_the_same_of_append():
    told, python = inspect.getdoc(compiled.Gate.append), inspect.getdoc(speed.PythonGate.append)
    assert told == python
    ours = inspect.signature(speed.PythonGate.append).parameters
    theirs = inspect.signature(compiled.Gate.append).parameters
    assert {n: p.default for n, p in theirs.items()} == {n: p.default for n, p in ours.items()}


@pytest.mark.parametrize("taker", TAKERS)
def test_only_plain_bytes_join(taker):
    gate, joined = taker(), []
    gate._open_gate(joined, 0, 0, 1 << 20, 1 << 20, 4)
    given_ = [None, bytearray(b"x"), "text"]
    assert {gate.append(value) for value in given_} == {-1}
    assert gate.append(b"x", key=b"k", topic="t") == -1
    assert gate.append(b"x", headers=(("a", b"b"),), timestamp=3) == -1
    assert gate.append(value=b"named") in {-1, 0}  # it may join, and need not
    assert gate.passed_on[:5] == [
        (None, {}),
        (bytearray(b"x"), {}),
        ("text", {}),
        (b"x", {"key": b"k", "topic": "t"}),
        (b"x", {"headers": (("a", b"b"),), "timestamp": 3}),
    ]
    with pytest.raises(TypeError):
        gate.append()
    with pytest.raises(TypeError):
        gate.append(b"x", b"two")


@pytest.mark.parametrize("taker", TAKERS)
def test_a_gate_in_a_cycle_is_freed(taker):
    gate = taker()
    gate.itself = gate
    gate._open_gate([gate], 0, 0, 1, 1, 0)
    gone = weakref.ref(gate)
    del gate
    gc.collect()
    assert gone() is None


def test_threads_that_join_get_numbers_of_their_own(tmp_path):
    taken: list[list[int]] = [[] for _ in range(4)]
    with aolog.Writer(tmp_path / "log", batch_bytes=500) as writer:

        def work(i: int) -> None:
            for n in range(3000):
                taken[i].append(writer.append(b"%d-%d" % (i, n)))

        threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    with aolog.Reader(tmp_path / "log") as reader:
        found = {record.address: record.value for record in reader}
    expected = {a: b"%d-%d" % (i, n) for i in range(4) for n, a in enumerate(taken[i])}
    assert found == expected


def test_the_backend_is_named_and_can_be_chosen():
    ask = "import aolog; print(aolog.backend, aolog.Writer.__mro__[-2].__module__)"
    for chosen, told in (("python", "python aolog.speed"), ("", "compiled aolog._speed")):
        environment = {**os.environ, "AOLOG_BACKEND": chosen}
        process = subprocess.run(
            [sys.executable, "-c", ask], env=environment, capture_output=True, text=True, check=True
        )
        assert process.stdout.strip() == told


@pytest.mark.timeout(300)
def test_what_the_compiled_half_does_is_tested_in_python_too():
    """The tests of what uses it, once more without it; some twenty seconds."""
    files = ["test_writer.py", "test_reader.py"]
    process = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *(f"tests/aolog/{name}" for name in files)],
        env={**os.environ, "AOLOG_BACKEND": "python"},
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
    )
    assert process.returncode == 0, process.stdout[-3000:]
