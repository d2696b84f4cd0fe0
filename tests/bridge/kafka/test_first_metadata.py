"""A new client is asked twice, for its first record's sake; nothing else rests on the second."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from bridge.kafka import producer as kafka
from bridge.kafka.client import NotReachable
from bridge.kafka.producer import Cluster

TOPIC = "t"
AWAY = KafkaException(KafkaError(KafkaError._TRANSPORT))


class Client:
    """A producer that is asked, and sends nothing. asked: what, in order. fails: the questions that
    no broker answers. made: all of them; the last one's settings."""

    made: list[Client]
    fails: frozenset[int] = frozenset()

    def __init__(self, _: dict[str, Any], **__: object) -> None:
        self.asked: list[str] = []
        self.made.append(self)

    def list_topics(self, topic: str, timeout: float) -> SimpleNamespace:
        assert timeout > 0
        self.asked.append(topic)
        if len(self.asked) in self.fails:
            raise AWAY
        partitions = dict.fromkeys(range(len(self.asked)))  # which answer counts can be told
        found = SimpleNamespace(error=None, partitions=partitions)
        return SimpleNamespace(cluster_id="one", topics={topic: found})

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
