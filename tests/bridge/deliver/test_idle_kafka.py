"""A bridge with nothing to send, where the broker closes idle connections: it is ready all the time,
and a broker that is gone is named all the same."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from bridge.kafka.cluster_watch import ClusterWatch
from tests.aolog.conftest import wait_until
from tests.bridge.against_kafka import EXACTLY
from tests.bridge.conftest import Start, fill, running
from tests.kafka.rights import StrictKafka

pytestmark = pytest.mark.kafka

IDLE_S = 9.0  # the broker closes idle connections after 3 s, twice or three times


@pytest.mark.parametrize("delivery", [(), EXACTLY], ids=["at least once", "exactly once"])
def test_an_idle_bridge_stays_reachable_and_names_a_broker_that_is_gone(
    kafka_3_9: StrictKafka, log: Path, bridge: Start, delivery: tuple[str, ...]
) -> None:
    server = kafka_3_9.server
    topic = f"idle-{log.parent.name}"
    server.create_topic(topic)
    fill(log, 10)
    process = running(bridge, log, topic, server.bootstrap_servers, *delivery)
    process.until(lambda s: s["acknowledged"] == 10)
    quiet = len(process.statuses)
    time.sleep(IDLE_S)
    told = process.statuses[quiet:]
    assert len(told) > 20
    assert {(s["reachable"], s["state"], s["error"]) for s in told} == {(True, "live", None)}
    fill(log, range(10, 20))
    process.until(lambda s: s["acknowledged"] == 20)
    server.kill()
    try:
        status = process.until(lambda s: not s["reachable"], 30.0)
        process.until(lambda s: server.bootstrap_servers in str(s["error"]), 30.0)
        assert status["state"] == "connecting"
    finally:
        server.start()
    process.until(lambda s: s["reachable"])
    assert process.terminate() == 0


def test_the_connection_of_parked_logs_stays_reachable_and_names_a_broker_that_is_gone(
    kafka_3_9: StrictKafka,
) -> None:
    server = kafka_3_9.server
    watch = ClusterWatch(server.bootstrap_servers, {})

    def reachable() -> bool | None:
        watch.look(time.monotonic())
        return watch.reachable

    wait_until(reachable)
    until_s, told = time.monotonic() + IDLE_S, set()
    while time.monotonic() < until_s:
        told.add((reachable(), watch.trouble))
        time.sleep(0.05)
    assert told == {(True, None)}
    server.kill()
    try:
        wait_until(lambda: reachable() is False, 30.0)
        wait_until(lambda: not reachable() and server.bootstrap_servers in str(watch.trouble), 30.0)
    finally:
        server.start()
    wait_until(reachable)
    watch.close()
