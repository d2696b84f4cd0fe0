"""The embedded broker refuses what its library would end the process for, or does not have."""

from __future__ import annotations

import _ctypes
import subprocess
import sys

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
    monkeypatch.setattr("importlib.import_module", lambda _: _ctypes)
    with pytest.raises(EmbeddedBrokerUnavailable, match="does not export rd_kafka") as caught:
        EmbeddedBroker()
    assert caught.value.code == "embedded_broker_unavailable"


_SIGNALLED = """
import os, signal
from bridge.kafka.embedded import EmbeddedBroker
from bridge.kafka.client import admin_client
signal.signal(signal.SIGUSR1, lambda *_: None)
with EmbeddedBroker() as broker:
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})  # so that another thread gets it
    os.kill(os.getpid(), signal.SIGUSR1)
    broker.create_topic("t", 2)
    cluster = admin_client({"bootstrap.servers": broker.bootstrap_servers})
    print(len(cluster.list_topics("t", timeout=30).topics["t"].partitions))
"""


def test_a_broker_lives_on_when_a_signal_arrives_that_the_main_thread_does_not_take() -> None:
    """A process that was stopped gets its signals in any thread."""
    done = subprocess.run(
        [sys.executable, "-c", _SIGNALLED], capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.stderr) == ("2\n", "")
