"""Producer and Consumer on the embedded broker."""

import asyncio
import contextlib
import copy
import gc
import itertools
import json
import os
import pickle
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import uuid
import weakref

import pytest
from confluent_kafka import Producer as PlainProducer

from aolog.errors import RecordRefused, UsageError
from bridge.client import AsyncConsumer, AsyncProducer, Consumer, Producer
from bridge.client.errors import ClientClosed, MissingTopic, ReceiveFailed, SendFailed
from tests.bridge.brokers import NOWHERE
from tests.bridge.client.configurations import (
    SHORT_SESSION,
    consumer_config,
    drained,
    new_topic,
    producer_config,
)
from tests.bridge.foreign import Foreign, produce_foreign
from tests.waiting import SOON_S, wait_until


@pytest.fixture
def topic(cluster):
    return new_topic(cluster, 4)


@pytest.fixture
def producer(cluster):
    with Producer(producer_config(cluster)) as made:
        yield made


@pytest.fixture
def consume(cluster):
    made = []

    def make(*topics, group=None, **more):
        consumer = Consumer(consumer_config(cluster, group or uuid.uuid4().hex, **more))
        made.append(consumer)
        if topics:
            consumer.subscribe(topics)
        return consumer

    yield make
    for consumer in made:
        consumer.close()


def test_a_message_sent_has_a_place_and_is_received(producer, consume, topic):
    sent = producer.send(topic, b"hello", key=b"k", partition=2)
    assert sent.done
    assert (sent.topic, sent.partition, sent.offset) == (topic, 2, 0)
    assert isinstance(sent.timestamp, int)
    consumer = consume(topic)
    assert drained(consumer, 1) == [b"hello"]
    assert consumer.poll(0) == []


def test_strings_are_utf_8_and_the_ancestors_names_work(producer, consume, topic):
    producer.send_string(topic, "grün", partition=0)
    producer.sendString(topic, "blau", partition=0)
    producer.send(topic, b"\xff", partition=0)
    consumer, found = consume(topic), []
    until_s = time.monotonic() + SOON_S
    while len(found) < 3 and time.monotonic() < until_s:
        found += consumer.pollString(200)
    assert found == ["grün", "blau", "\ufffd"]


def test_an_asynchronous_send_returns_at_once_and_its_place_is_known_later(cluster, topic):
    with Producer(producer_config(cluster, producer_type="async", linger_ms=500)) as producer:
        sent = [producer.send(topic, b"%d" % i, partition=1) for i in range(100)]
        assert not sent[-1].done
        assert [delivery.offset for delivery in sent] == list(range(100))
        assert producer.send(topic, b"now", partition=1, wait=True).done
        assert producer.status()["sent"] == 101
        assert producer.flush() == 0


def test_a_full_queue_makes_send_wait_and_loses_nothing(cluster, topic):
    small = producer_config(cluster, producer_type="async", queue_buffering_max_messages=10)
    with Producer(small) as producer:
        sent = [producer.send(topic, b"x", partition=0) for _ in range(500)]
    assert sorted(delivery.offset for delivery in sent) == list(range(500))


def test_a_message_larger_than_the_queue_fails_at_once_and_others_arrive(cluster, topic):
    small = producer_config(cluster, producer_type="async", buffer_memory=32 << 10)
    with Producer(small) as producer:
        sent = [producer.send(topic, b"x" * 20_000, partition=0) for _ in range(5)]
        with pytest.raises(SendFailed, match=r"over queue.buffering.max.kbytes=32") as caught:
            producer.send(topic, b"x" * 33_000, partition=0)
        assert caught.value.details["kafka_code"] == "MSG_SIZE_TOO_LARGE"
        sent.append(producer.send(topic, b"x" * 32_768, partition=0))
        assert [delivery.offset for delivery in sent] == list(range(6))
        assert producer.status()["failed"] == 1


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"headers": [("\ud800", b"x")]}, "no UTF-8 form"),
        ({"headers": {"\ud800": b"x"}}, "not a sequence of"),
        ({"headers": [("a\0b", b"x")]}, "a NUL"),
        ({"headers": [("a", "text")]}, "not bytes"),
        ({"timestamp_ms": 2**70}, "too big"),
        ({"timestamp_ms": 1.5}, "float"),
        ({"partition": 2**40}, "greater than maximum"),
        ({"data": 5}, "int"),
    ],
)
def test_what_is_no_message_is_refused_and_the_next_one_is_sent(producer, topic, more, says):
    with pytest.raises(RecordRefused, match=says):
        producer.send(topic, **{"data": b"x", **more})
    assert producer.send(topic, b"y", headers=[["a", bytearray(b"x")]]).offset == 0
    assert producer.status()["sent"] == 1


def test_a_synchronous_send_that_fails_raises_with_kafkas_code(producer, topic):
    with pytest.raises(SendFailed) as caught:
        producer.send(topic, b"x", partition=99)
    assert caught.value.details["kafka_code"] == "_UNKNOWN_PARTITION"
    with pytest.raises(SendFailed, match="MSG_SIZE_TOO_LARGE"):
        producer.send(topic, b"x" * 2_000_000)
    assert producer.flush() == 0  # nothing is raised twice


def test_without_the_compiled_half_a_delivery_is_the_same():
    chosen = "asynchronous or dropped or fails_a_send or full_queue or under_way"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", __file__, "-k", chosen],
        env={**os.environ, "AOLOG_BACKEND": "python"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout


AWAY = {
    "Type": "ProducerConfig",
    "Properties": {"bootstrap.servers": NOWHERE, "delivery.timeout.ms": 300},
}


@pytest.mark.parametrize("way", [copy.copy, copy.deepcopy, pickle.dumps])
def test_a_client_is_not_copied_and_the_error_says_what_to_pass(way):
    group = {"bootstrap.servers": NOWHERE, "group.id": "g"}

    async def clients():
        config = {"Type": "ConsumerConfig", "Properties": group}
        for make, given in ((Producer, AWAY), (Consumer, config), (AsyncProducer, AWAY),
                            (AsyncConsumer, config)):  # fmt: skip  # one thing, one line
            client = make(given)
            with pytest.raises(TypeError, match="pass its configuration"):
                way(client)
            if (closing := client.close()) is not None:
                await closing

    asyncio.run(clients())


def test_an_asynchronous_failure_that_nobody_took_is_raised_by_flush_once():
    producer = Producer(AWAY)
    taken = producer.send("t", b"x", wait=False)
    producer.send("t", b"y", wait=False)
    with pytest.raises(SendFailed):
        taken.result()
    with pytest.raises(SendFailed, match="_MSG_TIMED_OUT"):
        producer.flush()
    assert producer.flush() == 0
    producer.close()


def test_a_flush_that_ends_too_soon_counts_the_messages_of_all_topics_and_a_close_names_them():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        properties = {"bootstrap.servers": "{}:{}".format(*silent.getsockname())}
        config = {"Type": "ProducerConfig", "Properties": properties, "Topics": {"bulk": {}}}
        producer = Producer(config)
        for topic in ("t", "bulk", "t"):
            producer.send(topic, b"x", wait=False)
        assert producer.flush(0.1) == 3
        with pytest.raises(SendFailed, match="3 messages had no answer"):
            producer.close(0)
        assert producer.status()["under_way"] == 0
        producer.close()


def test_events_of_the_client_are_no_messages_under_way(monkeypatch):
    made = []

    class Noted(PlainProducer):
        def __init__(self, *given, **named):
            super().__init__(*given, **named)
            made.append(self)

    monkeypatch.setattr("bridge.client.producer.KafkaProducer", Noted)
    producer = Producer(AWAY)
    wait_until(lambda: len(made[0]) > 0)  # it reports that no broker can be reached
    assert producer.status()["under_way"] == 0
    assert producer.flush(0) == 0
    producer.send("t", b"x", wait=False)
    assert producer.status()["under_way"] == 1
    with pytest.raises(SendFailed, match="_MSG_TIMED_OUT"):
        producer.flush()
    assert producer.status()["under_way"] == 0
    wait_until(lambda: len(made[0]) > 0)
    producer.close(0)


def test_heartbeats_that_failed_are_not_under_way():
    producer = Producer({**AWAY, "HeartbeatInterval": 0.05})
    producer.send("t", b"x", wait=False).ignore_failure()
    wait_until(lambda: producer.status()["heartbeats_sent"] >= 2)
    producer.close()
    status = producer.status()
    assert (status["failed"], status["under_way"]) == (0, 0)
    assert status["sent"] > 2


def test_a_producer_that_is_dropped_with_a_failure_ends_without_a_close():
    producer = Producer(AWAY)
    sent = producer.send("t", b"x", wait=False)
    while not sent.done:
        time.sleep(0.1)
    alive = weakref.ref(producer)
    del producer, sent
    gc.collect()
    assert alive() is None


def test_a_cluster_that_is_away_fails_a_send_after_its_time():
    producer = Producer(AWAY)
    with pytest.raises(SendFailed, match="_MSG_TIMED_OUT"):
        producer.send("t", b"x")
    assert "connection refused" in producer.status()["last_error"]
    producer.close()


@pytest.mark.parametrize("name", ["", "a b", "..", "x" * 250, None])
def test_a_wrong_topic_is_refused_before_anything_is_sent(producer, consume, name):
    with pytest.raises(MissingTopic):
        producer.send(name, b"x")
    with pytest.raises((MissingTopic, TypeError)):
        consume().subscribe(name)


def test_a_closed_client_refuses_calls_and_may_be_closed_again(cluster):
    producer, consumer = Producer(producer_config(cluster)), Consumer(consumer_config(cluster, "g"))
    for client in (producer, consumer):
        client.close()
        client.close()
    with pytest.raises(ClientClosed):
        producer.send("t", b"x")
    with pytest.raises(ClientClosed):
        consumer.poll(0)


# --- polling --------------------------------------------------------------------------------


def test_poll_before_subscribe_is_refused(consume):
    with pytest.raises(MissingTopic, match="subscribe"):
        consume().poll(0)


@pytest.mark.parametrize("timeout", [None, "1", True, float("nan")])
def test_a_timeout_that_is_no_number_is_refused(consume, topic, timeout):
    with pytest.raises(UsageError, match="timeout_ms"):
        consume(topic).poll(timeout)


def test_poll_returns_with_the_first_record_and_does_not_wait_for_more(producer, consume, topic):
    consumer = consume(topic)
    consumer.poll(500)
    timer = threading.Timer(0.3, producer.send, (topic, b"late"))
    timer.start()
    began_s = time.monotonic()
    assert consumer.poll(SOON_S * 1000) == [b"late"]
    assert time.monotonic() - began_s < SOON_S / 2
    timer.join()


def test_a_poll_without_end_waits_and_a_signal_interrupts_it(producer, consume, topic):
    class Alarm(Exception):
        pass

    def ring(*_):
        raise Alarm

    consumer = consume(topic)
    producer.send(topic, b"first")
    assert consumer.poll(-1) == [b"first"]
    before = signal.signal(signal.SIGALRM, ring)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.5)
        with pytest.raises(Alarm):
            consumer.poll(-1)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("side", ["consumer", "producer"])
def test_an_interrupt_ends_a_wait_in_an_outage(side):
    """librdkafka loses what is raised inside a callback, as of its log lines."""
    servers = {
        "bootstrap.servers": NOWHERE,
        "reconnect.backoff.ms": 20,
        "reconnect.backoff.max.ms": 20,
    }
    if side == "consumer":
        properties = {**servers, "group.id": "g"}
        client = Consumer({"Type": "ConsumerConfig", "Properties": properties})
        client.subscribe("t")
    else:
        client = Producer({"Type": "ProducerConfig", "Properties": servers})
        client.send("t", b"x", wait=False)
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    try:
        for n in range(10):
            with pytest.raises(KeyboardInterrupt):
                signal.setitimer(signal.ITIMER_REAL, 0.1 + n / 200)
                client.poll(-1) if side == "consumer" else client.flush()
    finally:
        signal.signal(signal.SIGALRM, before)
        with contextlib.suppress(SendFailed):
            client.close() if side == "consumer" else client.close(0)


def test_max_poll_records_bounds_a_poll(producer, consume, topic):
    for i in range(10):
        producer.send(topic, b"%d" % i, partition=0)
    consumer = consume(topic, max_poll_records=3)
    sizes, found = [], []
    while len(found) < 10:
        got = consumer.poll(1000)
        sizes.append(len(got))
        found += got
    assert max(sizes) <= 3
    assert len(sizes) >= 4
    assert found == [b"%d" % i for i in range(10)]


def test_iteration_gives_records_with_all_their_parts(producer, consume, topic):
    producer.send(topic, b"v", key="k", headers=[("h", b"1")], timestamp_ms=1_700_000_000_123)
    record = next(iter(consume(topic)))
    assert record.topic == topic
    assert (record.offset, record.timestamp) == (0, 1_700_000_000_123)
    assert (record.key, record.value, record.headers) == (b"k", b"v", (("h", b"1"),))


def test_a_record_with_a_header_that_has_no_name_is_returned_and_the_header_counted(
    cluster, consume, topic, caplog
):
    headers = [(b"\xff", b"1"), (b"n", b"2")]
    records = [Foreign(b"0", headers, -1), Foreign(b"1", timestamp_ms=10**18), Foreign(b"2")]
    produce_foreign(cluster.bootstrap_servers, topic, records)
    consumer = consume(topic)
    first, second, third = itertools.islice(consumer, 3)
    assert (first.headers, first.headers_left_out, first.timestamp) == ((("n", b"2"),), 1, None)
    assert (second.headers_left_out, second.timestamp) == (0, 10**18)
    assert third.timestamp is not None
    assert consumer.status()["headers_left_out"] == 1
    assert f"{topic}/0@0: left out: 1 header whose name is not UTF-8" in caplog.messages


@pytest.mark.parametrize("compiled", [True, False])
def test_a_pattern_subscribes_to_all_topics_that_match_it(cluster, producer, consume, compiled):
    stem = f"p-{uuid.uuid4().hex[:8]}"
    for name in ("a", "b", "x"):
        cluster.create_topic(f"{stem}-{name}", 1)
        producer.send(f"{stem}-{name}", name.encode())
    pattern = f"^{stem}-[ab]$"
    consumer = consume()
    consumer.subscribe(re.compile(pattern) if compiled else pattern)
    assert sorted(drained(consumer, 2)) == [b"a", b"b"]
    assert consumer.poll(300) == []


# --- positions ------------------------------------------------------------------------------


def test_what_was_returned_counts_as_processed_at_the_next_poll_and_at_close(
    producer, consume, topic
):
    for i in range(4):
        producer.send(topic, b"%d" % i, partition=0)
    first = consume(topic, group="again", max_poll_records=1, **SHORT_SESSION)
    assert drained(first, 2) == [b"0", b"1"]
    first.close()
    second = consume(topic, group="again", **SHORT_SESSION)
    assert drained(second, 2) == [b"2", b"3"]


def test_what_was_returned_before_an_exception_comes_again(cluster, producer, topic):
    producer.send(topic, b"0", partition=0)
    config = consumer_config(cluster, "fails", **SHORT_SESSION)
    with pytest.raises(RuntimeError), Consumer(config) as consumer:
        consumer.subscribe(topic)
        assert drained(consumer, 1) == [b"0"]
        raise RuntimeError
    with Consumer(config) as consumer:
        consumer.subscribe(topic)
        assert drained(consumer, 1) == [b"0"]


@pytest.mark.parametrize("spelling", ["TRUE", "t", "1"])
def test_automatic_commits_are_on_however_librdkafka_spells_it(producer, consume, topic, spelling):
    producer.send(topic, b"0", partition=0)
    group = uuid.uuid4().hex
    first = consume(topic, group=group, enable_auto_commit=spelling, **SHORT_SESSION)
    assert drained(first, 1) == [b"0"]
    first.close()
    producer.send(topic, b"1", partition=0)
    assert drained(consume(topic, group=group, **SHORT_SESSION), 1) == [b"1"]


@pytest.mark.parametrize("spelling", ["consumer", "CONSUMER"])
def test_kafkas_new_group_protocol_is_taken_however_it_is_spelt(producer, consume, topic, spelling):
    producer.send(topic, b"0", partition=0)
    assert drained(consume(topic, group_protocol=spelling), 1) == [b"0"]


def test_without_automatic_commits_only_commit_moves_the_group(producer, consume, topic):
    for i in range(2):
        producer.send(topic, b"%d" % i, partition=0)
    options = {"enable_auto_commit": "false", "max_poll_records": 1, **SHORT_SESSION}
    first = consume(topic, group="manual", **options)
    assert drained(first, 1) == [b"0"]
    first.commit()
    assert drained(first, 1) == [b"1"]
    first.close()
    assert drained(consume(topic, group="manual", **options), 1) == [b"1"]


def test_a_consumer_whose_group_refuses_it_for_ever_says_so(cluster, producer, consume, topic):
    """It waited, with a line in the log, for what its own configuration has to change."""
    producer.send(topic, b"0", partition=0)
    cluster.push_request_errors(11, [26] * 100)  # JoinGroup: INVALID_SESSION_TIMEOUT
    with pytest.raises(ReceiveFailed, match="INVALID_SESSION_TIMEOUT"):
        consume(topic).poll(20_000)
    cluster.clear_request_errors(11)
    cluster.push_request_errors(1, [1])  # Fetch: OFFSET_OUT_OF_RANGE
    assert drained(consume(topic), 1) == [b"0"]


def test_settings_of_a_single_topic_are_that_topics_alone(cluster, topic):
    config = producer_config(cluster, top={"Topics": {topic: {"message.max.bytes": 2_000}}})
    other = f"{topic}-other"
    cluster.create_topic(other, 1)
    with Producer(config) as producer:
        producer.send(other, b"x" * 10_000)
        with pytest.raises(SendFailed, match="MSG_SIZE_TOO_LARGE"):
            producer.send(topic, b"x" * 10_000)


def test_the_example_files_topic_list_is_subscribed(cluster, producer, topic):
    producer.send(topic, b"x")
    text = json.dumps(
        {"HazdevBrokerConfig": consumer_config(cluster, "listed"), "TopicList": [topic]}
    )
    with Consumer("# a comment\n" + text) as consumer:
        assert drained(consumer, 1) == [b"x"]
