"""append_many with keys, headers, timestamps and topics: one frame, as if by append."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import aolog
from aolog.format.columns import split_headers
from aolog.format.frame import KIND_RECORDS
from aolog.write.plain_columns import plain_columns
from aolog.write.validate import OFFSET_BYTES, check_record
from tests.aolog.conftest import frames_of, read_all

VALUES = [b"a", None, bytearray(b"c")]
COLUMNS: dict[str, Any] = {
    "keys": [b"k", None, memoryview(b"l")],
    "headers": [(("h", b"1"),), (), [("i", None)]],
    "timestamps": [7, None, -5],
    "topics": [None, "t", "u"],
}


def test_columns_are_read_back_exactly_and_are_one_frame(log_path: str) -> None:
    with aolog.Writer(log_path) as writer:
        addresses = writer.append_many(VALUES, **COLUMNS)
    records = read_all(log_path)
    assert [r.address for r in records] == list(addresses)
    assert [(r.key, r.value, r.headers, r.topic) for r in records] == [
        (b"k", b"a", (("h", b"1"),), None),
        (None, None, (), "t"),
        (b"l", b"c", (("i", None),), "u"),
    ]
    assert [r.timestamp for r in records][::2] == [7, -5]
    assert (records[1].timestamp or 0) > 1_600_000_000_000_000  # when it was appended
    assert [f.records for f in frames_of(log_path) if f.kind == KIND_RECORDS] == [3]


class Moment:
    """A number that is no int, as of a library for times: it cannot be compared."""

    def __index__(self) -> int:
        return 7


@pytest.mark.parametrize("missing", [[], [None]])
def test_a_timestamp_may_be_any_number_that_has_an_index(
    log_path: str, missing: list[None]
) -> None:
    stamps: list[Any] = [Moment(), Moment(), *missing]
    with aolog.Writer(log_path) as writer:
        writer.append_many([b"a"] * len(stamps), timestamps=stamps)
    assert [record.timestamp for record in read_all(log_path)][:2] == [7, 7]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"keys": [b"k"]}, "1 keys and 3 values"),
        ({"keys": ["text", None, None]}, "the key is str"),
        ({"headers": [("h",), (), ()]}, "headers are not a sequence"),
        ({"timestamps": [1.5, None, None]}, "the timestamp is float"),
        ({"topics": ["", None, None]}, "the topic has 0 bytes"),
    ],
)
def test_a_wrong_column_is_refused_and_nothing_is_taken(
    log_path: str, columns: dict[str, Any], message: str
) -> None:
    with aolog.Writer(log_path) as writer:
        with pytest.raises(aolog.RecordRefused, match=message):
            writer.append_many(VALUES, **columns)
        writer.append(b"next")
    assert [record.value for record in read_all(log_path)] == [b"next"]


def test_format_1_has_no_columns(log_path: str) -> None:
    with aolog.Writer(log_path, format="queuefka") as writer, pytest.raises(aolog.RecordRefused):
        writer.append_many([b"a"], keys=[b"k"])


# --- whole columns are checked as records are one by one --------------------------------------------


class Name(str):
    __slots__ = ()


short = st.none() | st.binary(max_size=6)
PLAIN: dict[str, st.SearchStrategy[Any]] = {
    "value": short,
    "key": short,
    "headers": st.lists(st.tuples(st.sampled_from("hä"), short), max_size=3).map(tuple),
    "timestamp": st.integers(-3, 3),
    "topic": st.none() | st.sampled_from("tü"),
}
ODD_PAIRS: list[Any] = [
    ("", b"1"), (Name("n"), b"1"), (3, b"1"), ("\ud800", b"1"), ("n" * 40, None), ("h", "text"),
    ("h", bytearray(b"b")), ("h", b"v" * 40), ["h", b"1"], ("h",), ("h", b"1", 2), "hi", 5, None,
]  # fmt: skip  # one list
ODD: dict[str, list[Any]] = {
    "value": [bytearray(b"b"), "text", 1, b"v" * 40, b"v" * 41],
    "key": [memoryview(b"m"), "text", 1.5, b"k" * 40],
    "headers": [None, [("h", b"1")], 5, "hi", *(((("h", b"1")), pair) for pair in ODD_PAIRS)],
    "timestamp": [True, 1.5, "1", 1 << 63, -(1 << 63), -(1 << 63) - 1, (1 << 63) - 1],
    "topic": ["", 5, b"t", Name("t"), "\ud800", "t" * 30, "t" * 300],
}
RECORDS = st.lists(st.fixed_dictionaries(PLAIN), min_size=1, max_size=8)
ODD_PLACES = st.lists(
    st.tuples(
        st.integers(0, 7),
        st.sampled_from([(name, entry) for name, entries in ODD.items() for entry in entries]),
    ),
    max_size=2,
)
NONE = {"value": None, "key": None, "headers": (), "timestamp": None, "topic": None}


@settings(max_examples=500)
@given(RECORDS, ODD_PLACES, st.sets(st.sampled_from([name for name in NONE if name != "value"])))
def test_columns_that_are_plain_are_what_the_check_of_each_record_returns(
    records: list[dict[str, Any]], odd_places: list[tuple[int, tuple[str, Any]]], absent: set[str]
) -> None:
    for at, (name, entry) in odd_places:
        records[at % len(records)][name] = entry
    for record in records:
        record.update({name: NONE[name] for name in absent})
    columns = [None if name in absent else [record[name] for record in records] for name in NONE]
    assert columns[0] is not None
    plain = plain_columns(*columns)
    try:
        checked = [check_record(**record) for record in records]
    except aolog.RecordRefused:
        assert plain is None
        return
    if not odd_places:
        assert plain is not None
    if plain is not None:
        values, keys, headers, timestamps, topics, sizes = map(list, zip(*checked, strict=True))
        nothing = [None] * len(records)
        taken = (
            plain.values,
            plain.keys or nothing,
            plain.timestamps or nothing,
            plain.topics or nothing,
        )
        expected = (values, keys, timestamps, topics)
        assert repr([list(column) for column in taken]) == repr(list(expected))  # types, too
        assert repr(plain.headers) == repr(split_headers(headers) if any(headers) else None)
        assert plain.size == sum(sizes)
        assert plain.longest >= max(sizes) - OFFSET_BYTES


@pytest.mark.parametrize("over", [0, 1])
def test_a_record_of_columns_may_have_as_many_bytes_as_a_record(log_path: str, over: int) -> None:
    columns: dict[str, Any] = {"headers": [(), (("name", b"v"),), (("n", b""),) * 3]}
    columns["keys"] = [b"k" * 40, None, None]
    values = [b"", b"v" * (50 - 13 + over), b""]
    with aolog.Writer(log_path, max_record_bytes=50) as writer:
        if not over:
            writer.append_many(values, **columns)
        else:
            with pytest.raises(aolog.RecordTooLarge, match="a record of 51 bytes"):
                writer.append_many(values, **columns)
    assert [record.value for record in read_all(log_path)] == ([] if over else values)
