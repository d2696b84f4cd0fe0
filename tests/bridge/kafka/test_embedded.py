"""The embedded broker serves other processes, and fails when and how a test asks.

Every client here is a process of its own, which gets orders as lines of JSON and answers each
with one: what is tested is the listener, not this interpreter.
"""

from __future__ import annotations

import _ctypes
import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import confluent_kafka
import pytest
from confluent_kafka import KafkaError

from bridge.kafka import embedded
from bridge.kafka.embedded import EmbeddedBroker, EmbeddedBrokerRefused, EmbeddedBrokerUnavailable

# Numbers of requests in Kafka's protocol.
PRODUCE, METADATA = 0, 3
# One generous bound for whatever must happen soon; nothing here waits for it when all is well.
SOON_S = 30.0

# max.in.flight=1 and one record a request: the n-th record is the n-th Produce request.
CLIENT = """
import json, sys, time
from confluent_kafka import Consumer, Producer, TopicPartition

servers = sys.argv[1]
producer = Producer({
    "bootstrap.servers": servers, "log_level": 0, "acks": "all", "message.timeout.ms": 0,
    "max.in.flight": 1, "batch.num.messages": 1, "linger.ms": 0,
    "reconnect.backoff.ms": 50, "reconnect.backoff.max.ms": 100,
})
reports = []

def report(error, message):
    reports.append([message.value().decode(), error and error.name()])

def produce(topic, values, partition=0, key=None, timestamp=0, headers=None):
    headers = headers and [(name, value.encode()) for name, value in headers]
    for value in values:
        producer.produce(topic, value.encode(), key, partition, report, None, timestamp, headers)
    return len(producer)

def flush(timeout):
    begin = time.monotonic()
    waiting = producer.flush(timeout)
    done, reports[:] = list(reports), []
    return {"waiting": waiting, "reports": done, "seconds": time.monotonic() - begin}

def consume(topic, partition, count, timeout, offset=0):
    consumer = Consumer({
        "bootstrap.servers": servers, "log_level": 0, "group.id": "g", "fetch.wait.max.ms": 10,
        "auto.offset.reset": "earliest",
    })
    consumer.assign([TopicPartition(topic, partition, offset)])
    found, deadline = [], time.monotonic() + timeout
    while len(found) < count and time.monotonic() < deadline:
        message = consumer.poll(0.1)
        if message is not None and message.error() is None:
            headers = [[name, value.decode()] for name, value in message.headers() or ()]
            key = message.key() and message.key().decode()
            found.append([message.offset(), key, message.value().decode()[:20],
                          message.timestamp()[1], headers])
    low_high = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=timeout)
    consumer.close()
    return {"records": found, "watermarks": low_high}

def partitions(topic):
    return len(producer.list_topics(topic, timeout=10).topics[topic].partitions)

for line in sys.stdin:
    name, arguments = json.loads(line)
    print(json.dumps(globals()[name](**arguments)), flush=True)
"""


class Client:
    """A process with a producer and a consumer for `broker`. A context manager."""

    def __init__(self, broker: EmbeddedBroker) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", CLIENT, broker.bootstrap_servers],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __call__(self, name: str, **arguments: object) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([name, arguments]) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    def send(self, *values: str, topic: str = "t", partition: int = 0) -> Any:
        """Produce and wait until every record is delivered or refused."""
        self("produce", topic=topic, values=values, partition=partition)
        answer = self("flush", timeout=SOON_S)
        assert answer["waiting"] == 0
        return answer

    def values(self, count: int, topic: str = "t", partition: int = 0) -> list[str]:
        answer = self("consume", topic=topic, partition=partition, count=count, timeout=SOON_S)
        assert answer["watermarks"] == [0, count]
        return [record[2] for record in answer["records"]]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.kill()  # unfinished orders must not hold up the test
        self._process.communicate()


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as broker:
        broker.create_topic("t")
        yield broker


@pytest.fixture
def client(broker: EmbeddedBroker) -> Iterator[Client]:
    with Client(broker) as client:
        yield client


def ok(*values: str) -> list[list[str | None]]:
    return [[value, None] for value in values]


def test_a_record_of_one_process_is_read_whole_by_another(
    broker: EmbeddedBroker, client: Client
) -> None:
    record = {"key": "k", "timestamp": 1_600_000_000_123, "headers": [["h", "1"], ["h", "2"]]}
    client("produce", topic="t", values=["v"], **record)
    assert client("flush", timeout=SOON_S)["reports"] == ok("v")
    with Client(broker) as other:
        answer = other("consume", topic="t", partition=0, count=1, timeout=SOON_S)
    assert answer["records"] == [[0, "k", "v", 1_600_000_000_123, [["h", "1"], ["h", "2"]]]]
    assert answer["watermarks"] == [0, 1]


def test_while_down_delivery_waits_and_once_up_everything_is_there_in_order(
    broker: EmbeddedBroker, client: Client
) -> None:
    client.send("a")
    broker.set_down()
    broker.set_down()  # no effect
    client("produce", topic="t", values=["b", "c"])
    assert client("flush", timeout=1.0)["reports"] == []
    broker.set_up()
    assert client("flush", timeout=SOON_S)["reports"] == ok("b", "c")
    assert client.values(3) == ["a", "b", "c"]


def test_pushed_errors_hit_the_requests_in_their_order_and_no_other(
    broker: EmbeddedBroker, client: Client
) -> None:
    client("partitions", topic="t")  # no request but Produce is to come
    broker.push_request_errors(METADATA + 1000, [KafkaError.INVALID_RECORD])  # none such comes
    broker.push_request_errors(PRODUCE, [0, KafkaError.MSG_SIZE_TOO_LARGE])
    broker.push_request_errors(PRODUCE, [0, KafkaError.INVALID_RECORD])
    assert client.send(*"abcdef")["reports"] == [
        ["a", None],
        ["b", "MSG_SIZE_TOO_LARGE"],
        ["c", None],
        ["d", "INVALID_RECORD"],
        ["e", None],
        ["f", None],
    ]
    assert client.values(4) == ["a", "c", "e", "f"]
    broker.push_request_errors(PRODUCE, [KafkaError.MSG_SIZE_TOO_LARGE] * 100)
    assert client.send("g")["reports"] == [["g", "MSG_SIZE_TOO_LARGE"]]
    broker.clear_request_errors(PRODUCE)
    assert client.send("h")["reports"] == ok("h")


def test_a_topic_has_the_partitions_that_were_asked_for(
    broker: EmbeddedBroker, client: Client
) -> None:
    broker.create_topic("seven", partitions=7)
    assert client("partitions", topic="seven") == 7
    client.send("last", topic="seven", partition=6)
    assert client.values(1, topic="seven", partition=6) == ["last"]
    with pytest.raises(EmbeddedBrokerRefused, match="TOPIC_ALREADY_EXISTS"):
        broker.create_topic("seven")


def test_closing_cuts_clients_off_and_may_be_repeated() -> None:
    with EmbeddedBroker(2) as broker, Client(broker) as client:
        broker.create_topic("t")
        client.send("a")
        addresses = broker.bootstrap_servers
        assert len(addresses.split(",")) == 2
        broker.close()
        broker.close()
        client("produce", topic="t", values=["b"])
        assert client("flush", timeout=0.5)["reports"] == []
    assert broker.bootstrap_servers == addresses
    for address in addresses.split(","):
        host, port = address.split(":")
        assert host == "127.0.0.1"
        with socket.socket() as probe, pytest.raises(ConnectionRefusedError):
            probe.connect((host, int(port)))


def test_a_closed_broker_and_one_that_does_not_exist_refuse(broker: EmbeddedBroker) -> None:
    with pytest.raises(EmbeddedBrokerRefused, match="BROKER_NOT_AVAILABLE"):
        broker.set_down(2)
    broker.close()
    with pytest.raises(EmbeddedBrokerRefused, match="closed") as caught:
        broker.create_topic("u")
    assert caught.value.code == "embedded_broker_refused"


def test_a_library_without_the_mock_is_a_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    embedded.library.cache_clear()
    monkeypatch.setattr(embedded, "_extension_path", lambda: _ctypes.__file__)
    with pytest.raises(EmbeddedBrokerUnavailable, match=r"does not export rd_kafka") as caught:
        EmbeddedBroker()
    assert caught.value.code == "embedded_broker_unavailable"


def test_the_functions_are_those_of_the_librdkafka_that_confluent_kafka_runs_on() -> None:
    assert embedded.library().rd_kafka_version() == confluent_kafka.libversion()[1]
    maps = Path("/proc/self/maps").read_text().splitlines()
    assert len({line.split()[-1] for line in maps if "librdkafka" in line}) == 1
