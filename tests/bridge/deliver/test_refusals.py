"""The embedded broker refuses requests: no record is passed, and the bridge names what it waits for."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from aolog import Writer
from bridge.deliver.at_least_once.engine import Engine
from bridge.deliver.position import Position
from bridge.kafka.producer import Cluster
from tests.bridge.conftest import (
    TOPIC,
    Process,
    Run,
    append,
    assert_arrived,
    consume,
    cursor_of,
    fill,
    records_of,
)

if TYPE_CHECKING:
    from bridge.kafka.embedded import EmbeddedBroker
    from bridge.kafka.lane import LaneKey
    from bridge.kafka.messages import Callback


PRODUCE, INIT_PRODUCER_ID = 0, 22  # numbers of requests in Kafka's protocol
ONE_AT_A_TIME = {
    "max.in.flight": "1"
}  # the mock does not judge order: see bridge/kafka/embedded.py

Forward = Callable[..., Run]


class Refusals:
    """Errors for Produce requests, stage by stage: the next begins when the bridge has noticed.

    Each stage ends with an error twice: like Kafka, and unlike the mock by itself, it also
    refuses the request that follows a refused one if that is on its way already.
    """

    def __init__(self, broker: EmbeddedBroker, patch: pytest.MonkeyPatch, *stages: list[int]):
        self._broker = broker
        self._stages = list(stages)
        self.noticed: list[tuple[str, Position]] = []
        patch.setattr(Engine, "suspect", self._watched(Engine.suspect))
        self.next_stage()

    def next_stage(self) -> None:
        self._broker.clear_request_errors(PRODUCE)
        if self._stages:
            stage = self._stages.pop(0)
            self._broker.push_request_errors(PRODUCE, [*stage, stage[-1]])

    def _watched(self, original: Callable[..., object]) -> Callable[..., object]:
        def watched(engine: Engine, reason: str, *arguments: object, **more: object) -> object:
            self.noticed.append((reason, engine.position))
            self.next_stage()
            return original(engine, reason, *arguments, **more)

        return watched


@pytest.fixture
def refuse(broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Refusals]:
    return lambda *stages: Refusals(broker, monkeypatch, *stages)


def in_tens(log: Path, forward: Forward) -> Run:
    """One lane. Requests: the opener, then ten records each. Those up to the 26th hold no record
    that carries a callback: the marks are the opener and each 256th record after it."""
    fill(log, 600, keys=1)
    return forward(
        drain=True,
        settings={"batch.num.messages": "10", "linger.ms": "100", **ONE_AT_A_TIME},
    )


@pytest.fixture
def marked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Addresses of records that were sent with a callback."""
    found: list[int] = []
    reporting = Cluster.reporting

    def watched(self: Cluster, lane: LaneKey, address: int) -> Callback:
        found.append(address)
        return reporting(self, lane, address)

    monkeypatch.setattr(Cluster, "reporting", watched)
    return found


def test_failed_records_without_a_callback_are_not_passed_and_arrive_in_the_end(
    broker: EmbeddedBroker,
    log: Path,
    forward: Forward,
    refuse: Callable[..., Refusals],
    marked: list[int],
) -> None:
    refusals = refuse([0, 0, 0, 10])
    callbacks: list[int] = []
    original = refusals.next_stage
    refusals.next_stage = lambda: (callbacks.extend(marked), original())  # type: ignore[assignment]
    status = in_tens(log, forward).end()
    records = records_of(log)
    (reason, position), = refusals.noticed  # it happened once  # fmt: skip
    assert "_GAPLESS_GUARANTEE" in reason
    assert position.address == records[1].address  # only the opener was acknowledged
    failed = {r.address for r in records[21:31]}
    assert callbacks
    assert not failed & set(callbacks)
    assert status.state == "stopped"
    assert_arrived(records, consume(broker.bootstrap_servers))


def test_a_stopped_lane_goes_on_after_a_reload(
    broker: EmbeddedBroker, log: Path, forward: Forward, caplog: pytest.LogCaptureFixture
) -> None:
    fill(log, 300, keys=1)
    broker.push_request_errors(PRODUCE, [10])
    with caplog.at_level("INFO", "bridge"):
        run = forward(settings={"batch.num.messages": "1"})
        status = run.until(lambda s: s.standing == 1)
        assert "MSG_SIZE_TOO_LARGE" in (status.error or "")
        assert "a reload (SIGHUP) or a restart tries again" in (status.error or "")
        run.forwarder.reopen()
        status = run.until(lambda s: s.acknowledged == 300)
    told = [record for record in caplog.records if hasattr(record, "event")]
    assert [(t.event, getattr(t, "code", None)) for t in told] == [
        ("lane_stands", "MSG_SIZE_TOO_LARGE"),
        ("lane_reopened", None),
    ]
    assert f"before address {records_of(log)[0].address}" in told[0].message
    run.until(lambda s: s.standing == 0 and s.error is None)
    run.stop()
    assert_arrived(records_of(log), consume(broker.bootstrap_servers))


def test_wrong_credentials_are_an_outage_with_a_reason(
    broker: EmbeddedBroker, log: Path, forward: Forward
) -> None:
    """31: CLUSTER_AUTHORIZATION_FAILED, here to the request for a producer's number."""
    broker.push_request_errors(INIT_PRODUCER_ID, [31] * 500)
    fill(log, 100)
    run = forward(drain=True)
    status = run.until(lambda s: s.error and "AUTHORIZATION" in s.error)
    assert "grant Write on a topic, or IdempotentWrite on the cluster" in (status.error or "")
    assert status.state in {"connecting", "backing_off", "sending"}
    assert run.alive
    broker.clear_request_errors(INIT_PRODUCER_ID)
    run.end()
    assert_arrived(records_of(log), consume(broker.bootstrap_servers))


def test_a_forbidden_topic_stops_its_lanes_and_no_others(
    broker: EmbeddedBroker, log: Path, forward: Forward
) -> None:
    broker.create_topic("own", 1)
    fill(log, 100, keys=1)
    run = forward(topic=TOPIC)
    run.until(lambda s: s.acknowledged == 100)
    broker.push_request_errors(PRODUCE, [29] * 100)  # the first may name no lane
    with Writer(log) as writer:
        for number in range(100):
            writer.append(b"%d" % number, topic="own")
    run.until(lambda s: s.standing == 1)
    broker.clear_request_errors(PRODUCE)
    with Writer(log) as writer:
        append(writer, range(100, 200), keys=1)
    status = run.until(lambda s: s.acknowledged == 200 and s.state == "blocked")
    assert status.standing == 1
    assert "TOPIC_AUTHORIZATION_FAILED" in (status.error or "")
    (lane,) = status.waiting_lanes
    assert (lane["topic"], lane["reason"]) == ("own", status.error)
    run.stop()
    forward(drain=True).end()
    assert len(consume(broker.bootstrap_servers, "own", 1)) == 100
    rest = [record for record in records_of(log) if record.topic is None]
    assert_arrived(rest, consume(broker.bootstrap_servers))


def test_a_record_too_large_for_the_client_is_named_and_everything_before_it_is_delivered(
    broker: EmbeddedBroker, log: Path, run: Callable[..., Process]
) -> None:
    with Writer(log) as writer:
        append(writer, range(300))
        large = writer.append(b"x" * 3_000_000, key=b"k")
        append(writer, range(300, 400))
    process = run("--drain")
    assert process.end() == 6
    told = json.loads(process.stderr.splitlines()[-1])["error"]
    assert (told["code"], told["address"], told["path"]) == ("undeliverable", large, str(log))
    assert str(large) in told["message"]
    assert process.statuses[-1]["standing_lanes"] == 1
    assert cursor_of(log) == large
    arrived = {m.address for m in consume(broker.bootstrap_servers)}
    assert arrived.issuperset(r.address for r in records_of(log)[:300])
    assert large < max(arrived)  # other partitions go on
    assert run("-X", "message.max.bytes=4000000", "--drain").end() == 0
    arrived = consume(broker.bootstrap_servers)
    assert {m.address for m in arrived} == {r.address for r in records_of(log)}
