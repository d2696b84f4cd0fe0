"""Exactly once where it is not to be had: the embedded broker does not isolate transactions, which
is what the proof at each start is for. About 10 s."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from aolog import Reader, Writer
from aolog.storage.storage import Storage
from bridge.deliver.checkpoints import Checkpoint, Checkpoints
from bridge.deliver.partition_counts import PartitionCounts
from bridge.errors import NotIsolated, WrongSetting
from bridge.kafka import cursor_topic
from bridge.kafka.cursor_topic import CursorTopic
from bridge.kafka.embedded import EmbeddedBroker
from tests.bridge.against_kafka import CURSORS, EXACTLY
from tests.bridge.conftest import (
    Forward,
    Start,
    assert_arrived,
    consume,
    fill,
    forwarder,
    records_of,
)


@pytest.fixture
def unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    """The embedded broker is not known for what it is."""
    monkeypatch.setattr(cursor_topic, "MOCK_CLUSTER", "another")


@pytest.fixture
def compacted(broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch, unknown: None) -> None:
    """A cursor topic; nobody could ask the embedded broker, which has no controller, how it is
    cleaned."""
    broker.create_topic(CURSORS, 1)
    monkeypatch.setattr(CursorTopic, "_policy", lambda *_: "compact")


@pytest.mark.usefixtures("compacted")
def test_a_cluster_that_shows_aborted_records_is_refused_before_anything_of_the_log_is_sent(
    broker: EmbeddedBroker, log: Path, forward: Forward
) -> None:
    fill(log, 50)
    with pytest.raises(NotIsolated, match="a record that was aborted") as caught:
        forward(delivery="exactly_once").end()
    assert (caught.value.code, caught.value.exit_status) == ("not_isolated", 8)
    assert consume(broker.bootstrap_servers) == []
    forward(delivery="at_least_once", drain=True).end()  # as its words say
    assert_arrived(records_of(log), consume(broker.bootstrap_servers))


@pytest.mark.parametrize("made", [False, True], ids=["no cursor topic", "cursor topic"])
def test_the_embedded_broker_is_refused_by_its_name_before_it_is_asked_what_it_cannot_answer(
    broker: EmbeddedBroker, log: Path, run: Start, made: bool
) -> None:
    fill(log, 50)
    if made:
        broker.create_topic(CURSORS, 1)
    process = run(*EXACTLY)
    assert process.end(20) == 8
    error = json.loads(process.stderr.splitlines()[-1])["error"]
    assert error["code"] == "not_isolated"
    assert "embedded broker" in error["message"]
    assert consume(broker.bootstrap_servers) == []


def test_a_log_of_format_1_has_no_uuid_and_is_refused(log: Path) -> None:
    with Writer(log, format="queuefka") as writer:
        writer.append(b"value")
    with pytest.raises(WrongSetting, match="format 1 has none"):
        forwarder(log, topic="t", bootstrap_servers="127.0.0.1:1", delivery="exactly_once")


def test_a_transaction_that_lasts_longer_than_the_cluster_allows_is_refused(log: Path) -> None:
    fill(log, 1)
    with pytest.raises(WrongSetting, match=r"transaction.timeout.ms=1500"):
        forwarder(
            log, topic="t", bootstrap_servers="127.0.0.1:1", delivery="exactly_once",
            transaction_seconds=1.0, settings={"transaction.timeout.ms": "1500"},
        )  # fmt: skip  # one call


def test_exactly_once_forgets_what_at_least_once_noted_of_topics(log: Path) -> None:
    """Back at at_least_once, an old number of partitions would choose the partitions of new records."""
    fill(log, 1)
    with Reader(log) as reader:
        uuid = reader.topic_uuid

    def notes() -> Checkpoints:
        return Checkpoints.load(str(log), "bridge", Storage(), topic_uuid=uuid)

    before = notes()
    before.add({("t", 0): Checkpoint(0)}, {"t": PartitionCounts.always(1)})
    before.meet("t", "id")
    before.clean = True
    before.save()
    forwarder(log, topic="t", bootstrap_servers="127.0.0.1:1", delivery="exactly_once")
    after = notes()
    assert (after.lanes, after.partitions, after.ids) == ({}, {}, {})
    assert after.delivery == "exactly_once"
