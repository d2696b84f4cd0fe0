"""Kafka leaves a transaction of ours open, without a marker, and nothing arrives twice for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from aolog import Record
from aolog.format.origin import HEADER_NAME
from bridge.kafka.cursor_record import CursorRecord, encode_cursor
from bridge.kafka.stamp import encode_stamp
from bridge.testing.apache_kafka.server import KafkaServer
from tests.bridge.against_kafka import CURSORS, EXACTLY, committed_in, name_of, raw_committed
from tests.bridge.brokers import Message, assert_arrived
from tests.bridge.logs import cursor_of, fill, records_of
from tests.bridge.processes import Process, Start
from tests.kafka.hanging import leave_open, unverified
from tests.kafka.plugin import TopicFactory

pytestmark = pytest.mark.kafka

COUNT = 300


class Halfway:
    """A bridge was killed when it had delivered half of the log; the rest is to come."""

    def __init__(self, kafka: KafkaServer, topic: str, log: Path, start: Start):
        fill(log, COUNT)
        process = start(topic, *EXACTLY)
        last = records_of(log)[-1].address
        process.until(lambda s: s["acknowledged"] == COUNT and cursor_of(log) > last)
        process.kill()
        fill(log, range(COUNT, 2 * COUNT))
        self.kafka, self.topic, self.log, self._start = kafka, topic, log, start
        self.name = name_of(log)
        self._where = {m.key: m.partition for m in committed_in(kafka, topic, 2)}
        self.delivered, self.rest = records_of(log)[:COUNT], records_of(log)[COUNT:]

    def drain(self) -> Process:
        """Another bridge, which ends when all is delivered."""
        process = self._start(self.topic, *EXACTLY, "--drain")
        assert process.end(60) == 0
        return process

    def arrived(self) -> list[Message]:
        """What a read_committed consumer sees."""
        return committed_in(self.kafka, self.topic, 2)

    def assert_each_arrived_once(self) -> None:
        assert_arrived(records_of(self.log), self.arrived(), topic=self.topic)

    def leave(self, record: Record) -> None:
        """The record is in its partition already, in a transaction that hangs."""
        stamp = encode_stamp(self.name.topic_uuid, 1, record.address, record.timestamp)
        leave_open(
            self.kafka, self.topic, self._where[record.key], self.name.transactional_id, key=record.key,
            value=record.value, headers=[*record.headers, (HEADER_NAME, stamp)],
        )  # fmt: skip  # one call

    def leave_cursor(self, before: Record) -> None:
        """As `leave`, of a cursor record that says that all before the record was delivered."""
        ordinal = records_of(self.log).index(before)
        record = CursorRecord(before.address, ordinal, self.name.topic_uuid, 1, "x", None)
        leave_open(
            self.kafka, CURSORS, 0, self.name.transactional_id, key=self.name.key,
            value=encode_cursor(record),
        )  # fmt: skip  # one call


@pytest.fixture
def halfway(kafka: KafkaServer, topic: TopicFactory, log: Path, start: Start) -> Halfway:
    return Halfway(kafka, topic(2), log, start)


def test_a_record_and_a_cursor_record_that_hang_are_aborted_and_do_not_arrive_twice(
    halfway: Halfway,
) -> None:
    with unverified(halfway.kafka):
        for record in halfway.rest[:20]:
            halfway.leave(record)
        halfway.leave_cursor(halfway.rest[50])
    process = halfway.drain()
    assert process.statuses[-1]["acknowledged"] == COUNT
    assert "left a transaction open" in process.stderr
    assert f"{CURSORS}/0" in process.stderr
    halfway.assert_each_arrived_once()


def test_a_cursor_record_of_what_is_known_to_be_committed_is_committed(halfway: Halfway) -> None:
    with unverified(halfway.kafka):
        halfway.leave_cursor(halfway.delivered[-1])
    process = halfway.drain()
    assert "is committed now" in process.stderr
    said = [m.value() for m in raw_committed(halfway.kafka, CURSORS) if m.key() == halfway.name.key]
    assert (
        sum(b'"owner": "x"' in value for value in said) == 2
    )  # the hanging one, and its repetition
    halfway.assert_each_arrived_once()


def test_what_was_committed_without_a_marker_is_not_aborted(halfway: Halfway) -> None:
    """It becomes visible with the next commit: here a second time, since it was there already."""
    with unverified(halfway.kafka):
        halfway.leave(halfway.delivered[-1])
    process = halfway.drain()
    assert "visible with the next commit" in process.stderr
    arrived = [m.address for m in halfway.arrived()]
    assert arrived.count(halfway.delivered[-1].address) == 2
    assert len(arrived) == 2 * COUNT + 1
