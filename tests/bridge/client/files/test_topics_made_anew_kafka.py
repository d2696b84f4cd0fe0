"""A file client's position belongs to a topic, not to its name: on a real Apache Kafka."""

import uuid

import pytest
from confluent_kafka import Consumer, TopicPartition

from bridge.client.config import load
from bridge.client.files.log_tap import LogTap
from tests.bridge.client.configurations import consumer_config
from tests.bridge.client.files.topics_to_logs import named, run, send, values
from tests.kafka.servers import delete_topic

pytestmark = [pytest.mark.kafka, pytest.mark.xdist_group("kafka")]


@pytest.fixture
def tap(kafka, tmp_path):
    """A tap of one group into one log, in this process; each call ends the last one."""
    group, running = uuid.uuid4().hex, []

    def make(topic, log="log", **properties):
        close()
        options = load(consumer_config(kafka, group, **properties), "consumer")
        running.append(LogTap(tmp_path / log, options, [topic], on_heartbeat=None))
        return running[-1]

    def close():
        while running:
            running.pop().close()

    make.group = group
    yield make
    close()


def make_anew(kafka, topic, count):
    delete_topic(kafka, topic)
    kafka.create_topic(topic)
    send(kafka, topic, named(b"new", count))


@pytest.mark.parametrize("reset", ["earliest", "latest"])
def test_a_topic_made_anew_while_the_client_was_stopped_is_read_from_its_beginning(
    kafka, topic, tap, tmp_path, caplog, reset
):
    name, log = topic(), tmp_path / "log"
    send(kafka, name, named(b"old", 5))
    run(tap(name), log, 5)
    run(tap(name), log, 5)  # the same topic goes on
    make_anew(kafka, name, 9)
    run(tap(name, auto_offset_reset=reset), log, 14)
    assert values(log) == [*named(b"old", 5), *named(b"new", 9)]
    assert f"topic {name} was made anew; it is read from its beginning" in caplog.text
    caplog.clear()
    send(kafka, name, [b"later"])
    run(tap(name), log, 15)
    assert values(log)[-1] == b"later"
    assert "made anew" not in caplog.text


@pytest.mark.parametrize(("count", "reset"), [(3, "latest"), (3, "error"), (9, "earliest")])
def test_a_topic_made_anew_while_the_client_runs_is_read_from_its_beginning(
    kafka, topic, tap, tmp_path, caplog, count, reset
):
    name, log = topic(), tmp_path / "log"
    send(kafka, name, named(b"old", 5))
    run(tap(name), log, 5)
    running = tap(name, auto_offset_reset=reset)
    send(kafka, name, [b"old 5"])
    run(running, log, 6)
    make_anew(kafka, name, count)
    run(running, log, 6 + count)
    assert values(log) == [*named(b"old", 6), *named(b"new", count)]
    assert caplog.text.count("was made anew") == 1


def test_what_another_member_has_read_of_the_new_topic_is_not_read_again(
    kafka, topic, tap, tmp_path
):
    name, log, other = topic(), tmp_path / "log", tmp_path / "other"
    send(kafka, name, named(b"old", 5))
    run(tap(name), log, 5)
    make_anew(kafka, name, 9)
    run(tap(name, "other"), other, 9)
    running = tap(name)
    send(kafka, name, [b"last"])
    run(running, log, 6)
    assert values(log) == [*named(b"old", 5), b"last"]


def test_an_offset_that_was_committed_for_the_old_topic_does_not_count(kafka, topic, tap, tmp_path):
    """The broker forgets offsets with their topic; a member that was late may have committed again."""
    name, log = topic(), tmp_path / "log"
    group = tap.group
    send(kafka, name, named(b"new", 9))
    late = Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": group})
    note = f"aolog-topic:{uuid.uuid4()}"
    late.commit(offsets=[TopicPartition(name, 0, 7, note)], asynchronous=False)
    late.close()
    run(tap(name), log, 9)
    assert values(log) == named(b"new", 9)
