"""Stamps of rows, without Spark: right, or not there."""

import pyarrow as pa
import pytest

import aolog
from aolog.format.origin import HEADER_NAME
from aolog.spark.kafka_sink import messages_of
from aolog.spark.origins import Origins
from bridge.kafka.stamp import decode_stamp
from tests.aolog.conftest import fill


def batch_of(rows, **others):
    columns = {
        "log": pa.array([row[0] for row in rows], pa.string()),
        "offset": pa.array([row[1] for row in rows], pa.int64()),
        "timestamp": pa.array([row[2] for row in rows], pa.timestamp("us", "UTC")),
    }
    return pa.RecordBatch.from_pydict(columns | others)


def decoded(root, batch):
    with Origins(str(root)) as origins:
        return [stamp and decode_stamp([(HEADER_NAME, stamp)]) for stamp in origins.stamps(batch)]


def records_of(path):
    with aolog.Reader(path) as reader:
        return list(reader), reader.topic_uuid


def test_rows_of_many_logs_and_slabs_have_the_stamps_that_the_bridge_would_give(tmp_path):
    rows, expected = [], []
    for name, format_ in (("a", "aolog"), ("deep/b", "aolog"), ("old", "queuefka")):
        path = tmp_path / name
        fill(path, (b"." * 500 for _ in range(30)), slab_bytes=5000, batch_bytes=0, format=format_)
        with aolog.Reader(path) as reader:
            while (batch := reader.read_batch(1000)) is not None:
                for record in batch:
                    rows.append((name, record.address, record.timestamp))
                    epoch = batch.frames[0].epoch
                    expected.append((epoch, record.address, record.timestamp))
    rows, expected = rows[::2] + rows[1::2], expected[::2] + expected[1::2]
    found = decoded(tmp_path, batch_of(rows))
    assert [tuple(stamp[1:]) for stamp in found] == expected
    for name in ("a", "deep/b"):
        uuid = records_of(tmp_path / name)[1]
        uuids = {stamp.topic_uuid for stamp, row in zip(found, rows, strict=True) if row[0] == name}
        assert uuids == {uuid}


def test_what_is_not_known_has_no_stamp(tmp_path):
    with aolog.Writer(tmp_path / "a", slab_bytes=5000, batch_bytes=0) as log:
        addresses = [log.append(b"." * 500) for _ in range(30)]
    min((tmp_path / "a").glob("*.slab")).unlink()  # pruned
    rows = [("a", addresses[0], 1), ("a", addresses[-1], None), (None, addresses[-1], 1),
            ("a", None, 1)]  # fmt: skip  # one thing
    first, last, *others = decoded(tmp_path, batch_of(rows))
    assert (first, *others) == (None, None, None)
    assert (last.address, last.timestamp_us) == (addresses[-1], None)
    assert decoded(tmp_path, batch_of(rows).drop_columns(["offset"])) == [None] * 4


def test_a_root_that_is_a_log_is_the_one_that_its_rows_name(tmp_path):
    with aolog.Writer(tmp_path / "log") as log:
        log.append(b"x", timestamp=7)
    ((record,), uuid) = records_of(tmp_path / "log")
    (stamp,) = decoded(tmp_path / "log", batch_of([("log", record.address, 7)]))
    assert stamp == (uuid, stamp.epoch, record.address, 7)


@pytest.mark.parametrize(("us", "ms"), [(None, 0), (-5, 0), (1_999, 1), (10**15, 10**12)])
def test_messages_have_what_their_rows_have(tmp_path, us, ms):
    fill(tmp_path / "a", [b"x"])
    pair = pa.struct([("key", pa.string()), ("value", pa.binary())])
    headers = pa.array(
        [[{"key": "h", "value": None}, {"key": None, "value": b"v"}]], pa.list_(pair)
    )
    batch = batch_of([("a", None, us)], value=pa.array([None], pa.binary()), headers=headers)
    with Origins(str(tmp_path)) as origins:
        assert list(messages_of(batch, origins)) == [(None, None, ms, [("h", None), ("", b"v")])]
