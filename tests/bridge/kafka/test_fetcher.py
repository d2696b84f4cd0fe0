"""A fetcher that is interrupted."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import KafkaError

from bridge.kafka import fetcher as fetching
from bridge.kafka.fetcher import Fetcher

DOWN = KafkaError(KafkaError._ALL_BROKERS_DOWN)


class Away:
    """A client whose cluster is away, and which reports that in each call."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self._report: Callable[[KafkaError], object] = settings["error_cb"]
        self.run: list[str] = []  # Python's functions that ran inside the client's calls

    def consume(self, *_: object, **__: object) -> list[object]:
        sys.setprofile(lambda frame, event, _: event == "call" and self.run.append(str(frame)))
        self._report(DOWN)
        sys.setprofile(None)
        return []

    def list_topics(self, **_: object) -> None:
        raise fetching.KafkaException(DOWN)


def test_an_error_of_the_client_runs_no_code_in_which_an_interrupt_would_be_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A signal's handler runs as soon as Python does. What it raises inside a callback, the client
    loses: the call ended with a SystemError, for one interrupt in four of an outage."""
    clients: list[Away] = []

    def make(settings: dict[str, Any], *_: object, **__: object) -> Away:
        clients.append(Away(settings))
        return clients[-1]

    monkeypatch.setattr(fetching, "consumer", make)
    assert Fetcher("127.0.0.1:1", {}).fetch(1, 0.2).away == DOWN.str()
    assert clients[0].run == []
