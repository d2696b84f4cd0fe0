"""How far a log has come in each topic, without Kafka; and on the embedded broker, which has no ids."""

import uuid
from pathlib import Path
from uuid import UUID

import pytest

from aolog import Retention, Writer
from bridge.client.config import load
from bridge.client.files.log_positions import LogPositions, place_header
from bridge.client.files.log_tap import LogTap
from bridge.kafka.catalog import Partition, Topic
from tests.bridge.client.configurations import consumer_config, new_topic
from tests.bridge.client.files.topics_to_logs import named, run, send, values

OLD, NEW = UUID(int=1), UUID(int=2)


def of(name, number, partitions=2):
    return {
        name: Topic(name, number, False, [Partition(p, 1, [1], [1]) for p in range(partitions)])
    }


@pytest.fixture
def writer(tmp_path):
    with Writer(tmp_path / "log", slab_bytes=16_384, retention=Retention(max_slabs=2)) as writer:
        yield writer


def fill(writer, topic, partition, offsets, size=10):
    for offset in offsets:
        header = place_header(partition, offset)
        writer.append(b"x" * size, headers=[header], topic=topic)
    writer.sync()


def positions(writer):
    return LogPositions(Path(writer.path))


def test_records_after_the_file_count_for_the_topic_as_it_is_in_the_file(writer, caplog):
    fill(writer, "t", 0, range(5))
    fill(writer, "t", 1, range(3))
    at = positions(writer)
    assert at.next == {("t", 0): 5, ("t", 1): 3}
    assert at.meet(of("t", OLD), writer.end) == set()
    assert "positions in topic t without its id" in caplog.text
    fill(writer, "t", 0, range(5, 7))
    at = positions(writer)
    assert (at.ids, at.next) == ({"t": OLD}, {("t", 0): 7, ("t", 1): 3})
    assert at.meet(of("t", OLD), writer.end) == set()
    assert at.meet(of("t", NEW, 3), writer.end) == {"t"}
    assert "topic t was made anew" in caplog.text
    assert at.next == {("t", 0): 0, ("t", 1): 0, ("t", 2): 0}
    fill(writer, "t", 2, range(1))
    again = positions(writer)
    assert (again.ids, again.next) == ({"t": NEW}, {("t", 0): 0, ("t", 1): 0, ("t", 2): 1})


def test_positions_outlive_the_records_that_retention_removes(writer):
    fill(writer, "quiet", 0, range(4))
    at = positions(writer)
    at.meet(of("quiet", OLD, 1), writer.end)
    fill(writer, "busy", 0, range(50), size=1_000)
    at = positions(writer)
    assert at.next == {("quiet", 0): 4, ("busy", 0): 50}


def test_a_topic_without_an_id_goes_by_its_name(writer):
    at = positions(writer)
    assert at.meet(of("t", UUID(int=0)), writer.end) == set()
    assert at.ids == {}


@pytest.mark.parametrize("text", [b"{", b"[]", b'{"address": 1, "topics": {"t": 1}}',
                                  b'{"address": 1048576, "topics": {}}'])  # fmt: skip
def test_without_a_usable_file_the_records_count(writer, caplog, text):
    fill(writer, "t", 0, range(5))
    positions(writer).meet(of("t", OLD), writer.end)
    (Path(writer.path) / "kafka-positions.json").write_bytes(text)
    at = positions(writer)
    assert (at.ids, at.next) == ({}, {("t", 0): 5})
    assert "kafka-positions.json is not used" in caplog.text


def test_on_the_embedded_broker_a_position_goes_by_the_topics_name(cluster, tmp_path):
    topic, log = new_topic(cluster), tmp_path / "log"
    options = load(consumer_config(cluster, uuid.uuid4().hex, session_timeout_ms=2_000), "consumer")
    for count in (5, 8):
        send(cluster, topic, named(b"m", count)[-3:] if count == 8 else named(b"m", count))
        tap = LogTap(log, options, [topic], on_heartbeat=None)
        run(tap, log, count)
        tap.close()
    assert values(log) == named(b"m", 8)
