"""The embedded broker takes and gives records, and fails when and how a test asks."""

from __future__ import annotations

import _ctypes
from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaError, Message, Producer

from bridge.kafka import embedded
from bridge.kafka.embedded import EmbeddedBroker, EmbeddedBrokerRefused, EmbeddedBrokerUnavailable
from tests.bridge.conftest import SOON_S, consume_any

PRODUCE, METADATA = 0, 3  # numbers of requests in Kafka's protocol

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

    def send(self, *values: bytes) -> None:
        for value in values:
            self.producer.produce("t", value, partition=0, on_delivery=self._report)

    def reports(self, wait_s: float = SOON_S) -> Reports:
        """What became of records since, in order; None is no error."""
        self.producer.flush(wait_s)
        done, self._reports = self._reports, []
        return done


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
    assert [message.value() for message in consume_any(broker.bootstrap_servers, "t", 1)] == [
        b"a",
        b"c",
        b"e",
    ]
    broker.push_request_errors(PRODUCE, [KafkaError.MSG_SIZE_TOO_LARGE] * 100)
    client.send(b"g")
    assert client.reports() == [(b"g", "MSG_SIZE_TOO_LARGE")]
    broker.clear_request_errors(PRODUCE)
    client.send(b"h")
    assert client.reports() == ok(b"h")


def test_a_closed_broker_and_one_that_does_not_exist_refuse(broker: EmbeddedBroker) -> None:
    with pytest.raises(EmbeddedBrokerRefused, match="BROKER_NOT_AVAILABLE"):
        broker.set_down(2)
    with pytest.raises(EmbeddedBrokerRefused, match="not in"):
        broker.create_topic("t", -1)  # librdkafka would end the process
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
