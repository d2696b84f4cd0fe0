"""What a write refuses, by name, before anything is begun; and the tasks' part without a Spark."""

from __future__ import annotations

import json
import pickle

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

import aolog
from aolog.errors import UsageError
from aolog.publish.publication import publish
from aolog.spark import kafka_sink, routing
from aolog.spark.batch_content import checkpoint_below, digest_of, logs_read, plan_of
from aolog.spark.executor_writer import writer_per_task
from aolog.spark.routing import Router
from aolog.spark.schema import check_rows
from aolog.spark.sink import Written, batch_writer, stream_writer
from aolog.spark.sink_options import SinkOptions, read_sink_options
from aolog.write.options import WriterOptions
from tests.aolog.conftest import open_below

JOB = "ab" * 16
VALUE = StructType([StructField("value", StringType())])


def columns(**types: object) -> StructType:
    return StructType([StructField(name, kind) for name, kind in types.items()])


# --- options ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({}, "option path: names no log"),
        ({"path": "hdfs://host/x"}, "option path: hdfs://host/x: hdfs: is not a file system"),
        ({"slabByte": "1"}, "option slabbyte: is not known; did you mean slabBytes"),
        ({"nonsense": "1"}, "option nonsense: is not known; there are log, topic"),
        ({"log": "../x"}, "option log: '../x' names no log"),
        ({"slabBytes": "many"}, "option slabBytes: 'many' is not a number of bytes"),
        ({"slabBytes": "64"}, "option slabBytes: '64' is not a number of bytes from 65536 to"),
        ({"slabBytes": "²"}, "option slabBytes: '²' is not a number of bytes"),
        ({"maxRecordBytes": str(1 << 32)}, "option maxRecordBytes"),
        ({"topic": "t" * 250}, "option topic: the topic has 250 bytes"),
        (
            {"txnAppId": "x", "txnVersion": "9" * 5000},
            "option txnVersion: '9999.*' is not a whole number",
        ),
        ({"path": "/tmp/a\0b"}, "option path: .* has a NUL in it"),
        ({"txnAppId": "x"}, "txnAppId and txnVersion: give both or neither"),
        ({"txnAppId": "x", "txnVersion": "-1"}, "option txnVersion"),
        ({"onRepeatedBatch": "no"}, "option onRepeatedBatch: 'no' is neither fail nor skip"),
        ({"compression": "gzip"}, "option compression: 'gzip' is not one of none, zstd, lz4"),
        ({"compressionLevel": "3"}, "option compressionLevel: needs the option compression"),
        (
            {"compression": "lz4", "compressionLevel": "13"},
            "option compressionLevel: 13; lz4 has levels 1 to 12",
        ),
    ],
)
def test_an_option_that_cannot_be_is_refused_by_name(tmp_path, options, problem):
    given = {"path": str(tmp_path / "root")} | options
    if not options:
        given = {}
    with pytest.raises(UsageError, match=problem):
        batch_writer(given, VALUE, False)
    assert not (tmp_path / "root").exists()


def test_options_are_read_in_any_case_and_kafkas_are_passed_over(tmp_path):
    given = {
        "path": f"file://{tmp_path}", "LOG": "a/b", "SLABBYTES": "64k", "Topic": "t",
        "kafka.bootstrap.servers": "h:9092", "checkpointLocation": "/x", "includeHeaders": "true",
        "txnappid": "n", "TXNVERSION": "0", "compression": "lz4", "leftoverseconds": "60",
    }  # fmt: skip  # a table
    assert read_sink_options(given, stream=False) == SinkOptions(
        str(tmp_path),
        "a/b",
        "t",
        WriterOptions(slab_bytes=65_536, compression="lz4"),
        "n",
        0,
        True,
        "/x",
        60,
    )


def test_a_stream_has_no_transaction_of_its_own(tmp_path):
    given = {"path": str(tmp_path), "txnAppId": "x", "txnVersion": "1"}
    with pytest.raises(UsageError, match="txnVersion: applies to batches"):
        stream_writer(given, VALUE, False)


def test_what_would_replace_is_refused(tmp_path):
    given = {"path": str(tmp_path / "root")}
    with pytest.raises(UsageError, match='mode "overwrite": a log can only be appended to'):
        batch_writer(given, VALUE, True)
    with pytest.raises(UsageError, match='output mode "complete": a log can only be appended to'):
        stream_writer(given, VALUE, True)
    assert not (tmp_path / "root").exists()


def test_a_live_writer_is_met_before_a_task_is_begun(tmp_path):
    given = {"path": str(tmp_path)}
    with (
        aolog.Writer(tmp_path / "default"),
        pytest.raises(aolog.LogLocked, match="default: another writer"),
    ):
        batch_writer(given, VALUE, False)
    batch_writer(given, VALUE, False)


def test_rows_without_a_log_go_to_the_path_if_it_is_one(tmp_path):
    assert read_sink_options({"path": str(tmp_path)}, stream=False).log == "default"
    aolog.Writer(tmp_path).close()
    assert read_sink_options({"path": str(tmp_path)}, stream=False).log == "."
    with pytest.raises(UsageError, match="inside the log"):
        batch_writer({"path": str(tmp_path), "log": "a"}, VALUE, False)


# --- columns ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("schema", "problem"),
    [
        (columns(key=StringType()), "no column 'value'; the columns are key"),
        (columns(value=IntegerType()), "column value is int, not binary or string; cast it"),
        (columns(value=StringType(), timestamp=LongType()), "column timestamp is bigint"),
        (columns(value=StringType(), log=BinaryType()), "column log is binary, not string"),
        (columns(value=StringType(), headers=ArrayType(StringType())), "column headers is array"),
        (columns(value=StringType(), other=StringType()), "column 'other' cannot be stored"),
        (StructType([*VALUE.fields, *VALUE.fields]), "two columns have the same name"),
    ],
)  # fmt: skip  # a table
def test_a_schema_that_cannot_be_is_refused_by_its_column(tmp_path, schema, problem):
    with pytest.raises(UsageError, match=problem):
        batch_writer({"path": str(tmp_path / "root")}, schema, False)
    assert not (tmp_path / "root").exists()


@pytest.mark.parametrize("check", [lambda rows: check_rows(rows, "record", topic="string"),
                                   kafka_sink.check_columns])  # fmt: skip  # a list
def test_what_a_read_makes_can_be_written(check):
    header = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
    check(
        columns(
            key=BinaryType(), value=BinaryType(), topic=StringType(), partition=IntegerType(),
            offset=LongType(), timestamp=TimestampType(), timestampType=IntegerType(),
            headers=ArrayType(header), log=StringType(),
        )
    )  # fmt: skip  # one call


# --- writers ---------------------------------------------------------------------------------


def test_a_writer_is_pickled_and_commits_what_another_copy_wrote(tmp_path):
    writer = batch_writer({"path": str(tmp_path)}, VALUE, False)
    batches = [pa.record_batch({"value": ["a", "b"]}), pa.record_batch({"value": ["c"]})]
    message = pickle.loads(pickle.dumps(writer)).write(iter(batches))
    empty = pickle.loads(pickle.dumps(writer)).write(iter([]))
    copy = pickle.loads(pickle.dumps(writer))
    copy.commit([pickle.loads(pickle.dumps(message)), empty])
    copy.abort([message, None, empty])
    with aolog.Reader(tmp_path / "default") as reader:
        assert [record.value for record in reader] == [b"a", b"b", b"c"]


def test_a_stream_s_task_outside_of_a_stream_is_refused(tmp_path):
    writer = stream_writer({"path": str(tmp_path)}, VALUE, False)
    with pytest.raises(UsageError, match="no streaming query"):
        writer.write(iter([]))
    writer.commit([], 0)
    writer.abort([None], 0)


def test_a_batch_is_committed_with_its_own_messages_and_once(tmp_path):
    """As Spark repeats a batch whose commit it did not note: new files, the same query and number."""
    writer = stream_writer({"path": str(tmp_path)}, VALUE, False)

    def written(batch: int, query: str = "q") -> Written:
        with Router(SinkOptions(str(tmp_path), "a"), JOB) as router:
            router.write(pa.record_batch({"value": [str(batch)]}))
            return Written(tuple(router.finish()), digest=batch, query=query, batch=batch)

    def values() -> list[bytes]:
        with aolog.Reader(tmp_path / "a") as reader:
            return [record.value for record in reader]

    for batch in (0, 0, 1, 1, 0):
        writer.commit([written(batch), None], batch)
    assert values() == [b"0", b"1"]
    with pytest.raises(UsageError, match="batch 3 received messages of"):
        writer.commit([written(2)], 3)
    with pytest.raises(UsageError, match="batch 2 received messages of"):
        writer.commit([written(2), written(2, "other")], 2)
    assert values() == [b"0", b"1"]


def test_the_bound_of_a_record_counts_its_key(tmp_path):
    rows = pa.record_batch({"value": [b"v" * 10], "key": [b"k" * 100]})
    for bound, refused in (("114", False), ("113", True)):
        options = read_sink_options({"path": str(tmp_path), "maxRecordBytes": bound}, stream=False)
        with Router(options, JOB) as router:
            router.write(rows)
            if refused:
                with pytest.raises(aolog.RecordTooLarge, match="a record of 114 bytes"):
                    router.finish()
                router.discard()
            else:
                assert len(router.finish()) == 1


def test_a_root_that_an_unset_variable_names_is_not_the_root_directory():
    with pytest.raises(UsageError, match="the path is empty"), writer_per_task(""):
        pass


def test_a_task_with_rows_for_many_logs_keeps_few_slabs_open(tmp_path, monkeypatch):
    monkeypatch.setattr(routing, "_OPEN_SLABS_MAX", 3)
    monkeypatch.setattr(routing, "_WAITING_BYTES", 1000)
    opened = []
    with Router(SinkOptions(str(tmp_path), "rest"), JOB) as router:
        for i in range(30):
            logs = [f"log{(i + k) % 10}" if k else None for k in range(8)]
            router.write(pa.record_batch({"value": [f"{i}.{k}" for k in range(8)], "log": logs}))
            opened.append(sum(name.endswith(".pending") for name in open_below(str(tmp_path))))
        slabs = router.finish()
    assert max(opened) == 3
    publish(tmp_path, JOB, slabs)
    found = {}
    for log in [f"log{i}" for i in range(10)] + ["rest"]:
        with aolog.Reader(tmp_path / log, strict=True) as reader:
            found[log] = [record.value.decode() for record in reader]
    assert sum(map(len, found.values())) == 240
    assert found["rest"] == [f"{i}.0" for i in range(30)]
    for i in range(10):
        wanted = [f"{n}.{k}" for n in range(30) for k in range(1, 8) if (n + k) % 10 == i]
        assert found[f"log{i}"] == wanted


# --- what a batch is recognised by -----------------------------------------------------------


def rows(*given: tuple[object, ...]) -> pa.RecordBatch:
    headers = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    kinds = [pa.binary(), pa.string(), pa.timestamp("us", "UTC"), headers, pa.string()]
    names = ["key", "value", "timestamp", "headers", "topic"]
    columns = [pa.array(c, k) for c, k in zip(zip(*given, strict=True), kinds, strict=True)]
    return pa.RecordBatch.from_arrays(columns, names=names)


ROWS = [
    (b"k", "v", 1, [("h", b"x"), ("i", None)], "t"),
    (None, "w", None, [], None),
    (b"", None, 2, None, "t"),
]


def test_the_digest_of_rows_does_not_depend_on_order_or_tasks():
    whole = digest_of(rows(*ROWS))
    assert digest_of(rows(*reversed(ROWS))) == whole
    assert sum(digest_of(rows(row)) for row in ROWS) % (1 << 64) == whole


@pytest.mark.parametrize(
    ("column", "value"),
    [(0, b"l"), (0, None), (0, b""), (1, "x"), (1, None), (1, ""), (2, 5), (2, None),
     (3, None), (3, [("h", b"x"), ("i", b"")]), (3, [("i", b"x"), ("h", None)]), (4, "u"), (4, None)],
)  # fmt: skip  # a table
def test_the_digest_of_rows_changes_with_every_value_of_a_row(column, value):
    changed = list(ROWS[0])
    changed[column] = value
    assert digest_of(rows(tuple(changed), *ROWS[1:])) != digest_of(rows(*ROWS))


def test_the_digest_of_rows_binds_a_key_to_its_value():
    swapped = [(ROWS[1][0], *ROWS[0][1:]), (ROWS[0][0], *ROWS[1][1:]), ROWS[2]]
    assert digest_of(rows(*swapped)) != digest_of(rows(*ROWS))


def test_a_checkpoint_is_found_in_a_directory_and_in_an_object_store(tmp_path, monkeypatch):
    client = pytest.importorskip("aolog.storage.objects.client")
    local = pytest.importorskip("obstore.store").LocalStore
    below = f"{tmp_path}/bucket"
    monkeypatch.setattr(client, "from_url", lambda url, **_: local(below + url[len("s3://b") :]))
    for number, name in enumerate(("other", "ours")):
        offsets = tmp_path / "bucket" / "states" / name / "offsets"
        offsets.mkdir(parents=True)
        (offsets.parent / "metadata").write_text(json.dumps({"id": f"query-{number}"}))
        for batch in range(2):
            (offsets / str(batch)).write_text(f'v1\n{{}}\n{{"log": [{batch}, "{name}", false, 0]}}')
    (tmp_path / "bucket" / "states" / "more").mkdir()
    for root in (f"{below}/states", f"file:{below}/states", "s3a://b/states"):
        found = checkpoint_below(root, "query-1")
        assert found.endswith("/states/ours")
        assert logs_read(found, 1) == {"ours"}
        assert plan_of(found, 0) == plan_of(f"{below}/states/ours", 0) != plan_of(found, 1)
        assert plan_of(found, 7) is None
        assert checkpoint_below(root, "query-2") is None
