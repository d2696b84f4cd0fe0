"""The pipeline: batches and streams to each destination, and the worked example. In the session that
this directory's tests share: seconds each, for the streams' batches."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

import aolog
from aolog.errors import UsageError
from aolog.examples import earthquakes
from aolog.examples.earthquakes import sample
from aolog.spark.kafka_sink import KafkaTarget
from aolog.spark.pipeline import main
from aolog.spark.session import our_error
from aolog.spark.transfer import Moved, Transfer, checked, parse_target, run_transfer
from bridge.kafka.embedded import EmbeddedBroker
from bridge.kafka.stamp import decode_stamp
from tests.bridge.brokers import consume_any
from tests.spark.driving import write_damaged


def fill(path, count, begin=0):
    with aolog.Writer(path) as log:
        for i in range(begin, begin + count):
            log.append(
                b"%d" % i, key=b"k%d" % (i % 7), headers=(("h", b"x"),), timestamp=i + 10**15
            )


def even(frame):
    return frame.where("cast(cast(value as string) as int) % 2 = 0")


def replacing(frame):
    return frame.sparkSession.range(3).selectExpr("cast(id as string) AS value")


def broken(frame):
    return frame.schema


def run(*arguments):
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def in_json(result):
    assert result.exit_code == 0, result.stderr
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_logs_in_an_object_store_are_read_too():
    assert checked(Transfer("s3a://bucket/logs/", "parquet", "out")).root == "s3://bucket/logs"
    with pytest.raises(UsageError):
        checked(Transfer("logs", "aolog", "s3a://bucket/logs"))


def test_logs_become_parquet_through_functions_and_the_sums_are_told(tmp_path, spark):
    fill(tmp_path / "logs" / "a", 100)
    fill(tmp_path / "logs" / "b", 11, 100)
    fill(tmp_path / "logs" / "c", 1)
    out = tmp_path / "out"
    arguments = (
        "--from", tmp_path / "logs", "--to", f"parquet:{out}", "--subscribe", "a,b", "--json",
    )  # fmt: skip  # a command line
    transform = ("--transform", "tests.spark.test_pipeline:even")
    (sums,) = in_json(run(*arguments, *transform))
    assert (sums["records_in"], sums["records_out"], sums["done"]) == (111, 56, True)
    found = spark.read.parquet(str(out)).orderBy("timestamp").collect()
    assert [int(bytes(row.value)) for row in found] == list(range(0, 111, 2))
    other = Transfer(str(tmp_path / "logs"), "parquet", str(tmp_path / "others"), (replacing,))
    assert run_transfer(spark, other)[1:3] == (None, 3), "it does not wait for what is never read"
    again = run(*arguments)
    assert again.exit_code == 2
    assert json.loads(again.stderr)["error"]["code"] == "usage"
    assert "already exists" in again.stderr


def test_a_checkpoint_takes_what_came_since_and_tells_each_batch(tmp_path, spark):
    root, out = tmp_path / "logs", tmp_path / "other"
    fill(root / "a", 30)
    arguments = (
        "--from", root, "--to", f"aolog:{out}", "--checkpoint", tmp_path / "state", "--json",
        "--option", "maxRecordsPerTrigger=20",
    )  # fmt: skip  # a command line
    first, second, sums = in_json(run(*arguments))
    assert [first["records_in"], second["records_out"], sums["records_out"]] == [20, 10, 30]
    fill(root / "b", 5, 30)
    *_, sums = in_json(run(*arguments))
    assert (sums["records_in"], sums["records_out"]) == (5, 5)
    for name in "ab":
        ours, theirs = aolog.Reader(root / name), aolog.Reader(out / name)
        for mine, copy in zip(ours, theirs, strict=True):
            assert mine[1:] == copy[1:], "all but the address"


def test_kafka_has_each_record_with_its_stamp_and_a_stream_stops_when_it_is_told(tmp_path, spark):
    root = tmp_path / "logs"
    fill(root / "a", 40)
    fill(root / "b", 10, 40)
    records = {(n, r.address): r for n in "ab" for r in aolog.Reader(root / n)}
    told: list[Moved] = []
    with EmbeddedBroker() as broker:
        broker.create_topic("events", 2)
        wanted = Transfer(
            str(root), "kafka", "events", (even,), bootstrap=broker.bootstrap_servers,
            checkpoint=str(tmp_path / "state"), stream=True,
        )  # fmt: skip  # one call
        sums = run_transfer(spark, wanted, tell=told.append, stopped=lambda: bool(told))
        arrived = consume_any(broker.bootstrap_servers, "events", 2)
    assert (sums.records_in, sums.records_out) == (50, 25)
    assert told == [Moved(0, 50, 25, told[0].seconds)]
    uuids = {aolog.Reader(root / name).topic_uuid: name for name in "ab"}
    assert len(arrived) == 25
    for message in arrived:
        stamp = decode_stamp(message.headers())
        record = records.pop((uuids[stamp.topic_uuid], stamp.address))
        assert (message.value(), message.key()) == (record.value, record.key)
        assert tuple(message.headers()[:-1]) == record.headers
        assert stamp.timestamp_us == record.timestamp
        assert message.timestamp()[1] == record.timestamp // 1000
    assert {int(record.value) % 2 for record in records.values()} == {1}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--to", "s3:x"), "parquet:PATH, kafka:TOPIC and aolog:ROOT"),
        (("--to", "parquet:x", "--stream"), "--stream: needs --checkpoint"),
        (("--to", "kafka:x"), "needs --bootstrap-servers"),
        (("--to", "parquet:x", "--bootstrap-servers", "h:1"), "applies to --to kafka"),
        (("--to", "parquet:x", "--option", "onCorruption"), "is not KEY=VALUE"),
        (("--to", "parquet:x", "--option", "onCorruption=no"), "neither fail nor skip"),
        (("--to", "aolog:{root}/below"), "overlaps with --from"),
        (("--to", "parquet:x", "--transform", "nothing"), "is not MODULE:FUNCTION"),
        (("--to", "parquet:x", "--transform", "no.such:thing"), "no module 'no'"),
        (("--to", "parquet:x", "--transform", "json:thing"), "json has no 'thing'"),
        (("--to", "parquet:x", "--transform", "tests.spark.test_pipeline:broken"), "no DataFrame"),
        (("--to", "parquet:x", "--subscribe", "nobody"), "no log 'nobody'"),
    ],
)
def test_what_cannot_be_is_refused_by_name_in_one_line(tmp_path, spark, arguments, words):
    fill(tmp_path / "root" / "a", 1)
    root = tmp_path / "root"
    given = [argument.replace("{root}", str(root)) for argument in arguments]
    result = run("--from", root, *given)
    assert result.exit_code == 2, result.stderr
    (line,) = result.stderr.splitlines()
    assert line.startswith("aolog: usage: ")
    assert words in line


def test_settings_on_which_delivery_rests_are_refused():
    target = KafkaTarget("h:1", "t", {"kafka.linger.ms": "1", "acks": "0"}, "/")
    with pytest.raises(UsageError, match="acks"):
        target.producer_settings()
    settings = target._replace(settings={"kafka.linger.ms": "1"}).producer_settings()
    assert (settings["linger.ms"], settings["acks"]) == ("1", "all")


def test_errors_that_came_as_text_are_what_they_were():
    text = "An exception ... \nTraceback (most recent call last):\n  File x\naolog.errors.LogLocked: /a: it\n"
    error = our_error(text)
    assert (type(error).__name__, str(error)) == ("LogLocked", "/a: it")
    assert our_error("java.lang.Oops: no\nValueError: x") is None
    assert parse_target("kafka:a:b") == ("kafka", "a:b")


def test_the_example_counts_each_event_once_and_draws(tmp_path, spark):
    messages = [*sample(300), b"no JSON", b'{"id": "timeless", "properties": {}}']
    done = earthquakes.run(spark, str(tmp_path / "quakes"), messages)
    assert (done.messages, done.events) == (302, 300)
    events = [json.loads(message) for message in messages[:300]]
    networks = {event["properties"]["net"] for event in events}
    assert {path.name for path in (tmp_path / "quakes" / "networks").iterdir()} >= networks
    for record in aolog.Reader(tmp_path / "quakes" / "networks" / "us"):
        event = json.loads(record.value)
        assert record.key == event["id"].encode()
        assert record.timestamp == event["properties"]["time"] * 1000
    rows = spark.read.parquet(str(tmp_path / "quakes" / "hourly")).collect()
    assert len(rows) == done.hours
    assert sum(row.events for row in rows) == 300
    greatest = max(event["properties"]["mag"] or 0 for event in events)
    assert max(row.magnitude_max or 0 for row in rows) == greatest
    assert "<svg" in Path(done.plot).read_text(encoding="utf-8")


@pytest.mark.parametrize("checkpoint", [False, True], ids=["one batch", "a stream"])
def test_records_that_are_skipped_are_in_the_sums(tmp_path, spark, checkpoint):
    write_damaged(tmp_path / "logs" / "a")
    arguments = (
        "--from", tmp_path / "logs", "--to", f"aolog:{tmp_path / 'out'}",
        "--option", "onCorruption=skip", *(["--checkpoint", tmp_path / "state"] if checkpoint else []),
    )  # fmt: skip  # a command line
    result = run(*arguments)
    assert result.exit_code == 0, result.stderr
    assert "20 records in, 20 out, 10 lost (corrupt), " in result.stdout
    report = aolog.verify(tmp_path / "out" / "a")
    assert [(gap.reason, gap.records_lost) for gap in report.gaps] == [("missing", 10)]
