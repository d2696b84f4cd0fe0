"""A fetcher that is interrupted, and one that is paused while its partitions change hands."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import KafkaError, Producer

from bridge.kafka import fetcher as fetching
from bridge.kafka.embedded import EmbeddedBroker
from bridge.kafka.fetcher import Fetcher

SOON_S = 30
DOWN = KafkaError(KafkaError._ALL_BROKERS_DOWN)


class Away:
    """A client whose cluster is away, and which reports that in each call."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self._report: Callable[[KafkaError], object] = settings["error_cb"]
        self.run: list[str] = []  # Python's functions that ran inside the client's calls

    def take(self, *_: object) -> tuple[list[Any], list[Any]]:
        sys.setprofile(lambda frame, event, _: event == "call" and self.run.append(str(frame)))
        self._report(DOWN)
        sys.setprofile(None)
        return [], []

    def list_topics(self, **_: object) -> None:
        raise fetching.KafkaException(DOWN)


def test_an_error_of_the_client_runs_no_code_in_which_an_interrupt_would_be_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A signal's handler runs as soon as Python does. What it raises inside a callback, the client
    loses: the call ended with a SystemError, for one interrupt in four of an outage."""
    clients: list[Away] = []

    def make(_: object, settings: dict[str, Any], *__: object, **___: object) -> Away:
        clients.append(Away(settings))
        return clients[-1]

    monkeypatch.setattr(fetching, "consumer", make)
    assert Fetcher("127.0.0.1:1", {}).fetch(1, 0.2).away == DOWN.str()
    assert clients[0].run == []


@pytest.mark.parametrize("comes_back", ["before it goes on", "after that"])
def test_a_partition_that_went_during_a_pause_is_read_when_it_comes_back(comes_back: str) -> None:
    """The client remembers the pause of a partition that it does not have any more."""
    with EmbeddedBroker() as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
        for i in range(10):
            producer.produce("t", b"%d" % i, partition=0)
        producer.flush()
        fetcher = Fetcher(broker.bootstrap_servers, {})
        fetcher.assign({("t", 0): 0})
        assert len(fetcher.fetch(10, SOON_S).messages) == 10
        fetcher.pause()
        fetcher.unassign([("t", 0)])
        steps = [lambda: fetcher.assign({("t", 0): 5}), fetcher.resume]
        for step in steps if comes_back == "before it goes on" else reversed(steps):
            step()
        found = [message.value() for message in fetcher.fetch(5, SOON_S).messages]
        assert found == [b"5", b"6", b"7", b"8", b"9"]
        fetcher.close()
