"""A new client is asked twice, for its first record's sake; nothing else rests on the second."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import KafkaError, KafkaException

from aolog.spark import kafka_sink
from bridge.kafka import producer as kafka
from bridge.kafka import transactional_producer
from bridge.kafka.client import NotReachable
from bridge.kafka.cursor_record import CursorName
from bridge.kafka.cursor_topic import CursorTopic
from bridge.kafka.ends import Ends
from bridge.kafka.hanging_transactions import HangingTransactions
from bridge.kafka.outcomes import Broke
from bridge.kafka.producer import Cluster
from bridge.kafka.transactional_producer import TransactionalCluster
from tests.bridge.conftest import wait_until

TOPIC, CURSORS = "t", "cursors"
AWAY = KafkaException(KafkaError(KafkaError._TRANSPORT))


class Client:
    """A producer that is asked, and sends nothing. asked: what, in order. fails: the questions that
    no broker answers. made: all of them; the last one's settings."""

    made: list[Client]
    settings: dict[str, Any]
    fails: frozenset[int] = frozenset()

    def __init__(self, settings: dict[str, Any], **_: object) -> None:
        self.asked: list[str] = []
        type(self).settings = settings
        self.made.append(self)

    def list_topics(self, topic: str, timeout: float) -> SimpleNamespace:
        assert timeout > 0
        self.asked.append(topic)
        if len(self.asked) in self.fails:
            raise AWAY
        partitions = dict.fromkeys(range(len(self.asked)))  # which answer counts can be told
        found = SimpleNamespace(error=None, partitions=partitions)
        return SimpleNamespace(cluster_id="one", topics={topic: found})

    def init_transactions(self, timeout: float) -> None:
        assert timeout > 0
        self.asked.append("init")

    def produce(self, *_: object) -> None:
        self.asked.append("produce")

    def poll(self, timeout: float) -> int:
        assert timeout >= 0
        return 0

    def purge(self) -> None:
        """Nothing is queued."""

    def __len__(self) -> int:
        return 0


@pytest.fixture
def clients(monkeypatch: pytest.MonkeyPatch) -> type[Client]:
    class Mine(Client):
        made: list[Client] = []

    monkeypatch.setattr(kafka, "RowProducer", Mine)
    return Mine


def test_each_connection_is_asked_twice_for_its_first_topic(clients: type[Client]) -> None:
    cluster = Cluster("127.0.0.1:1", {})
    for _ in range(2):
        cluster.connect()
        assert [cluster.partitions(topic) for topic in (TOPIC, TOPIC, "u")] == [2, 3, 4]
    assert [client.asked for client in clients.made] == [[TOPIC, TOPIC, TOPIC, "u"]] * 2


def test_the_first_answer_counts_where_there_is_no_second(clients: type[Client]) -> None:
    clients.fails = frozenset({2})
    cluster = Cluster("127.0.0.1:1", {})
    cluster.connect()
    assert [cluster.partitions(TOPIC), cluster.partitions(TOPIC)] == [1, 3]


def test_who_does_not_answer_at_all_is_not_asked_twice(clients: type[Client]) -> None:
    clients.fails = frozenset({1})
    cluster = Cluster("127.0.0.1:1", {})
    cluster.connect()
    with pytest.raises(NotReachable):
        cluster.partitions(TOPIC)
    assert clients.made[-1].asked == [TOPIC]


def test_a_transactional_client_is_asked_before_it_is_given_its_id(
    clients: type[Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(CursorTopic, "require", lambda _: None)
    monkeypatch.setattr(HangingTransactions, "end_in_cursor_topic", lambda *_: True)
    pauses_s: list[float] = []

    def ends(retry_s: float) -> Ends:
        pauses_s.append(retry_s)
        return Ends(retry_s)

    monkeypatch.setattr(transactional_producer, "Ends", ends)
    settings = {"retry.backoff.max.ms": "80"}
    name = CursorName(bytes(16), "c")
    cluster = TransactionalCluster("127.0.0.1:1", settings, name, CURSORS, lambda: False)
    cluster.open(0)
    events: list[object] = []
    wait_until(lambda: events.extend(cluster.happened(0.1)) or bool(events))
    assert [type(event) for event in events] == [Broke]
    assert clients.made[-1].asked == [CURSORS, CURSORS, "init"]
    assert clients.settings["retry.backoff.ms"] == cluster.retry_ms == 80
    assert pauses_s[-1] == 0.08  # of which an answer must take less


def test_a_task_asks_before_its_first_row_and_without_rows_not_at_all(
    clients: type[Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafka_sink, "_producer", lambda _: clients({}))
    target = kafka_sink.KafkaTarget("127.0.0.1:1", TOPIC, {}, "/none")
    rows = pa.record_batch({"value": [b"1"]})
    send = kafka_sink.sender(target)
    for batches, sent in (([rows.slice(1), rows, rows], 2), ([rows.slice(1)], 0)):
        (told,) = send(iter(batches))
        assert told.to_pydict() == {"records": [sent], "bytes": [sent]}
    assert [client.asked for client in clients.made] == [[TOPIC, TOPIC, "produce", "produce"], []]
