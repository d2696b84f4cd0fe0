"""A bridge with nothing to send, where the broker closes idle connections: it is ready all the time,
and a broker that is gone is named all the same."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from bridge.kafka.cluster_watch import ClusterWatch
from tests.bridge.against_kafka import EXACTLY
from tests.bridge.logs import fill
from tests.bridge.processes import Start, running
from tests.kafka.rights import StrictKafka
from tests.waiting import wait_until

pytestmark = pytest.mark.kafka

IDLE_S = 9.0  # the broker closes idle connections after 3 s, twice or three times


def test_an_idle_bridge_stays_reachable_and_names_a_broker_that_is_gone(
    kafka_3_9: StrictKafka, log: Path, bridge: Start
) -> None:
    """At least once, exactly once, and the connection of logs that have none: side by side, for they wait."""
    server = kafka_3_9.server
    topic = f"idle-{log.parent.name}"
    server.create_topic(topic)
    logs = {log.with_name("once"): (), log.with_name("exactly"): EXACTLY}
    for path in logs:
        fill(path, 10)
    processes = [running(bridge, path, topic, server.bootstrap_servers, *how)
                 for path, how in logs.items()]  # fmt: skip  # one call
    watch = ClusterWatch(server.bootstrap_servers, {})

    def reachable() -> bool | None:
        watch.look(time.monotonic())
        return watch.reachable

    for process in processes:
        process.until(lambda s: s["acknowledged"] == 10)
    wait_until(reachable)
    quiet = [len(process.statuses) for process in processes]
    until_s, seen = time.monotonic() + IDLE_S, set()
    while time.monotonic() < until_s:
        seen.add((reachable(), watch.trouble))
        time.sleep(0.05)
    assert seen == {(True, None)}
    for process, before in zip(processes, quiet, strict=True):
        told = process.statuses[before:]
        assert len(told) > 20
        assert {(s["reachable"], s["state"], s["error"]) for s in told} == {(True, "live", None)}
    for path, process in zip(logs, processes, strict=True):
        fill(path, range(10, 20))
        process.until(lambda s: s["acknowledged"] == 20)
    server.kill()
    try:
        wait_until(lambda: reachable() is False, 30.0)
        wait_until(lambda: not reachable() and server.bootstrap_servers in str(watch.trouble), 30.0)
        for process in processes:
            status = process.until(lambda s: not s["reachable"], 30.0)
            process.until(lambda s: server.bootstrap_servers in str(s["error"]), 30.0)
            assert status["state"] == "connecting"
    finally:
        server.start()
    wait_until(reachable)
    watch.close()
    for process in processes:
        process.until(lambda s: s["reachable"])
        assert process.terminate() == 0
