"""The embedded broker refuses what its library would end the process for, or does not have."""

from __future__ import annotations

import _ctypes

import pytest

from bridge.kafka import embedded
from bridge.kafka.embedded import EmbeddedBroker, EmbeddedBrokerRefused, EmbeddedBrokerUnavailable


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
