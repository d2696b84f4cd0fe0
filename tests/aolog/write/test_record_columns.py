"""append_many with keys, headers, timestamps and topics: one frame, as if by append."""

from __future__ import annotations

from typing import Any

import pytest

import aolog
from aolog.format.frame import KIND_RECORDS
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
