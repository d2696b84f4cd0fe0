"""Columns say what records say, however the frames were made and whatever is taken of them."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path
from typing import Any

import pytest

from aolog import Reader, Writer
from aolog.format.columns import Columns
from aolog.format.origin import HEADER_NAME
from aolog.format.slab import NO_TIMESTAMP
from aolog.read.batch import Batch, RecordFrame
from bridge.kafka.lane import LaneKey
from bridge.kafka.messages import MessageRows, Messages, messages_of, milliseconds
from bridge.kafka.plugin import plugin
from bridge.kafka.stamp import encode_stamp

UUID = bytes(range(16))
US = 1_700_000_000_123_456

PLAIN: list[dict[str, Any]] = [{"value": b"v%d" % i} for i in range(200)]
KEYED = [{**one, "key": b"" if i % 7 else None} for i, one in enumerate(PLAIN)]
TIMED = [{**one, "timestamp": US + i * 777} for i, one in enumerate(KEYED)]
OLD = [{**one, "timestamp": -1500 + i * 100} for i, one in enumerate(PLAIN)]
UNDATED = [{**one, "timestamp": US if i % 3 else NO_TIMESTAMP} for i, one in enumerate(KEYED)]
EMPTY = [{"value": None if i % 3 else b"", "key": b"k"} for i in range(200)]
HEADED = [{**one, "headers": (("a", b"1"), ("b", None))} for one in TIMED]
ONE_TOPIC = [{**one, "topic": "t"} for one in TIMED]
TOPICS = [{**one, "topic": f"t{i % 3}" if i % 4 else None} for i, one in enumerate(TIMED)]


def batch_of(path: Path, records: list[dict[str, Any]], **options: Any) -> Batch:
    with Writer(path, **options) as log:
        for record in records:
            log.append(**record)
    with Reader(path) as reader:
        batch = reader.read_batch(1 << 20)
    assert batch is not None
    assert len(batch) == len(records)
    return batch


def said_by(batch: Batch) -> list[tuple[Any, ...]]:
    """What the client must be given for each record, made of the record."""
    epoch = batch.frames[0].epoch
    return [
        ("t", r.value, r.key, 3, None, None, milliseconds(r.timestamp),
         [*r.headers, (HEADER_NAME, encode_stamp(UUID, epoch, r.address, r.timestamp))])
        for r in batch
    ]  # fmt: skip  # one thing, one line


def part_of(messages: Messages, begin: int, end: int) -> list[tuple[Any, ...]]:
    lanes: list[LaneKey] = [("t", 3)] * messages.records
    return list(MessageRows(messages, lanes, begin, end, None).calls(end))


@pytest.mark.parametrize("batch_bytes", [1 << 16, 2000, 100, 0])
@pytest.mark.parametrize(
    "records",
    [PLAIN, KEYED, TIMED, OLD, UNDATED, EMPTY, HEADED, ONE_TOPIC, TOPICS, PLAIN[:1], TIMED[:63]],
)
def test_columns_are_those_of_the_records(
    tmp_path: Path, records: list[dict[str, Any]], batch_bytes: int
) -> None:
    batch = batch_of(tmp_path / "log", records, batch_bytes=batch_bytes)
    messages = messages_of(batch, UUID)
    assert messages.records == len(records)
    assert part_of(messages, 0, len(records)) == said_by(batch)
    assert list(messages.addresses) == [record.address for record in batch]
    assert list(messages.topics) == [record.topic for record in batch]
    assert list(messages.sizes) == [len(r.value or b"") + len(r.key or b"") for r in batch]
    assert {type(size) for size in messages.sizes} == {int}


def test_what_is_taken_keeps_no_other_frame_in_memory(tmp_path: Path) -> None:
    long = [{**record, "value": bytes(600)} for record in TIMED]
    batch = batch_of(tmp_path / "log", long, batch_bytes=20_000)  # frames that are not put together
    messages, said = messages_of(batch, UUID), said_by(batch)
    frames = [weakref.ref(frame.columns.values.data) for frame in batch.frames]  # type: ignore[union-attr]  # none is of a lone record
    assert len(frames) > 3
    taken = messages.take([0, 1])
    del batch, messages
    gc.collect()
    assert [frame() is not None for frame in frames[1:]] == [False] * len(frames[1:])
    assert part_of(taken, 0, 2) == said[:2]


@pytest.mark.parametrize(
    ("us", "ms"),
    [(None, 0), (0, 1), (-5_000_000, 1), (999, 1), (1_000, 1), (2_999, 2), (US, US // 1000)],
)
def test_kafkas_timestamp_is_rounded_down_and_never_before_1970(us: int | None, ms: int) -> None:
    assert milliseconds(us) == ms


def test_frames_with_other_columns_and_lengths_are_put_together(tmp_path: Path) -> None:
    parts = [PLAIN[:90], TIMED, KEYED[:50], TIMED[:1], ONE_TOPIC[:70]]
    with Writer(tmp_path / "log") as log:
        for part in parts:
            for record in part:
                log.append(**record)
            log.flush()
    with Reader(tmp_path / "log") as reader:
        for _ in range(33):
            reader.read()
        batch = reader.read_batch(1 << 20)
    assert batch is not None
    count = sum(map(len, parts)) - 33
    assert len(batch) == count
    messages = messages_of(batch, UUID)
    assert list(messages.addresses) == [record.address for record in batch]
    assert part_of(messages, 0, count) == said_by(batch)
    assert list(messages.sizes) == [len(r.value or b"") + len(r.key or b"") for r in batch]
    assert list(messages.topics) == [record.topic for record in batch]


def test_fields_are_where_the_compiled_half_reads_them() -> None:
    """See _messages.h."""
    frame, columns = RecordFrame._fields, Columns._fields
    assert (frame[0], frame[4], frame[6:9]) == (
        "address",
        "timestamp_us",
        ("columns", "epoch", "addresses"),
    )
    assert (columns[0], columns[3:6]) == ("records", ("timestamps", "keys", "topic"))


@pytest.mark.skipif(plugin() is None, reason="the compiled half was not built")
@pytest.mark.parametrize(
    "wrong",
    [
        {"count": 7}, {"count": 5}, {"count": -1}, {"source": b"short"}, {"values": []}, {"values": [None]},
        {"frames": []}, {"columns": {"records": 4}},
        {"columns": {"records": -1}}, {"columns": {"timestamps": memoryview(bytes(23))}},
        {"columns": {"keys": (None, b"\1" * 16, b"")}}, {"frame": ()}, {"frame": None},
        {"columns": {"keys": (b"", bytes(16), b"")}}, {"columns": {"values": 7}}, {"addresses": b"few"},
        {"address": None}, {"timestamp_us": 1 << 70},
    ],
)  # fmt: skip  # a list
def test_columns_that_do_not_fit_are_refused(tmp_path: Path, wrong: dict[str, Any]) -> None:
    """The compiled half checks every length first: otherwise it would read beyond a buffer."""
    compiled = plugin()
    assert compiled is not None
    keyed = [{"value": b"v", "key": b"k", "timestamp": US + i} for i in range(3)]
    (frame,) = batch_of(tmp_path / "log", keyed).frames
    columns = frame.columns._replace(**wrong.pop("columns", {}))
    of_frame = {name: wrong.pop(name) for name in frame._fields if name in wrong}
    second = wrong.pop("frame", frame._replace(columns=columns, **of_frame))
    given = {"frames": [frame, second], "values": [frame.columns.values, columns.values]}
    given |= {"count": 6, "source": UUID}
    with pytest.raises((ValueError, TypeError, IndexError, OverflowError, SystemError)):
        compiled.half.messages(*{**given, **wrong}.values())
