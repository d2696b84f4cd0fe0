"""topics, offsets, consume: what they print of a real Kafka, and that looking changes nothing."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner, Result
from confluent_kafka import Producer

from bridge.cli import main
from bridge.testing.apache_kafka.server import KafkaServer

pytestmark = [pytest.mark.kafka, pytest.mark.xdist_group("kafka 2")]


def run(kafka: KafkaServer, *arguments: str) -> Result:
    return CliRunner().invoke(main, [*arguments, "--bootstrap-servers", kafka.bootstrap_servers])


def told(kafka: KafkaServer, *arguments: str) -> list[dict]:
    result = run(kafka, *arguments, "--json")
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


def produce(kafka: KafkaServer, topic: str, count: int, partition: int = 0) -> None:
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    for number in range(count):
        producer.produce(topic, b"value %d" % number, b"key", partition, timestamp=1_000 + number)
    assert producer.flush(30) == 0


def test_topics_lists_describes_and_creates(kafka, topic):
    there = topic(2)
    assert run(kafka, "topics", "--create", f"{there}-new", "--partitions", "3").exit_code == 0
    assert {there, f"{there}-new"} <= {each["name"] for each in told(kafka, "topics")}
    [found] = told(kafka, "topics", "--topic", f"{there}-new")
    assert [p["number"] for p in found["partitions"]] == [0, 1, 2]
    again = run(kafka, "topics", "--create", there)
    assert again.exit_code == 6
    assert "already exists" in again.stderr


def test_a_missing_topic_is_an_error_and_is_not_created(kafka, topic):
    absent = topic() + "-absent"
    for arguments in (
        ["topics", "--topic", absent],
        ["offsets", "--topic", absent],
        ["consume", absent],
    ):
        result = run(kafka, *arguments)
        assert result.exit_code == 6, result.output
        assert f"there is no topic {absent!r}" in result.stderr
    assert absent not in {each["name"] for each in told(kafka, "topics")}


def test_offsets_shows_ends_times_and_a_group_whose_offsets_it_sets(kafka, topic):
    name = topic(2)
    produce(kafka, name, 10)
    arguments = ("offsets", "--topic", name, "--group", name)
    before = told(kafka, *arguments, "--at", "1970-01-01T00:00:01.004Z")
    assert before[0] == {
        "topic": name, "partition": 0, "earliest": 0, "latest": 10, "at": 4, "committed": None, "lag": None,
    }  # fmt: skip  # a row
    assert before[1]["at"] == 0, "no record is as late: the end"
    after = told(kafka, *arguments, "--partition", "0", "--to", "7")
    assert (after[0]["committed"], after[0]["lag"]) == (7, 3)
    beyond = run(kafka, *arguments, "--partition", "0", "--to", "11")
    assert beyond.exit_code == 6
    assert "0 to 10" in beyond.stderr
    assert told(kafka, *arguments)[0]["committed"] == 7


def test_consume_prints_records_in_three_formats_up_to_the_ends(kafka, topic):
    name = topic(2)
    produce(kafka, name, 5)
    found = told(kafka, "consume", name, "--from", "earliest", "--drain")
    assert [each["offset"] for each in found] == [0, 1, 2, 3, 4]
    assert found[0]["key"] == "key"
    values = run(
        kafka, "consume", name, "--from", "3", "--partition", "0", "--drain", "--format", "value"
    )
    assert values.stdout_bytes == b"value 3\nvalue 4\n"
    lines = run(kafka, "consume", name, "--from", "earliest", "--count", "1")
    assert lines.stdout == f"{name}/0@0  key  value 0\n"
    assert run(kafka, "consume", name, "--from", "6", "--partition", "0").exit_code == 2
