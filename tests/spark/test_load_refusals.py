"""What a load refuses, and the words in which it does. Options of Spark's Kafka source are in
test_kafka_options.py."""

from __future__ import annotations

import pytest

from aolog.errors import AologError, UsageError
from tests.spark.driving import refusal, source, struct, table, write


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"path": "hdfs://bucket/log"}, "option path: hdfs://bucket/log: hdfs: is not a file system"),
        ({"path": "s3a:b"}, "option path: s3a:b: s3a: is not a file system"),
        ({"path": "C:\\logs"}, "option path: C:\\logs: C: is not a file system"),
        ({"path": "file://other/x"}, "option path: file://other/x: a file of another host, other"),
        ({"path": "file:logs"}, "option path: file:logs: file: needs an absolute path"),
        ({"path": ""}, "option path"),
        ({"startingOffset": "earliest"}, "option startingoffset: is not known; did you mean startingOffsets"),
        ({"startingOffsets": "first"}, "option startingOffsets: 'first' is neither"),
        ({"startingOffsets": '{"log": -3}'}, "option startingOffsets: -3 is no address in 'log'"),
        ({"endingOffsets": '{"log": "1"}'}, "option endingOffsets: '1' is no address"),
        ({"startingOffsets": '{"gone": 1}'}, "option startingOffsets: no log 'gone'"),
        ({"startingOffsets": '{"log": 8192, "log": -2}'}, "option startingOffsets: '{"),
        ({"endingOffsets": "[" * 100_000}, "option endingOffsets: '[["),
        ({"startingTimestamp": "1_000"}, "option startingTimestamp: '1_000'"),
        ({"minPartitions": "²"}, "option minPartitions: '²' is not a whole number"),
        ({"maxPartitionBytes": "9" * 5000}, "option maxPartitionBytes"),
        ({"path": "a\0b"}, "option path: 'a\\x00b' has a NUL in it"),
        ({"paths": '"log"'}, "option paths: is not a JSON list of paths"),
        ({"endingOffsets": '{"log": 99999999}'}, "option endingOffsets: 'log': address 99999999 is past the end"),
        ({"startingOffsets": '{"log": 8300}', "endingOffsets": '{"log": 8200}'}, "8300 is after endingOffsets, 8200"),
        ({"startingTimestamp": "yesterday"}, "option startingTimestamp"),
        ({"failOnDataLoss": "no"}, "option failOnDataLoss"),
        ({"onCorruption": "ignore"}, "option onCorruption: 'ignore' is neither fail nor skip"),
        ({"maxPartitionBytes": "1x"}, "option maxPartitionBytes"),
        ({"columns": "value,size"}, "option columns: no column 'size'"),
        ({"columns": "value,value"}, "option columns: names a column twice"),
        ({"columns": ","}, "option columns: names nothing"),
        ({"subscribe": "other"}, "option subscribe: no log 'other'; the logs are log"),
        ({"subscribe": "log", "subscribePattern": "l.*"}, "exclude each other"),
        ({"subscribePattern": "("}, "option subscribePattern"),
        ({"cursor": "c"}, "option cursor: needs a stream; this is a batch"),
        ({"provider": "aolog", "location": "x"}, "CREATE TEMPORARY VIEW"),
    ],
    ids=str,
)  # fmt: skip  # a table
def test_an_option_that_cannot_be_is_named(tmp_path, options, says):
    write(tmp_path / "log", 3)
    given = {"path": str(tmp_path / "log"), **options}
    assert says in refusal(given.pop("path"), **given)


@pytest.mark.parametrize("what", ["nothing", "an empty directory", "a file", "a pattern"])
def test_a_path_without_a_log_is_named(tmp_path, what):
    path = tmp_path / "here"
    if what == "an empty directory":
        path.mkdir()
    elif what == "a file":
        path.write_bytes(b"")
    elif what == "a pattern":
        write(tmp_path / "here1")
        path = tmp_path / "here*"
    with pytest.raises(AologError, match=str(path).replace("*", "[*]")):
        source(path).schema()


@pytest.mark.parametrize(
    ("glob", "parent", "pattern"),
    [
        ("h*/events", "", "h[^/]*/events"),
        ("h1/e?ents", "/h1", "e[^/]ents"),
        ("h[12]/events", "", "h[12]/events"),
        ("{h1,h2}/events", "", "(h1|h2)/events"),
    ],
)
def test_a_glob_is_refused_with_the_options_that_mean_it(tmp_path, glob, parent, pattern):
    for name in ("h1/events", "h2/events", "h1/audit"):
        write(tmp_path / name, 1)
    with pytest.raises(UsageError) as raised:
        source(tmp_path / glob).schema()
    says = str(raised.value)
    assert f"option path: {tmp_path / glob} is not a directory" in says
    assert f'load("{tmp_path}{parent}") with subscribePattern "{pattern}"' in says
    found = table(f"{tmp_path}{parent}", subscribePattern=pattern, columns="log")["log"]
    assert all(name.endswith("events") for name in found.to_pylist())
    assert len(found)


def test_a_log_whose_name_is_no_text_is_refused(tmp_path):
    write(tmp_path / "a\udcff", 1)
    with pytest.raises(UsageError, match=r"a\\xff' is not UTF-8"):
        source(tmp_path).schema()


@pytest.mark.parametrize(
    ("schema", "says"),
    [
        (struct("value", size="long"), "schema: no column 'size'"),
        (struct("offset", value="string"), "schema: column value is binary, not string"),
        (struct(), "schema: no column"),
        (struct("value", "value"), "or one twice"),
    ],
)
def test_a_schema_that_cannot_be_is_named(tmp_path, schema, says):
    write(tmp_path / "log", 1)
    assert says in refusal(tmp_path / "log", schema)
