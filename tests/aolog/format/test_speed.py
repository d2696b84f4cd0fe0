"""What runs once a record, compiled and in Python: both do the same, and each is tested."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import time
import weakref
from array import array
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import aolog
from aolog.format.native import speed
from aolog.storage.system import python_leads_to
from tests.texts import UNICODE

ROOT = Path(__file__).parents[3]
compiled = pytest.importorskip(
    "aolog.format.native._speed", reason="no compiler: everything runs in Python"
)
bounded = settings(max_examples=100)
VALUES = st.lists(st.binary(max_size=20), max_size=30)


def offsets_of(values: list[bytes]) -> memoryview:
    return memoryview(speed.python_column(values) or b"")[: 4 * len(values) + 4]


BOTH_ROWS = [speed.PythonRows, compiled.Rows]


@bounded
@given(VALUES)
def test_columns_are_the_same(values):
    column = compiled.column(values)
    assert column == speed.python_column(values)
    begin = -(-(4 * len(values) + 4) // 8) * 8
    offsets = array("I", column[: 4 * len(values) + 4])
    assert list(offsets) == [len(b"".join(values[:n])) for n in range(len(values) + 1)]
    assert column[4 * len(offsets) : begin].count(0) == begin - 4 * len(offsets)
    assert column[begin:] == b"".join(values)


class Text(str):
    __slots__ = ()


PAIRS = st.lists(
    st.tuples(st.text(UNICODE, max_size=2), st.none() | st.binary(max_size=3)), max_size=3
)


@bounded
@given(st.lists(st.integers(0, 3) | st.integers(0, 200) | st.none() | st.text(UNICODE, max_size=1)))
def test_groups_are_the_same(objects):
    known = [("t", one) for one in range(3)]  # equal ones that are not the same one
    objects = [known[one] if one in (0, 1) else ("t", one) for one in objects]
    expected: dict[object, list[int]] = {}
    for i, one in enumerate(objects):
        expected.setdefault(one, []).append(i)
    for groups in (compiled.groups, speed.python_groups):
        found = groups(objects)
        assert list(found.items()) == list(expected.items())


@bounded
@given(st.lists(st.lists(st.integers(0, 5) | st.integers(0, 2**32 - 1), max_size=200), max_size=4))
def test_rising_is_the_same(columns):
    for ordered in (False, True):
        numbers = [[0, *(sorted(c) if ordered else c)] for c in columns]
        views = [memoryview(array("I", column)) for column in numbers]
        expected = all(column == sorted(column) for column in numbers)
        assert compiled.rise(views) == expected
        assert speed.python_rise(views) == expected


@bounded
@given(st.lists(st.lists(st.binary(max_size=40), max_size=40), max_size=5))
def test_joining_is_the_same(columns):
    entries = [entry for column in columns for entry in column]
    for join in (compiled.join, speed.python_join):
        offsets, data = bytearray(4 * len(entries) + 4), bytearray(len(b"".join(entries)))
        join(tuple(map(strings, columns)), offsets, data)
        assert (None, offsets, data) == strings(entries)


@pytest.mark.parametrize("join", [compiled.join, speed.python_join])
def test_a_part_of_a_column_keeps_its_offsets_and_is_joined(join):
    part = None, octets("I", [7, 9, 10]), b"bcd"
    offsets, data = bytearray(16), bytearray(4)
    join((part, strings([b"a"])), offsets, data)
    assert (None, offsets, data) == strings([b"bc", b"d", b"a"])


@pytest.mark.parametrize("join", [compiled.join, speed.python_join])
@pytest.mark.parametrize(("offsets_len", "data_len"), [(8, 6), (16, 6), (12, 5), (12, 7), (0, 0)])
def test_joining_into_buffers_of_another_size_is_refused(join, offsets_len, data_len):
    with pytest.raises(ValueError):
        join((strings([b"abc"]), strings([b"def"])), bytearray(offsets_len), bytearray(data_len))


@pytest.mark.parametrize(
    "columns", [(None,), ((None, b""),), ((None, b"", b""),), ((None, 1, b""),)]
)
def test_what_is_no_column_is_not_joined(columns):
    with pytest.raises((TypeError, ValueError)):
        compiled.join(columns, bytearray(4), bytearray())


@pytest.mark.parametrize("join", [compiled.join, speed.python_join])
def test_columns_are_not_joined_into_bytes_that_cannot_change(join):
    with pytest.raises((TypeError, BufferError)):
        join((strings([b"abc"]),), bytes(8), bytearray(3))


def octets(kind: str, numbers: list[int]) -> memoryview:
    return memoryview(array(kind, numbers).tobytes())


def strings(entries: list[bytes | None]) -> tuple[Any, ...]:
    """As in Arrow."""
    present = [entry or b"" for entry in entries]
    bits = bytearray((len(entries) + 7) // 8)
    for i, entry in enumerate(entries):
        bits[i >> 3] |= (entry is not None) << (i & 7)
    validity = memoryview(bytes(bits)) if None in entries else None
    return validity, offsets_of(present), memoryview(b"".join(present))


RECORDS = (speed.rising(7), *map(speed.shared, (1, None, b"v", (), None)))
TEXTS = st.text(UNICODE, max_size=4).map(str.encode)
ROW = st.tuples(
    st.integers(-(2**63), 2**63 - 1),
    st.none() | st.binary(max_size=3),
    st.binary(max_size=3),
    st.lists(st.tuples(TEXTS, st.none() | st.binary(max_size=3)), max_size=3),
    st.none() | TEXTS,
)


@bounded
@given(st.lists(ROW, max_size=20), st.integers(0, 2**62), st.data())
def test_rows_are_the_same(rows, number, data):
    first = data.draw(st.integers(0, len(rows)))
    end = data.draw(st.integers(first, len(rows)))
    pairs = [pair for row in rows for pair in row[3]]
    columns = (
        speed.rising(number),
        speed.numbers(octets("q", [row[0] for row in rows])),
        speed.binary(strings([row[1] for row in rows])),
        speed.binary(strings([row[2] for row in rows])),
        speed.pairs((
            offsets_of([b"x" * len(row[3]) for row in rows]),
            strings([name for name, _ in pairs]),
            strings([value for _, value in pairs]),
        )),
        speed.text(strings([row[4] for row in rows])),
    )  # fmt: skip  # a column a line
    expected = [
        aolog.Record(
            number + i,
            None if stamp == -(2**63) else stamp,
            key,
            value,
            tuple((name.decode(), one) for name, one in headers),
            None if topic is None else topic.decode(),
        )
        for i, (stamp, key, value, headers, topic) in enumerate(rows)
    ][first:end]
    for kind in BOTH_ROWS:
        made = list(kind(aolog.Record, columns, first, end))
        assert made == expected
        assert all(type(row) is aolog.Record for row in made)
        one = speed.shared("one")
        rest = list(kind(aolog.Record, (one, *columns[1:]), first, end))
        assert rest == [row._replace(address="one") for row in expected]
        for i, column in enumerate((*columns, one)):  # alone
            entries = list(kind(None, (column,), first, end))
            assert entries == (["one"] * (end - first) if i == 6 else [row[i] for row in expected])


@bounded
@given(st.lists(st.integers(0, 2**62), max_size=20), st.data())
def test_totals_are_the_same(numbers, data):
    column = array("q", numbers)
    indices = data.draw(st.lists(st.sampled_from(range(len(numbers))))) if numbers else []
    for chosen, asked in ((numbers, (column,)), ([numbers[i] for i in indices], (column, indices))):
        if sum(chosen) >= 2**63:
            for total in (compiled.total, speed.python_total):
                with pytest.raises(OverflowError):
                    total(*asked)
        else:
            expected = sum(chosen), max(chosen, default=0)
            assert compiled.total(*asked) == speed.python_total(*asked) == expected


@pytest.mark.parametrize("total", [compiled.total, speed.python_total])
def test_what_cannot_be_added_up_is_refused(total):
    numbers = array("q", [1, 2, 3])
    with pytest.raises(IndexError):
        total(numbers, [0, 3])
    for index in (-1, 1 << 70):
        with pytest.raises(IndexError):
            total(numbers, [index])
    with pytest.raises(OverflowError):
        total(array("q", [1, -1]))
    with pytest.raises(TypeError):
        total(numbers, ["a"])

    class Index:  # may do anything when it is asked
        def __index__(self) -> int:
            indices.clear()
            return 0

    indices = [Index(), 1]
    with pytest.raises(TypeError):
        total(numbers, indices)
    assert len(indices) == 2
    with pytest.raises(TypeError, match="i64"):
        total(array("I", [1, 2]))
    with pytest.raises(TypeError):
        total(None)


@pytest.mark.parametrize("rows", BOTH_ROWS)
def test_rows_know_their_place_and_can_be_stopped(rows):
    one = rows(aolog.Record, RECORDS, 1, 5)
    found = iter(one)
    assert (one.at, next(one).address, one.at) == (1, 8, 2)
    assert (next(found).address, one.at) == (9, 3)
    one.stop()
    assert (one.at, list(one), list(found)) == (5, [], [])


@pytest.mark.parametrize("rows", BOTH_ROWS)
def test_a_column_alone_knows_its_place_too(rows):
    one = rows(None, (speed.binary(strings([b"a", None, b"", b"c"])),), 1, 4)
    found = iter(one)
    assert (one.at, next(one), one.at, next(found), one.at) == (1, None, 2, b"", 3)
    one.stop()
    assert (one.at, list(one), list(found)) == (4, [], [])
    for kind, columns, first in ((None, (), 0), (None, RECORDS[:2], 0), (tuple, (), 0),
                                 (aolog.Record, RECORDS, 2)):  # fmt: skip  # a table
        with pytest.raises(ValueError, match="0 <= first <= end"):
            rows(kind, columns, first, 1)
    with pytest.raises((ValueError, KeyError)):
        rows(None, (("x", 1),), 0, 1)


@pytest.mark.parametrize("rows", BOTH_ROWS)
def test_a_row_for_which_memory_ran_out_is_the_next_one(rows):
    """However many allocations succeed before."""
    nomemory = pytest.importorskip("_testcapi")
    data = strings([b"value %d" % i for i in range(4)])
    columns = (*RECORDS[:3], speed.binary(data), *RECORDS[4:])
    failed, allocations = 0, 0
    while failed == allocations:
        row, allocations = None, allocations + 1
        made = iter(rows(aolog.Record, columns, 0, 4))
        nomemory.set_nomemory(allocations - 1, allocations)
        try:
            row = next(made)
        except MemoryError:
            failed += 1
        finally:
            nomemory.remove_mem_hooks()
        found = [*made] if row is None else [row, *made]
        assert [each.value for each in found] == [b"value %d" % i for i in range(4)]


@bounded
@given(st.lists(st.integers(0, 3), max_size=40))
def test_a_row_that_is_kept_stays_as_it_is(keeps):
    """Whatever becomes of the rows around it: one that nobody keeps is filled again."""
    count = len(keeps)
    data = strings([b"value %d" % i for i in range(count)])
    columns = (*RECORDS[:3], speed.binary(data), *RECORDS[4:])
    kept: dict[int, aolog.Record] = {}
    hashes = {}
    for i, row in enumerate(compiled.Rows(aolog.Record, columns, 0, count)):
        hashes[i] = hash(row)
        if keeps[i]:
            kept[i] = row
        kept.pop(i - keeps[i], None)
    expected = list(speed.PythonRows(aolog.Record, columns, 0, count))
    assert kept == {i: expected[i] for i in kept}
    assert hashes == {i: hash(row) for i, row in enumerate(expected)}


@pytest.mark.parametrize("rows", BOTH_ROWS)
@pytest.mark.parametrize(
    "kind", [os.stat_result, time.struct_time, type(sys.version_info), list, 5]
)
def test_rows_are_of_no_class_that_has_a_layout_of_its_own(rows, kind):
    """A struct sequence has fields that its length does not count: freeing a row would read them."""
    with pytest.raises((TypeError, ValueError)):
        list(rows(kind, RECORDS, 0, 2))


def test_compiled_rows_look_before_they_read():
    u32 = partial(array, "I")

    def make(*columns: speed.Column, kind: type | None = aolog.Record, end: int = 1) -> Any:
        return compiled.Rows(kind, columns, 0, end)

    number, one = speed.rising(0), (None, u32([0, 1]), b"a")
    with pytest.raises(TypeError, match="derived from tuple"):
        make(number, kind=dict)
    with pytest.raises(ValueError, match="6 columns"):
        make(*[number] * 7)
    with pytest.raises(TypeError, match="function of speed"):
        make(7)
    for letter in ("x", "\x80", "\0"):
        with pytest.raises(ValueError, match="function of speed"):
            make((letter, 7))
    for column in ("xx", 7), (7, 7), ("n",), ("n", "7"):
        with pytest.raises(TypeError):
            make(column)
    with pytest.raises(ValueError, match="fewer entries"):
        make(number, speed.numbers(b"\0" * 15), end=2)
    with pytest.raises(ValueError, match="fewer entries"):  # of the bitmap
        make(number, speed.binary((b"", u32([0] * 9), b"")), end=8)
    with pytest.raises(ValueError, match="fewer entries"):
        make(number, speed.binary((None, b"", b"")), end=0)
    with pytest.raises(TypeError, match="are a tuple"):
        make(number, speed.binary(None), end=0)
    with pytest.raises(TypeError, match="are a tuple"):
        make(number, speed.pairs((u32([0, 0]), [], [])))
    names = strings([b"a", b"b"])
    with pytest.raises(ValueError, match="fewer entries"):  # than pairs
        make(number, speed.pairs((u32([0, 3]), names, names)))
    with pytest.raises(ValueError, match="outside"):  # offsets of pairs go past the last
        list(make(number, speed.pairs((u32([0, 9, 2]), names, names)), end=2))
    for offsets in ([0, 4], [3, 2], [0, 2**32 - 1]):
        with pytest.raises(ValueError, match="outside"):
            list(make(speed.binary((None, u32(offsets), b"abc")), kind=None))
    assert list(make(speed.binary(one), kind=None)) == [b"a"]


def test_rows_are_freed_with_what_they_hold():
    kept, data = [b"value"], bytearray(b"abc")
    column = speed.binary((None, offsets_of([b"abc"]), data))
    columns = (*RECORDS[:2], speed.shared(kept), column, *RECORDS[4:])
    before = sys.getrefcount(kept)
    rows = compiled.Rows(aolog.Record, columns, 0, 1)
    row = next(rows)
    assert gc.is_tracked(row)
    assert sys.getrefcount(kept) == before + 2  # of the rows and of the row
    with pytest.raises(BufferError):
        data.append(1)
    del row, rows
    assert sys.getrefcount(kept) == before
    data.append(1)


def test_numbers_end_below_two_to_the_63():
    last = 2**63 - 1
    assert list(compiled.Rows(None, (speed.rising(last - 2),), 0, 2)) == [last - 2, last - 1]
    with pytest.raises(ValueError, match="fewer entries"):
        compiled.Rows(None, (speed.rising(last - 2),), 0, 3)


class Lent(bytearray):
    """Bytes that cannot be resized while somebody holds them, and whose end can be seen."""


def imported(parts, schema):
    pa = pytest.importorskip("pyarrow")
    return pa.RecordBatch._import_from_c(compiled.export(parts), schema)  # as Arrow documents it


def test_what_is_exported_is_kept_until_the_last_array_is_gone():
    pa = pytest.importorskip("pyarrow")
    lent = [Lent(array("I", [0, 1, 3]).tobytes()), Lent(b"abb"), Lent(b"\x02")]
    seen = [weakref.ref(each) for each in lent]
    offsets, data, validity = lent
    parts = (2, (None,), ((2, (validity, offsets, data), ()), (2, (None, offsets, data), ())))
    schema = pa.schema([("a", pa.binary()), ("b", pa.string())])
    batch = imported(parts, schema)
    del parts, offsets, data, validity
    with pytest.raises(BufferError):
        lent[1].clear()
    lent.clear()
    batch.validate(full=True)
    assert batch.to_pydict() == {"a": [None, b"bb"], "b": ["a", "bb"]}
    one = batch.column(1)
    del batch
    gc.collect()
    assert one.to_pylist() == ["a", "bb"]
    assert all(ref() is not None for ref in seen[:2])
    del one
    assert [ref() for ref in seen] == [None] * 3


def test_the_backend_is_named_and_can_be_chosen():
    ask = "import aolog; print(aolog.backend, aolog.Writer.__mro__[-2].__module__)"
    for chosen, told in (
        ("python", "python aolog.format.native.inlet"),
        ("", "compiled aolog.format.native._speed"),
    ):
        environment = {**os.environ, "AOLOG_BACKEND": chosen}
        process = subprocess.run(
            [sys.executable, "-c", ask], env=environment, capture_output=True, text=True, check=True
        )
        assert process.stdout.strip() == told


def test_what_the_compiled_half_does_is_tested_in_python_too(pytestconfig):
    """The tests of what uses it, once more without it; some forty seconds. Every line of a read is
    interrupted by one kind of error, and with `--long` by each."""
    files = ["write/test_writer.py", "read/test_reader.py", "read/test_arrow.py"]
    files.append("read/test_read_fail_stop.py")
    few = [] if pytestconfig.getoption("--long") else ["-k", "not (at_any_line and full)"]
    process = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *few, *(f"tests/aolog/{name}" for name in files)],
        env={**os.environ, "AOLOG_BACKEND": "python"},
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
    )
    assert process.returncode == 0, process.stdout[-3000:]


@pytest.mark.parametrize("leads_to", [python_leads_to, compiled.leads_to])
def test_a_name_leads_to_a_file_of_this_inode_device_and_size_alone(leads_to, tmp_path):
    file = tmp_path / "file"
    file.write_bytes(b"12345")
    (tmp_path / "link").symlink_to(file)
    found, directory = file.stat(), os.open(tmp_path, os.O_RDONLY)
    try:
        here = (directory, "file", found.st_ino, found.st_dev)
        assert [leads_to(*here, size) for size in (0, 5, 6)] == [True, True, False]
        assert not leads_to(directory, "file", found.st_ino + 1, found.st_dev, 0)
        assert not leads_to(directory, "file", found.st_ino, found.st_dev + 1, 0)
        assert not leads_to(directory, "link", found.st_ino, found.st_dev, 0)
        assert not leads_to(directory, "missing", found.st_ino, found.st_dev, 0)
        assert not leads_to(-7, "file", found.st_ino, found.st_dev, 0)
    finally:
        os.close(directory)
    for wrong in (
        (),
        (1,),
        (*here, "0"),
        (directory, b"file", *here[2:], 0),
        (*here[:2], -1, 0, 0),
    ):
        with pytest.raises((TypeError, OverflowError)):
            compiled.leads_to(*wrong)
