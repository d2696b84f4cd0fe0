"""The embedded broker refuses requests: no record is passed, and the bridge names what it waits for."""

from __future__ import annotations

import json
from pathlib import Path

from aolog import Writer
from bridge.kafka.embedded import EmbeddedBroker
from bridge.supervise.status import state_of
from tests.bridge.brokers import TOPIC, assert_arrived, consume
from tests.bridge.forwarders import Forward
from tests.bridge.logs import append, cursor_of, fill, records_of
from tests.bridge.processes import Start

PRODUCE, INIT_PRODUCER_ID = 0, 22  # numbers of requests in Kafka's protocol


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
    fill(log, range(100, 200), keys=1)
    status = run.until(lambda s: s.acknowledged == 200 and state_of(s) == "blocked")
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
    broker: EmbeddedBroker, log: Path, run: Start
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
