"""Arrow, both ways: the same records, without a copy where there is one frame."""

from __future__ import annotations

import contextlib
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import aolog
from aolog.format.frame import KIND_RECORDS
from aolog.format.slab import NO_TIMESTAMP
from aolog.publish.pending import PendingLog
from aolog.write.options import WriterOptions
from tests.aolog.conftest import frames_of, from_arrow_rows, read_all, values

pa = pytest.importorskip("pyarrow")
SCHEMA = pytest.importorskip("aolog.format.arrow_schema").SCHEMA

HEADERS = pa.list_(
    pa.struct([pa.field("key", pa.string(), nullable=False), ("value", pa.binary())])
)
NULLABLE = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))  # as Spark's
FULL = {
    "value": pa.array([b"a", None, b"", b"dd"], pa.binary()),
    "key": pa.array([None, b"", b"k", None], pa.binary()),
    "headers": pa.array([[], [("h", b"1"), ("h", None)], None, [("", b"")]], HEADERS),
    "timestamp": pa.array([1, -5, 0, 1 << 60], pa.timestamp("us", "UTC")),
    "topic": pa.array(["t", None, "u", "ø"], pa.string()),
}
ROWS = [
    (1, None, b"a", (), "t"),
    (-5, b"", None, (("h", b"1"), ("h", None)), None),
    (0, b"k", b"", (), "u"),
    (1 << 60, None, b"dd", (("", b""),), "ø"),
]


def batch(**columns: object) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(columns)


def appended(path: str, *batches: pa.RecordBatch, **options: object) -> list[int]:
    with aolog.Writer(path, **options) as writer:
        return [int(address) for each in batches for address in writer.append_arrow(each)]


def rows(path: str) -> list[tuple[object, ...]]:
    return [record[1:] for record in read_all(path)]


# --- from Arrow ------------------------------------------------------------------------------


def test_every_column_is_kept_exactly(log_path: str) -> None:
    addresses = appended(log_path, batch(**FULL))
    assert rows(log_path) == ROWS
    assert [record.address for record in read_all(log_path)] == addresses
    assert addresses == list(range(addresses[0], addresses[0] + 4))


def test_a_batch_is_one_frame(log_path: str) -> None:
    with aolog.Writer(log_path, batch_bytes=0, slab_bytes=9000) as writer:
        writer.append(b"before")
        found = writer.append_arrow(batch(value=[b"x" * 100] * 1000))
        assert found.dtype == np.uint64
        writer.append(b"after")
    frames = [frame.records for frame in frames_of(log_path) if frame.kind == KIND_RECORDS]
    assert frames == [1, 1000, 1]
    assert [len(value) for value in values(log_path)] == [6, *[100] * 1000, 5]


@pytest.mark.parametrize(
    ("column", "array"),
    [
        ("value", pa.array([b"a", None], pa.large_binary())),
        ("value", pa.array(["a", None], pa.string())),
        ("value", pa.array(["a", None], pa.large_string())),
        ("value", pa.array([b"a", None], pa.binary_view())),
        ("value", pa.array([b"a", None]).dictionary_encode()),
        ("value", pa.array([b"a", None], pa.binary(1))),
    ],
    ids=lambda value: str(getattr(value, "type", value)),
)
def test_other_types_of_bytes_are_taken(log_path: str, column: str, array: pa.Array) -> None:
    appended(log_path, batch(**{column: array}))
    assert values(log_path) == [b"a", None]


def test_a_timestamp_that_is_null_is_the_time_of_the_append(log_path: str) -> None:
    appended(
        log_path,
        batch(value=[b"a", b"b"], timestamp=pa.array([7, None], pa.timestamp("us", "UTC"))),
        batch(value=[b"c"], timestamp=pa.nulls(1, pa.timestamp("us", "UTC"))),
    )
    stamps = [record.timestamp for record in read_all(log_path)]
    assert stamps[0] == 7
    now = datetime.now(UTC).timestamp() * 1e6
    assert all(now - 60e6 < stamp <= now for stamp in stamps[1:])


def test_a_topic_may_be_a_number(log_path: str) -> None:
    appended(log_path, batch(value=[b"a"], topic=[5]))
    assert [record.topic for record in read_all(log_path)] == ["5"]


@pytest.mark.parametrize(
    ("columns", "error"),
    [
        ({"key": [b"a"]}, aolog.RecordRefused),
        ({"value": [b"a"], "keys": [b"a"]}, aolog.RecordRefused),
        ({"value": [1]}, aolog.RecordRefused),
        ({"value": [b"a"], "key": [1.5]}, aolog.RecordRefused),
        ({"value": [b"a"], "topic": [""]}, aolog.RecordRefused),
        ({"value": [b"a"], "topic": ["t" * 250]}, aolog.RecordRefused),
        ({"value": [b"a"], "timestamp": ["noon"]}, aolog.RecordRefused),
        ({"value": [b"a"], "headers": [b"h"]}, aolog.RecordRefused),
        ({"value": [b"a"], "headers": [{"h": b"1"}]}, aolog.RecordRefused),
        ({"value": [b"a"], "headers": [[{"key": None, "value": b"1"}]]}, aolog.RecordRefused),
        ({"value": [b"a"], "headers": [[None]]}, aolog.RecordRefused),
        ({"value": [b"a"], "headers": pa.array([[None]], NULLABLE)}, aolog.RecordRefused),
        (
            {"value": [b"a"], "headers": pa.array([[{"key": None, "value": b"1"}]], NULLABLE)},
            aolog.RecordRefused,
        ),
        ({"value": [b"a" * 1001]}, aolog.RecordTooLarge),
    ],
    ids=lambda value: str(value)[:60],
)
def test_a_column_that_has_no_place_is_refused_and_none_is_taken(
    log_path: str, columns: dict[str, object], error: type[aolog.AologError]
) -> None:
    with aolog.Writer(log_path, max_record_bytes=1000) as writer:
        end = writer.end
        with pytest.raises(error):
            writer.append_arrow(batch(**columns))
        assert writer.end == end
        writer.append_arrow(batch(value=[b"good"]))
    assert values(log_path) == [b"good"]


SIZES = [
    # as `append` counts: bytes of all parts, 4 for a key, 8 for each header, 8 for a timestamp
    ({"value": b"v" * 10}, 10),
    ({"value": b"", "key": b"k" * 100}, 104),
    ({"value": None, "key": b""}, 4),
    ({"value": b"v", "headers": (("h", b"12"), ("ø", None))}, 1 + 11 + 10),
    ({"value": b"v", "timestamp": 0}, 9),
    ({"value": b"v", "topic": "tø"}, 4),
    (
        {"value": b"v", "key": b"k", "headers": (("", b""),), "timestamp": -1, "topic": "t"},
        1 + 5 + 8 + 8 + 1,
    ),
]


@pytest.mark.parametrize(("record", "size"), SIZES)
def test_a_record_has_one_size_whichever_call_takes_it(
    tmp_path: Path, record: dict[str, Any], size: int
) -> None:
    small = {name: () if name == "headers" else None for name in record}
    many = {name: [small[name], record[name], small[name]] for name in record}
    columns = {name: pa.array(many[name], SCHEMA.field(name).type) for name in record}
    arrow = batch(**columns)
    plural = {f"{name}s" if name != "headers" else name: many[name] for name in record}
    for bound in (size, size - 1):
        refused = contextlib.nullcontext() if bound == size else pytest.raises(
            aolog.RecordTooLarge, match=f"a record of {size} bytes is over max_record_bytes={bound}"
        )  # fmt: skip  # two cases
        with aolog.Writer(tmp_path / f"log{bound}", max_record_bytes=bound) as writer:
            with refused:
                writer.append(**record)
            with refused:
                writer.append_many(**plural)
            for given in (arrow, pa.concat_batches([arrow, arrow]).slice(2, 3)):
                with refused:
                    writer.append_arrow(given)
        options = WriterOptions(max_record_bytes=bound)
        with PendingLog(tmp_path, "other", "0" * 32, options) as pending, refused:
            pending.append_arrow(arrow)
    assert len(values(tmp_path / f"log{size}")) == 1 + 3 * 3
    assert values(tmp_path / f"log{size - 1}") == []


@pytest.mark.parametrize(
    "names",
    [("name", "value"), ("key", "val"), ("key",), ("key", "value", "more"), ("key", "key")],
    ids=str,
)
def test_fields_of_headers_that_are_not_key_and_value_are_named(
    log_path: str, names: tuple[str, ...]
) -> None:
    entries = pa.StructArray.from_arrays([pa.array(["h"])] * len(names), list(names))
    headers = pa.ListArray.from_arrays(pa.array([0, 1], pa.int32()), entries)
    with (
        aolog.Writer(log_path) as writer,
        pytest.raises(aolog.RecordRefused, match=f"fields {', '.join(names)}; .*key and value"),
    ):
        writer.append_arrow(batch(value=[b"a"], headers=headers))


@pytest.mark.parametrize(
    "headers",
    [
        pa.array([[{"value": b"1", "key": "h"}], None]),
        pa.array([[("h", b"1")], []], pa.map_(pa.string(), pa.binary())),
        pa.array([[{"key": "h", "value": "1"}], []], pa.large_list(NULLABLE.value_type)),
    ],
    ids=lambda array: str(array.type),
)
def test_headers_of_other_types_with_these_fields_are_taken(
    log_path: str, headers: pa.Array
) -> None:
    appended(log_path, batch(value=[b"a", b"b"], headers=headers))
    assert [record.headers for record in read_all(log_path)] == [(("h", b"1"),), ()]


def test_no_header_in_any_record_needs_no_type(log_path: str) -> None:
    appended(
        log_path,
        batch(value=[b"a"], headers=pa.array([[]])),
        batch(value=[b"b"], headers=pa.nulls(1)),
    )
    assert [record.headers for record in read_all(log_path)] == [(), ()]


def invalid_text(n: int = 1) -> pa.Array:
    """A string array whose bytes are no UTF-8: Arrow does not check."""
    offsets = pa.py_buffer(np.arange(0, 2 * n + 1, 2, dtype=np.int32))
    return pa.Array.from_buffers(pa.string(), n, [None, offsets, pa.py_buffer(b"\xff\xfe" * n)])


def test_text_that_is_not_utf_8_is_refused_before_a_reader_meets_it(log_path: str) -> None:
    bad_header = pa.ListArray.from_arrays(
        pa.array([0, 1], pa.int32()),
        pa.StructArray.from_arrays(
            [invalid_text(), pa.array([b"1"])], fields=list(HEADERS.value_type)
        ),
    ).cast(HEADERS)
    with aolog.Writer(log_path) as writer:
        for columns in ({"topic": invalid_text()}, {"headers": bad_header}):
            with pytest.raises(aolog.RecordRefused):
                writer.append_arrow(batch(value=[b"a"], **columns))
        writer.append_arrow(batch(value=invalid_text()))  # a value is bytes, whatever Arrow says
    assert values(log_path) == [b"\xff\xfe"]


# --- to Arrow --------------------------------------------------------------------------------


def mixed(path: str) -> list[aolog.Record]:
    """Frames that differ in which columns they have."""
    with aolog.Writer(path) as writer:
        writer.append(b"lone")
        writer.flush()
        writer.append_many([b"a", None, b""])
        writer.append(b"k", key=b"key")
        writer.append(None)
        writer.flush()
        writer.append(b"t", topic="t", timestamp=5)
        writer.append(b"t2", topic="t", timestamp=6)
        writer.flush()
        writer.append(b"h", headers=(("h", None), ("i", b"2")))
        writer.append(b"t", topic="other")
        writer.append(b"n")
        writer.flush()
        writer.append_arrow(batch(**FULL))
    return read_all(path)


@pytest.mark.parametrize("max_bytes", [1, 200, 1 << 20])
def test_arrow_shows_the_records_however_frames_are_put_together(
    log_path: str, max_bytes: int
) -> None:
    records = mixed(log_path)
    found = []
    with aolog.Reader(log_path) as reader:
        while (got := reader.read_batch(max_bytes)) is not None:
            arrow = got.to_arrow()
            arrow.validate(full=True)
            found += from_arrow_rows(arrow)
    assert found == records


@pytest.mark.parametrize("max_bytes", [1, 1 << 20])
def test_a_record_without_a_timestamp_has_null(log_path: str, max_bytes: int) -> None:
    with aolog.Writer(log_path) as writer:
        for times in ([NO_TIMESTAMP], [7], [8, NO_TIMESTAMP, NO_TIMESTAMP + 1]):
            writer.append_many([b"v"] * len(times), timestamps=times)
    found: list[int | None] = []
    with aolog.Reader(log_path) as reader:
        while (got := reader.read_batch(max_bytes)) is not None:
            found += got.to_arrow(["timestamp"]).column(0).cast(pa.int64()).to_pylist()
    assert found == [None, 7, 8, None, NO_TIMESTAMP + 1]


def test_a_batch_that_begins_in_a_frame_is_sliced(log_path: str) -> None:
    records = mixed(log_path)
    for i in range(len(records)):
        with aolog.Reader(log_path, records[i].address) as reader:
            arrow = reader.read_batch(1 << 20).to_arrow()
            arrow.validate(full=True)
            assert from_arrow_rows(arrow) == records[i:]


@pytest.mark.parametrize("last", [b"last", None])
def test_large_frames_become_one_batch(log_path: str, last: bytes | None) -> None:
    frames = [[b"%d" % i * 100 for i in range(n, n + 200)] for n in (10, 300, 500)]
    frames[2].append(last)
    with aolog.Writer(log_path) as writer:
        for frame in frames:
            writer.append_many(frame, keys=[b"k"] * len(frame))
            writer.flush()
    records = read_all(log_path)
    with aolog.Reader(log_path, records[5].address) as reader:
        got = reader.read_batch(1 << 20)
    assert len(got.frames) == len(frames)
    for columns in (["value"], ["value", "key"], ["value", "address"]):
        arrow = got.to_arrow(columns)
        arrow.validate(full=True)
        assert arrow.to_pylist() == [{c: getattr(r, c) for c in columns} for r in records[5:]]


def test_columns_are_chosen_by_name_and_order(log_path: str) -> None:
    records = mixed(log_path)
    with aolog.Reader(log_path) as reader:
        got = reader.read_batch(1 << 20)
    arrow = got.to_arrow(["value", "address"])
    assert arrow.schema.names == ["value", "address"]
    assert arrow.column("value").to_pylist() == [record.value for record in records]
    assert got.to_arrow([]).num_columns == 0
    with pytest.raises(aolog.UsageError, match="no column 'offset'"):
        got.to_arrow(["offset"])


def test_one_frame_becomes_arrow_without_a_copy(log_path: str) -> None:
    with aolog.Writer(log_path) as writer:
        writer.append_many([b"x" * 100] * 1000)
    with aolog.Reader(log_path) as reader:
        got = reader.read_batch()
    one, two = (got.to_arrow(["value"]).column(0).buffers()[2] for _ in range(2))
    assert one.address == two.address
    assert one.size >= 100_000


def test_what_was_read_as_arrow_may_be_appended_as_it_is(log_path: str) -> None:
    records = mixed(log_path)
    copy = log_path + "-copy"
    with aolog.Reader(log_path) as reader, aolog.Writer(copy) as writer:
        while (got := reader.read_batch(300)) is not None:
            writer.append_arrow(got.to_arrow())
    assert [record[1:] for record in read_all(copy)] == [record[1:] for record in records]
