"""Options of Spark's Kafka source, with its names, and what they mean for a log."""

from __future__ import annotations

import json

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMinRows

import aolog
from aolog.errors import UsageError
from aolog.spark import batch_delay, planning
from aolog.spark.options import read_options
from tests.aolog.conftest import fill
from tests.spark.driving import offsets, refusal, table, tasks, write, write_damaged
from tests.spark.queries import Query, named

pytestmark = pytest.mark.usefixtures("looks_at_once")

T0 = 1_700_000_000_000  # milliseconds; `write` makes a record in each from here on


def names(path, **options):
    return sorted(set(table(path, columns="log", **options)["log"].to_pylist()))


def test_kafka_s_own_options_are_passed_over(tmp_path):
    addresses = write(tmp_path / "log", 3)
    options = {"kafka.bootstrap.servers": "h:1", "kafkaConsumer.pollTimeoutMs": "1"}
    assert offsets(tmp_path / "log", **options) == addresses


# --- assign ---------------------------------------------------------------------------------


def test_assign_selects_logs_as_kafka_s_partitions(tmp_path):
    for name in "abc":
        write(tmp_path / name, 1)
    assert names(tmp_path, assign='{"a": [0], "c": [0]}') == ["a", "c"]
    assert names(tmp_path, assign='{"a": [0], "b": []}') == ["a"]
    query = Query(tmp_path, assign='{"b": [0]}')
    assert {name for _, name in query.batch()} == {"b"}


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"assign": "a"}, "option assign: 'a' is not JSON such as {\"name\": [0]}"),
        ({"assign": '{"a": 0}'}, "option assign: 0 is not a list of the partitions of 'a'"),
        ({"assign": '{"a": [0, 1]}'}, "option assign: 'a' has one partition, 0, not [0, 1]"),
        ({"assign": '{"a": [0], "a": [0]}'}, "option assign: "),
        ({"assign": "{}"}, "option assign: names nothing"),
        ({"assign": '{"x": [0]}'}, "option subscribe: no log 'x'"),
        ({"assign": '{"a": [0]}', "subscribe": "a"}, "assign and subscribe exclude each other"),
        ({"assign": '{"a": [0]}', "subscribePattern": "a"}, "assign and subscribePattern exclude"),
    ],
    ids=str,
)
def test_an_assignment_that_cannot_be_is_named(tmp_path, options, says):
    write(tmp_path / "a", 1)
    assert says in refusal(tmp_path, **options)


# --- timestamps of each log -----------------------------------------------------------------


def test_logs_begin_and_end_at_timestamps_of_their_own(tmp_path):
    a, b, c = (write(tmp_path / name, 10) for name in "abc")
    given = {
        "startingOffsetsByTimestamp": json.dumps({"a": T0 + 3, "b": {"0": T0 + 9}}),
        "endingOffsetsByTimestamp": json.dumps({"a": T0 + 5}),
        "startingOffsets": json.dumps({"a": -1, "c": c[8]}),  # for logs without a timestamp
    }
    read = table(tmp_path, columns="offset,log", **given).to_pylist()
    assert [(row["offset"], row["log"]) for row in read] == [
        *named(a[3:5], "a"),
        *named(b[9:], "b"),
        *named(c[8:], "c"),
    ]
    del given["endingOffsetsByTimestamp"]
    assert sorted(Query(tmp_path, **given).batch()) == sorted(
        [*named(a[3:], "a"), *named(b[9:], "b"), *named(c[8:], "c")]
    )
    found = offsets(tmp_path, startingTimestamp=T0 + 8, **given)
    assert found == [*a[8:], *b[8:], *c[8:]], "one for all logs overrides"


def test_a_timestamp_after_the_last_record_is_the_end_or_an_error(tmp_path):
    addresses = write(tmp_path / "a", 3)
    write(tmp_path / "b", 3)
    late = json.dumps({"a": T0 + 3})
    for given in (
        {"startingOffsetsByTimestamp": late, "subscribe": "a"},
        {"startingTimestamp": T0 + 3},
    ):
        assert offsets(tmp_path, **given) == []
        query = Query(tmp_path, startingOffsetsByTimestampStrategy="LATEST", **given)
        assert query.batch() is None
        option = next(iter(given))
        for reads in (table, Query):
            with pytest.raises(UsageError) as raised:
                reads(tmp_path, startingOffsetsByTimestampStrategy="error", **given)
            says = str(raised.value)
            assert f"option {option}: 'a' has no record at or after {T0 + 3}" in says
            assert "startingOffsetsByTimestampStrategy to latest" in says
    end = {"endingOffsetsByTimestamp": late, "startingOffsetsByTimestampStrategy": "error"}
    assert offsets(tmp_path / "a", **end) == addresses, "as Kafka's: an end has no strategy"


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"startingOffsetsByTimestamp": "now"}, "option startingOffsetsByTimestamp: 'now' is not JSON"),
        ({"startingOffsetsByTimestamp": '{"a": "1"}'}, "'1' is no time in 'a'"),
        ({"endingOffsetsByTimestamp": '{"a": true}'}, "option endingOffsetsByTimestamp: True is no time"),
        ({"endingOffsetsByTimestamp": '{"a": {"1": 5}}'}, "{'1': 5} is no time in 'a'"),
        ({"startingOffsetsByTimestamp": '{"x": 1}'}, "option startingOffsetsByTimestamp: no log 'x'"),
        ({"startingOffsetsByTimestampStrategy": "first"}, "'first' is neither error nor latest"),
    ],
    ids=str,
)  # fmt: skip  # a table
def test_timestamps_that_cannot_be_are_named(tmp_path, options, says):
    write(tmp_path / "a", 1)
    assert says in refusal(tmp_path, **options)


def test_timestamps_of_logs_of_format_1_are_refused_and_others_are_read(tmp_path):
    fill(tmp_path / "old", [b"old"], format="queuefka")
    addresses = write(tmp_path / "new", 3)
    given = json.dumps({"old": T0})
    assert "'old' is of format 1, which has no timestamps" in refusal(
        tmp_path, startingOffsetsByTimestamp=given
    )
    given = json.dumps({"new": T0 + 1})
    read = table(tmp_path, columns="offset,log", startingOffsetsByTimestamp=given).to_pylist()
    assert [row["offset"] for row in read if row["log"] == "new"] == addresses[1:]
    with pytest.raises(
        UsageError, match="option endingOffsetsByTimestamp: needs a batch; this is a stream"
    ):
        Query(tmp_path, endingOffsetsByTimestamp=given)


# --- a batch that waits ---------------------------------------------------------------------


@pytest.mark.parametrize("most", [{}, {"maxOffsetsPerTrigger": 12}, {"maxBytesPerTrigger": "1g"}])
def test_a_batch_waits_for_the_least_records_or_the_delay(tmp_path, monkeypatch, most):
    now = [1000.0]
    monkeypatch.setattr(batch_delay, "monotonic", lambda: now[0])
    first = write(tmp_path / "a", 3)
    query = Query(tmp_path, minOffsetsPerTrigger=10, maxTriggerDelay="30s", **most)
    assert query.batch() == named(first, "a"), "the first batch does not wait"
    rows = named(write(tmp_path / "a", 4), "a")
    rows += named(write(tmp_path / "b", 5), "b")  # a log that comes counts, too
    assert query.batch() is None
    now[0] += 29
    assert query.batch() is None
    now[0] += 1
    assert query.batch() == rows, "the delay is over"
    rows = named(write(tmp_path / "a", 9), "a")
    assert query.batch() is None
    rows += named(write(tmp_path / "b", 1), "b")
    assert query.batch() == rows, "there are enough"
    now[0] += 1000
    assert query.batch() is None
    more = write(tmp_path / "a", 1)
    assert query.batch() == named(more, "a")


def test_a_query_that_ends_at_what_is_there_does_not_wait(tmp_path):
    write(tmp_path / "a", 3)
    query = Query(tmp_path, minOffsetsPerTrigger=10)
    assert query.limit == ReadMinRows(10)
    query.all()
    more = write(tmp_path / "a", 2)
    assert query.batch() is None
    restarted = Query(tmp_path, checkpoint=query.offset, minOffsetsPerTrigger=10)
    restarted.reader.prepareForTriggerAvailableNow()
    assert restarted.batch() == named(more, "a")
    assert query.batch(ReadAllAvailable()) == named(more, "a"), "as Trigger.Once asks"


def test_a_log_that_is_waited_for_is_protected_by_the_cursor(tmp_path):
    write(tmp_path / "a", 1)
    query = Query(tmp_path, minOffsetsPerTrigger=100, cursor="spark")
    query.batch()
    write(tmp_path / "new", 5)
    assert query.batch() is None
    assert [cursor.ordinal for cursor in aolog.cursors(tmp_path / "new")] == [0]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"minOffsetsPerTrigger": "0"}, "option minOffsetsPerTrigger: '0' is not a whole number"),
        ({"minOffsetsPerTrigger": 5, "maxOffsetsPerTrigger": 4}, "5 is above maxRecordsPerTrigger, 4"),
        ({"maxTriggerDelay": "soon"}, "option maxTriggerDelay: 'soon' is not a duration; such as 30s"),
        ({"maxTriggerDelay": "9" * 50}, "option maxTriggerDelay"),
    ],
    ids=str,
)  # fmt: skip  # a table
def test_a_wait_that_cannot_be_is_named(tmp_path, options, says):
    write(tmp_path / "a", 1)
    with pytest.raises(UsageError) as raised:
        Query(tmp_path, **options)
    assert says in str(raised.value)
    option = next(iter(options))
    assert f"option {option}: needs a stream; this is a batch" in refusal(tmp_path, **{option: 5})


def test_a_log_of_format_1_cannot_be_waited_for(tmp_path):
    fill(tmp_path / "old", [b"1"], format="queuefka")
    query = Query(tmp_path, minOffsetsPerTrigger=2)
    query.all()
    fill(tmp_path / "old", [b"1"], format="queuefka")
    with pytest.raises(UsageError, match="minOffsetsPerTrigger: 'old' is of format 1"):
        query.batch()


@pytest.mark.parametrize(
    ("text", "seconds"), [("15m", 900), ("2min", 120), ("1500", 1.5), ("500ms", 0.5), ("1h", 3600)]
)
def test_a_delay_is_written_as_for_spark(text, seconds):
    given = {"path": "/x", "maxtriggerdelay": text}
    assert read_options(given, stream=True).max_trigger_delay_s == seconds


# --- records of a task ----------------------------------------------------------------------


def sizes_of(path, **options):
    """Rows of each task, and the offsets of all."""
    found = tasks(path, columns="offset", **options)
    sizes = [sum(batch.num_rows for batch in batches) for batches in found]
    return sizes, [offset for b in found for each in b for offset in each["offset"].to_pylist()]


@pytest.mark.parametrize(
    "others", [{}, {"minPartitions": 7}, {"maxPartitionBytes": "50k"}], ids=str
)
def test_no_task_has_more_records_and_each_is_read_once(tmp_path, others):
    with aolog.Writer(tmp_path / "log", slab_bytes=100_000) as log:
        addresses = [
            each for size in (500, 7, 493) for each in log.append_many([bytes(99)] * size).tolist()
        ]
    for most in (1000, 999, 300, 77):
        sizes, read = sizes_of(tmp_path / "log", maxRecordsPerPartition=most, **others)
        assert read == addresses
        assert max(sizes) <= most
        if not others:
            assert len(sizes) == -(-1000 // most)
            assert max(sizes) - min(sizes) <= 1, "even shares"


def test_small_logs_share_a_task_up_to_its_records(tmp_path):
    for i in range(10):
        write(tmp_path / f"{i}", 4)
    sizes, read = sizes_of(tmp_path, maxRecordsPerPartition=10)
    assert sizes == [8] * 5
    assert len(read) == 40
    sizes, _ = sizes_of(tmp_path, maxRecordsPerPartition=3)
    assert sizes == [2] * 20
    write(tmp_path / "a", 10)
    write(tmp_path / "b", 10)
    sizes, _ = sizes_of(tmp_path, maxRecordsPerPartition=7)
    assert max(sizes) <= 7, "parts of 5, or of 3.3 rounded up, are not added to 8"


def test_a_part_of_a_log_is_cut_by_its_own_records(tmp_path):
    addresses = write(tmp_path / "log", 30)
    given = {
        "startingOffsets": json.dumps({"log": addresses[4]}),
        "endingOffsets": json.dumps({"log": addresses[24]}),
    }
    assert sizes_of(tmp_path, maxRecordsPerPartition=5, **given) == ([5] * 4, addresses[4:24])
    query = Query(tmp_path / "log", maxRecordsPerPartition=6, maxRecordsPerTrigger=20)
    assert query.batch() == named(addresses[:20], "log")
    start = json.loads(query.offset)
    end = query.reader.latestOffset(start, ReadAllAvailable())
    assert len(query.reader.partitions({}, start)) == 4
    assert len(query.reader.partitions(start, end)) == 2


def test_damage_between_two_tasks_is_one_gap(tmp_path, caplog):
    addresses = write_damaged(tmp_path / "log")
    sizes, read = sizes_of(tmp_path, maxRecordsPerPartition=8, onCorruption="skip")
    assert read == addresses[:5] + addresses[15:]
    assert max(sizes) <= 8
    (told,) = [r.getMessage() for r in caplog.records if "cannot be read" in r.getMessage()]
    assert "10 records" in told


def test_a_maximum_that_cannot_be_is_named_and_makes_no_tasks_without_end(
    tmp_path, monkeypatch, caplog
):
    write(tmp_path / "log", 300)
    monkeypatch.setattr(planning, "TASKS_MAX", 20)
    sizes, _ = sizes_of(tmp_path / "log", maxRecordsPerPartition=1)
    assert sizes == [15] * 20
    assert "option maxRecordsPerPartition: 15 records a task, not 1" in caplog.text
    assert "'0' is not a whole number" in refusal(tmp_path, maxRecordsPerPartition=0)
    fill(tmp_path / "old", [b"old"], format="queuefka")
    with pytest.raises(
        UsageError, match=r"maxRecordsPerPartition: 'old' is of format 1.*maxPartition"
    ):
        sizes_of(tmp_path, maxRecordsPerPartition=1)
