"""What a cluster is asked."""

from __future__ import annotations

from contextlib import closing

import pytest
from confluent_kafka import Consumer, TopicPartition

from bridge.errors import Unanswered
from bridge.kafka import catalog
from bridge.kafka.catalog import Catalog
from bridge.kafka.embedded import EmbeddedBroker

OFFSET_FETCH = 9  # the protocol's number
COORDINATOR_LOAD_IN_PROGRESS, NOT_COORDINATOR = 14, 16


def test_a_group_whose_coordinator_moves_is_asked_again() -> None:
    """An admin client of librdkafka would end the process: its issue 5040."""
    with EmbeddedBroker() as broker:
        broker.create_topic("t", 2)
        settings = {"bootstrap.servers": broker.bootstrap_servers, "group.id": "g"}
        with closing(Consumer(settings)) as member:
            member.commit(
                offsets=[TopicPartition("t", 1, 7, metadata="a note")], asynchronous=False
            )
        cluster = Catalog(broker.bootstrap_servers, {})
        places = [("t", 0), ("t", 1)]
        broker.push_request_errors(OFFSET_FETCH, [NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS])
        assert cluster.committed("g", places) == {("t", 0): None, ("t", 1): 7}
        broker.push_request_errors(OFFSET_FETCH, [NOT_COORDINATOR])
        assert cluster.notes("g", places) == {"a note"}


def test_the_offset_of_a_leader_that_gives_no_answer_is_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The client gives -1001 then, and no error. A drain that began so was over at once."""
    monkeypatch.setattr(catalog, "ANSWER_S", 1.0)
    with EmbeddedBroker() as broker:
        broker.create_topic("t")
        cluster = Catalog(broker.bootstrap_servers, {})
        assert cluster.offsets([("t", 0)], "latest") == {("t", 0): 0}
        broker.set_rtt_ms(2_000)
        with pytest.raises(Unanswered):
            cluster.offsets([("t", 0)], "latest")
        broker.set_rtt_ms(0)
