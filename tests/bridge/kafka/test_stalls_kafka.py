"""A broker that falls silent, its connections open, is named within seconds, in either delivery."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from bridge.supervise.status import state_of
from bridge.testing.apache_kafka.server import KafkaServer
from tests.bridge.forwarders import Forward
from tests.bridge.logs import fill
from tests.kafka.plugin import TopicFactory

pytestmark = [pytest.mark.kafka, pytest.mark.xdist_group("kafka")]


@pytest.mark.parametrize("delivery", ["at_least_once", "exactly_once"])
def test_a_broker_that_falls_silent_is_named_within_ten_seconds(
    kafka: KafkaServer,
    topic: TopicFactory,
    log: Path,
    forward: Forward,
    caplog: pytest.LogCaptureFixture,
    delivery: str,
) -> None:
    """With exactly once it is the transaction's coordinator that does not answer."""
    name = topic(1)
    fill(log, 100)
    run = forward(log, topic=name, bootstrap_servers=kafka.bootstrap_servers, delivery=delivery)
    run.until(lambda s: s.acknowledged == 100)
    with caplog.at_level("INFO", "bridge"):
        kafka.pause()
        fill(log, range(100, 200))
        run.until(lambda s: s.outstanding)
        begun_s = time.monotonic()
        status = run.until(lambda s: s.stalled, 15.0)
        assert time.monotonic() - begun_s < 10.5
        (stall,) = status.stalled
        if delivery == "at_least_once":
            assert (stall["topic"], stall["partition"]) == (name, 0)
            assert stall["leader"] == f"{kafka.bootstrap_servers}, node 1"
        else:
            assert stall["topic"] == "the transaction"
            assert stall["leader"] == f"{kafka.bootstrap_servers}, its coordinator"
        assert state_of(status) == "blocked"
        assert f"no acknowledgement from {stall['topic']}" in (status.error or "")
        assert f"no acknowledgement from {stall['topic']}" in caplog.text
        kafka.resume()
        status = run.until(lambda s: s.acknowledged == 200 and not s.stalled)
        assert status.error is None
    assert caplog.text.count("acknowledges again: ") == 1
    assert run.stop().lag_records == 0
