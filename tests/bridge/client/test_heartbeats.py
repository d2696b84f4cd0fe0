"""Heartbeats: sent at an interval, kept out of the data, and missed when they do not come."""

import json
import time

import pytest
from confluent_kafka import Consumer as Plain
from confluent_kafka import TopicPartition
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest

from bridge.client import Consumer, Producer
from bridge.client.heartbeat import Heartbeat, HeartbeatSender, HeartbeatWatch, heartbeat_in
from tests.bridge.client.configurations import consumer_config, drained, new_topic, producer_config
from tests.waiting import SOON_S, wait_until

BEAT = {"Type": "Heartbeat", "Time": "2026-01-31T12:00:00.000Z", "Topic": "t", "ClientId": "c"}


@pytest.fixture
def topic(cluster):
    return new_topic(cluster)


def test_a_heartbeat_is_recognised_and_is_what_the_ancestors_send():
    beat = Heartbeat("2026-01-31T12:00:00.000Z", "t", "c")
    assert json.loads(beat.to_json()) == BEAT
    assert heartbeat_in(json.dumps(BEAT, indent=4).encode()) == beat


@pytest.mark.parametrize(
    "data",
    [
        None, b"", b"{}", b'"Heartbeat"', b'["Heartbeat"]', b'{"Type": "Heartbeat"', b'\xff"Heartbeat"',
        json.dumps(BEAT | {"Type": "Pick"}).encode(), json.dumps(BEAT | {"Depth": 3}).encode(),
        json.dumps(BEAT | {"Topic": 3}).encode(), json.dumps(BEAT | {"ClientId": ""}).encode(),
        json.dumps(BEAT | {"ClientId": "c" * 3000}).encode(), b"[" * 2000 + b'"Heartbeat"',
    ],
    ids=range(13),
)  # fmt: skip  # a table
def test_what_only_resembles_a_heartbeat_is_data(data):
    assert heartbeat_in(data) is None


def test_a_producer_beats_in_each_topic_it_sent_to_and_a_consumer_returns_data_only(cluster, topic):
    seen = []
    config = producer_config(cluster, top={"HeartbeatInterval": 0.1}, client_id="edge-7")
    consumer = Consumer(consumer_config(cluster, "beats"), on_heartbeat=seen.append)
    consumer.subscribe(topic)
    with Producer(config) as producer, consumer:
        producer.send(topic, b"data")
        producer.sendHeartbeat(topic)
        assert drained(consumer, 1) == [b"data"]
        until_s = time.monotonic() + SOON_S
        while len(seen) < 3 and time.monotonic() < until_s:
            assert consumer.poll(100) == []
        assert {(beat.topic, beat.client_id) for beat in seen} == {(topic, "edge-7")}
        assert producer.status()["heartbeats_sent"] >= 1
        status = consumer.status()
        assert status["heartbeats_received"] == len(seen)
        assert status["heartbeats"][0]["client_id"] == "edge-7"
    plain = Plain({"bootstrap.servers": cluster.bootstrap_servers, "group.id": "plain"})
    plain.assign([TopicPartition(topic, 0, 1)])
    assert json.loads(plain.poll(SOON_S).value())["Type"] == "Heartbeat"
    plain.close()


def test_a_heartbeat_that_fails_in_an_unknown_way_is_logged_and_the_next_one_is_sent(caplog):
    tried = iter(range(10**9))

    def send(topic: str, value: bytes) -> None:
        if not next(tried):
            raise ValueError("an odd topic")

    sender = HeartbeatSender("edge-7", 0.01, send)
    sender.add("t")
    wait_until(lambda: sender.sent)
    sender.close()
    assert "an odd topic" in caplog.text


def test_an_overdue_heartbeat_is_told_once_until_the_next_one():
    now, told = [0.0], []
    watch = HeartbeatWatch(10, on_overdue=told.append, clock=lambda: now[0])
    watch.expect(["t", "u"])
    now[0] = 9
    watch.take(Heartbeat("", "t", "c"))
    assert watch.overdue() == []
    now[0] = 12
    assert [(s.topic, s.client_id) for s in watch.overdue()] == [("u", "")]
    now[0] = 20
    assert [(s.topic, s.client_id) for s in watch.overdue()] == [("u", ""), ("t", "c")]
    watch.overdue()
    assert [(s.topic, s.client_id, s.age_s) for s in told] == [("u", "", 12), ("t", "c", 11)]
    watch.take(Heartbeat("", "t", "c"))
    now[0] = 40
    watch.overdue()
    assert [(s.topic, s.client_id) for s in told][2:] == [("t", "c")]
    watch.expect(["u"])
    assert [row["topic"] for row in watch.status()] == ["u"]


def test_a_look_at_the_status_reports_no_heartbeat_as_overdue():
    now, told = [0.0], []
    watch = HeartbeatWatch(10, on_overdue=told.append, clock=lambda: now[0])
    watch.expect(["t"])
    now[0] = 12
    assert watch.status() == [{"topic": "t", "client_id": "", "age_s": 12, "overdue": True}]
    assert told == []  # a scrape of the metrics comes from another thread than `poll`
    watch.overdue()
    assert told == [("t", "", 12)]


def test_an_overdue_heartbeat_is_in_the_log_lines_the_status_and_the_metrics(
    cluster, topic, caplog
):
    told = []
    config = consumer_config(cluster, "silent", top={"HeartbeatInterval": 0.2})
    with Consumer(config, on_overdue=told.append) as consumer:
        consumer.subscribe(topic)
        until_s = time.monotonic() + SOON_S
        while not told and time.monotonic() < until_s:
            consumer.poll(100)
        assert told[0].topic == topic
        assert f"no heartbeat of anybody in topic {topic}" in caplog.text
        assert consumer.status()["heartbeats"][0]["overdue"]
        registry = CollectorRegistry()
        registry.register(consumer)
        text = generate_latest(registry).decode()
        assert f'aolog_client_heartbeat_overdue{{from="",topic="{topic}"}} 1.0' in text
