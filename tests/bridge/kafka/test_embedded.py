"""The embedded broker takes and gives records, and fails when and how a test asks."""

from __future__ import annotations

import _ctypes
import socket
from collections.abc import Iterator
from typing import Any

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
    with pytest.raises(EmbeddedBrokerRefused, match="TOPIC_ALREADY_EXISTS"):
        broker.create_topic("t")
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
