"""append_many with keys, headers, timestamps and topics: one frame, as if by append."""

from __future__ import annotations

from array import array
from typing import Any

import pytest

import aolog
from aolog.format.columns import BinaryColumn, Columns, HeaderColumn
from aolog.format.frame import KIND_RECORDS
from aolog.write.validate import check_record
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


# --- columns as frames have them -----------------------------------------------------------------


RECORDS: list[dict[str, Any]] = [
    {"value": b"a", "key": b"k", "timestamp": 7},
    {"value": None, "headers": (("h", b"1"), ("i", None)), "timestamp": -5},
    {"value": b"c" * 90, "key": b"", "headers": (("ä", b""),), "timestamp": 9},
    {"value": b"", "timestamp": 8},
]


def frames_of_records(path: str, records: list[dict[str, Any]]) -> Any:
    """The records, and the columns of their only frame."""
    with aolog.Writer(path) as writer:
        for record in records:
            writer.append(**record)
    with aolog.Reader(path) as reader:
        batch = reader.read_batch()
    assert batch is not None
    (frame,) = batch.frames
    return list(batch), frame.columns


@pytest.mark.parametrize("topic", [None, "t"])
@pytest.mark.parametrize(("first", "end"), [(0, 4), (1, 4), (1, 3), (2, 3)])
def test_what_is_read_as_columns_can_be_appended_as_columns(
    log_path: str, first: int, end: int, topic: str | None
) -> None:
    records, columns = frames_of_records(
        f"{log_path}-1", [{**each, "topic": topic} for each in RECORDS]
    )
    with aolog.Writer(log_path) as writer:
        address = writer.append_arrow(columns.part(first, end))[0]
        after = writer.append(b"next")
    *found, last = read_all(log_path)
    assert [each[1:] for each in found] == [each[1:] for each in records[first:end]]
    assert found[0].address == address
    assert last.address == after


@pytest.mark.parametrize("over", [0, 1])
@pytest.mark.parametrize("topic", ["t", "u"])  # those of all records, and a column of topics
@pytest.mark.parametrize("i", range(len(RECORDS)))
def test_the_bound_of_a_record_holds_for_columns(
    log_path: str, i: int, topic: str, over: int
) -> None:
    """As for `append`, which counts the same bytes, whatever else is in the columns."""
    record = {**RECORDS[i], "topic": topic}
    given = (record.get("value"), record.get("key"), record.get("headers", ()))
    size = check_record(*given, record["timestamp"], "t")[5] - 4  # but for the value's offset
    others = [{"value": b"", "timestamp": 1, "topic": "t"}] * 9
    _, columns = frames_of_records(f"{log_path}-1", [*others, record])
    with aolog.Writer(log_path, max_record_bytes=size - over) as writer:
        if over:
            with pytest.raises(aolog.RecordTooLarge, match=f"a record of {size} bytes"):
                writer.append_arrow(columns)
        else:
            writer.append_arrow(columns)
    assert len(read_all(log_path)) == (0 if over else 10)


def test_columns_without_times_get_the_present(log_path: str) -> None:
    _, columns = frames_of_records(f"{log_path}-1", [{"value": b"a"}, {"value": b"b"}])
    with aolog.Writer(log_path) as writer:
        writer.append_arrow(columns._replace(timestamps=None))
    assert all((r.timestamp or 0) > 1_600_000_000_000_000 for r in read_all(log_path))


OFFSETS = memoryview(array("I", [0, 1, 2]).tobytes())
AB = BinaryColumn(None, OFFSETS, memoryview(b"ab"))


@pytest.mark.parametrize(
    "wrong",
    [
        {"values": AB._replace(offsets=OFFSETS[:8])},
        {"values": AB._replace(data=memoryview(b"a"))},
        {"values": AB._replace(offsets=memoryview(array("I", [0, 1, 2, 2]).tobytes()))},
        {"values": AB._replace(offsets=memoryview(array("I", [0, 2, 1]).tobytes()))},
        {"values": AB._replace(validity=memoryview(b""))},
        {"keys": AB._replace(offsets=OFFSETS[:8])},
        {"timestamps": memoryview(bytes(15))},
        {"topics": AB._replace(data=memoryview(b"\xff\xff"))},
        {"headers": HeaderColumn(OFFSETS, AB._replace(data=memoryview(b"\xff\xff")), AB)},
        {"headers": HeaderColumn(OFFSETS, AB._replace(offsets=OFFSETS[:8]), AB)},
        {"headers": HeaderColumn(OFFSETS[:8], AB, AB)},
        {"headers": HeaderColumn(OFFSETS[:0], AB, AB)},
        {"headers": HeaderColumn(OFFSETS, AB._replace(validity=memoryview(b"\3")), AB)},
    ],
)
def test_malformed_columns_are_refused_and_nothing_is_taken(
    log_path: str, wrong: dict[str, Any]
) -> None:
    with aolog.Writer(log_path) as writer:
        with pytest.raises(aolog.RecordRefused, match="malformed"):
            writer.append_arrow(Columns(2, values=AB)._replace(**wrong))
        writer.append_arrow(Columns(2, values=AB, headers=HeaderColumn(OFFSETS, AB, AB)))
    assert [(r.value, r.headers) for r in read_all(log_path)] == [
        (b"a", (("a", b"a"),)),
        (b"b", (("b", b"b"),)),
    ]


@pytest.mark.parametrize("more", [b"", b"\0", b"\xff" * 7, b"\xff" * 8, bytes(63)])
def test_a_null_bitmap_may_be_longer_than_its_column(log_path: str, more: bytes) -> None:
    """As Arrow's are, which end at 64 bytes."""
    nullable = AB._replace(validity=memoryview(b"\2" + more))
    columns = Columns(
        2, None, nullable, None, nullable, None, nullable, HeaderColumn(OFFSETS, AB, nullable)
    )
    with aolog.Writer(log_path) as writer:
        writer.append_arrow(columns)
    assert [(r.value, r.key, r.topic, r.headers) for r in read_all(log_path)] == [
        (None, None, None, (("a", None),)),
        (b"b", b"b", "b", (("b", b"b"),)),
    ]
