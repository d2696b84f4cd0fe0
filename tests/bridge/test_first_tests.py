"""One complete test of each kind. The page "How to test the bridge" shows them."""

from __future__ import annotations

from pathlib import Path

import pytest

from aolog import Writer
from bridge.kafka.embedded import EmbeddedBroker
from bridge.testing.apache_kafka.server import KafkaServer
from tests.bridge.against_kafka import committed_in
from tests.bridge.brokers import TOPIC, assert_arrived, consume
from tests.bridge.forwarders import Forward
from tests.bridge.logs import fill, letters, records_of
from tests.bridge.processes import Start
from tests.kafka.plugin import TopicFactory


def test_a_log(log: Path) -> None:
    fill(log, 10)
    assert [record.value.split()[0] for record in records_of(log) if record.value] == [
        b"%d" % number for number in range(10)
    ]


def test_a_dead_letter_on_a_mock_broker(
    broker: EmbeddedBroker, log: Path, forward: Forward
) -> None:
    fill(log, 10)
    with Writer(log) as writer:
        poison = writer.append(b"1", topic="no topic can be called so")
    fill(log, range(10, 20))
    status = forward(drain=True, poison="dead-letter").end()
    assert (status.acknowledged, status.dead_lettered) == (20, 1)
    [letter] = letters(log)
    assert (letter.origin.address, letter.code) == (poison, "TOPIC_EXCEPTION")
    assert len(consume(broker.bootstrap_servers, TOPIC)) == 20


@pytest.mark.kafka
@pytest.mark.xdist_group("kafka")
def test_exactly_once_on_a_real_kafka(
    kafka: KafkaServer, topic: TopicFactory, log: Path, forward_to: Forward
) -> None:
    name = topic(2)
    fill(log, 1_000)
    assert forward_to(name, delivery="exactly_once").end().acknowledged == 1_000
    assert_arrived(records_of(log), committed_in(kafka, name, 2), topic=name)


def test_a_killed_process(broker: EmbeddedBroker, log: Path, run: Start) -> None:
    fill(log, 20_000)
    killed = run()
    killed.until(lambda status: status["acknowledged"] > 100)
    killed.kill()
    assert run("--drain").end() == 0
    assert_arrived(records_of(log), consume(broker.bootstrap_servers))
