"""The embedded broker takes and gives records, and fails when and how a test asks."""

from __future__ import annotations

import _ctypes
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from bridge.kafka import embedded
from bridge.kafka.embedded import EmbeddedBroker, EmbeddedBrokerRefused, EmbeddedBrokerUnavailable

PRODUCE, METADATA = 0, 3  # numbers of requests in Kafka's protocol
# One generous bound for whatever must happen soon; nothing here waits for it when all is well.
SOON_S = 30.0

Reports = list[tuple[bytes | None, str | None]]


class Client:
    """A producer. max.in.flight=1 and one record a request: the n-th record is the n-th request."""

    def __init__(self, servers: str) -> None:
        self.producer = Producer({
            "bootstrap.servers": servers, "log_level": 0, "acks": "all", "message.timeout.ms": 0,
            "max.in.flight": 1, "batch.num.messages": 1, "linger.ms": 0,
            "reconnect.backoff.ms": 50, "reconnect.backoff.max.ms": 100,
        })  # fmt: skip  # one value
        self._reports: Reports = []

    def _report(self, error: KafkaError | None, message: Message) -> None:
        self._reports.append((message.value(), error and error.name()))

    def send(self, *values: bytes, topic: str = "t", **more: Any) -> None:
        for value in values:
            self.producer.produce(topic, value, partition=0, on_delivery=self._report, **more)

    def reports(self, wait_s: float = SOON_S) -> Reports:
        """What became of records since, in order; None is no error."""
        self.producer.flush(wait_s)
        done, self._reports = self._reports, []
        return done


def read(servers: str, count: int) -> list[Message]:
    consumer = Consumer({
        "bootstrap.servers": servers, "log_level": 0, "group.id": "g", "fetch.wait.max.ms": 10,
    })  # fmt: skip  # one value
    try:
        assert consumer.get_watermark_offsets(TopicPartition("t", 0), SOON_S) == (0, count)
        consumer.assign([TopicPartition("t", 0, 0)])
        return consumer.consume(count, SOON_S)
    finally:
        consumer.close()


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as broker:
        broker.create_topic("t")
        yield broker


@pytest.fixture
def client(broker: EmbeddedBroker) -> Client:
    return Client(broker.bootstrap_servers)


def ok(*values: bytes) -> Reports:
    return [(value, None) for value in values]


def test_a_record_is_read_whole(broker: EmbeddedBroker, client: Client) -> None:
    headers = [("h", b"1"), ("h", b"2")]
    client.send(b"v", key=b"k", timestamp=1_600_000_000_123, headers=headers)
    assert client.reports() == ok(b"v")
    (message,) = read(broker.bootstrap_servers, 1)
    assert (message.key(), message.value(), message.headers()) == (b"k", b"v", headers)
    assert message.timestamp()[1] == 1_600_000_000_123


def test_while_down_delivery_waits_and_once_up_everything_is_there_in_order(
    broker: EmbeddedBroker, client: Client
) -> None:
    client.send(b"a")
    assert client.reports() == ok(b"a")
    broker.set_down()
    broker.set_down()  # no effect
    client.send(b"b", b"c")
    assert client.reports(1.0) == []
    broker.set_up()
    assert client.reports() == ok(b"b", b"c")
    assert [message.value() for message in read(broker.bootstrap_servers, 3)] == [b"a", b"b", b"c"]


def test_pushed_errors_hit_the_requests_in_their_order_and_no_other(
    broker: EmbeddedBroker, client: Client
) -> None:
    client.producer.list_topics("t", timeout=SOON_S)  # no request but Produce is to come
    broker.push_request_errors(METADATA + 1000, [KafkaError.INVALID_RECORD])  # none such comes
    broker.push_request_errors(PRODUCE, [0, KafkaError.MSG_SIZE_TOO_LARGE])
    broker.push_request_errors(PRODUCE, [0, KafkaError.INVALID_RECORD])
    client.send(b"a", b"b", b"c", b"d", b"e")
    assert client.reports() == [
        (b"a", None), (b"b", "MSG_SIZE_TOO_LARGE"), (b"c", None), (b"d", "INVALID_RECORD"), (b"e", None)
    ]  # fmt: skip  # a table
    assert [message.value() for message in read(broker.bootstrap_servers, 3)] == [b"a", b"c", b"e"]
    broker.push_request_errors(PRODUCE, [KafkaError.MSG_SIZE_TOO_LARGE] * 100)
    client.send(b"g")
    assert client.reports() == [(b"g", "MSG_SIZE_TOO_LARGE")]
    broker.clear_request_errors(PRODUCE)
    client.send(b"h")
    assert client.reports() == ok(b"h")


def test_a_topic_has_the_partitions_that_were_asked_for(
    broker: EmbeddedBroker, client: Client
) -> None:
    broker.create_topic("seven", partitions=7)
    found = client.producer.list_topics("seven", timeout=SOON_S).topics["seven"]
    assert len(found.partitions) == 7
    with pytest.raises(EmbeddedBrokerRefused, match="TOPIC_ALREADY_EXISTS"):
        broker.create_topic("seven")


def test_closing_cuts_clients_off_and_may_be_repeated() -> None:
    with EmbeddedBroker(2) as broker:
        addresses = broker.bootstrap_servers
        client = Client(addresses)
        broker.create_topic("t")
        client.send(b"a")
        assert client.reports() == ok(b"a")
        broker.close()
        broker.close()
        client.send(b"b")
        assert client.reports(0.5) == []
        client.producer.purge()
    assert broker.bootstrap_servers == addresses
    assert len(addresses.split(",")) == 2
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
