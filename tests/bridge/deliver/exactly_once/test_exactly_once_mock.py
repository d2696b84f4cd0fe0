"""Exactly once where a cluster cannot give it: the embedded broker does not isolate transactions, which
is what the proof at each start is for. And what a transaction holds, where that proof is left out. About 10 s."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer

from aolog import Reader, Writer
from aolog.storage.storage import Storage
from bridge.config.load import load
from bridge.deliver.checkpoints import Checkpoint, Checkpoints
from bridge.deliver.partition_counts import PartitionCounts
from bridge.errors import NotIsolated, WrongSetting
from bridge.kafka import cursor_topic
from bridge.kafka.cursor_record import CursorRecord, decode_cursor
from bridge.kafka.cursor_topic import CursorTopic
from bridge.kafka.embedded import EmbeddedBroker
from bridge.kafka.ownership import Ownership
from bridge.kafka.queueing import RowProducer
from bridge.kafka.stamp import unpack_stamp
from bridge.supervise.supervisor import Supervisor
from tests.bridge.against_kafka import CURSORS, EXACTLY
from tests.bridge.brokers import assert_arrived, consume
from tests.bridge.forwarders import WAITS, Forward, forwarder
from tests.bridge.logs import append, fill, records_of
from tests.bridge.processes import Start
from tests.waiting import in_thread, wait_until


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


@pytest.mark.parametrize("known", [True, False], ids=["by its name", "by the proof"])
def test_an_unfit_cluster_is_named_before_there_is_a_log(
    broker: EmbeddedBroker, tmp_path: Path, request: pytest.FixtureRequest, known: bool
) -> None:
    if not known:
        request.getfixturevalue("compacted")
    root = tmp_path / "root"
    root.mkdir()
    supervisor = Supervisor(
        load(None, {
            "root": str(root), "topic": "events", "delivery": "exactly_once", "rescan_seconds": 0.2,
            "clusters.bootstrap_servers": broker.bootstrap_servers,
        }),
        waits=WAITS,
    )  # fmt: skip  # one call
    running = in_thread(supervisor.run)
    said = "the embedded broker" if known else "a record that was aborted"
    wait_until(lambda: said in (supervisor.overview().error or ""))
    assert supervisor.overview().state == "blocked"
    fill(root / "a", 1)  # its own delivery meets the same
    wait_until(lambda: supervisor.overview().standing == 1)
    assert (supervisor.overview().error or "").startswith("a: ")
    supervisor.stop()
    running.result()


def test_a_proof_that_fails_in_an_unknown_way_is_said_and_made_again(
    broker: EmbeddedBroker, tmp_path: Path, compacted: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*_: object) -> None:
        raise RuntimeError("an odd cluster")

    (tmp_path / "root").mkdir()
    supervisor = Supervisor(
        load(None, {
            "root": str(tmp_path / "root"), "topic": "events", "delivery": "exactly_once",
            "clusters.bootstrap_servers": broker.bootstrap_servers,
        }),
        waits=WAITS,
    )  # fmt: skip  # one call
    with monkeypatch.context() as patched:
        patched.setattr(Ownership, "prove", failing)
        running = in_thread(supervisor.run)
        wait_until(lambda: "an odd cluster" in (supervisor.overview().error or ""))
        assert supervisor.overview().state == "blocked"
    wait_until(lambda: "a record that was aborted" in (supervisor.overview().error or ""))
    supervisor.stop()
    running.result()


@pytest.fixture
def calls(compacted: None, monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """What the producer is asked for: the address of each record, a cursor record, or "commit". The proof is
    left out."""
    made: list[object] = []
    produce = RowProducer.produce

    def puts(producer: RowProducer, rows: Any) -> None:
        each = list(rows.calls(rows.end))
        rows.at = rows.end
        made.extend(unpack_stamp(dict(row[7])["aolog"]).address for row in each)
        for row in each:
            produce(producer, *row)

    def produces(producer: RowProducer, topic: str, value: bytes, *rest: Any) -> None:
        assert topic == CURSORS
        made.append(decode_cursor(value))
        produce(producer, topic, value, *rest)

    def commits(producer: RowProducer, *arguments: float) -> None:
        made.append("commit")
        Producer.commit_transaction(producer, *arguments)

    monkeypatch.setattr(Ownership, "prove", lambda *_: None)
    monkeypatch.setattr(RowProducer, "put", puts)
    monkeypatch.setattr(RowProducer, "produce", produces)
    monkeypatch.setattr(RowProducer, "commit_transaction", commits)
    return made


def test_the_cursor_is_the_last_record_of_each_transaction(
    log: Path, forward: Forward, calls: list[object]
) -> None:
    fill(log, 50)
    forward(delivery="exactly_once", drain=True, transaction_records=20).end()
    addresses = [record.address for record in records_of(log)]
    for count, to in ((20, 20), (20, 40), (10, 50)):
        *sent, cursor, commit = calls[: count + 2]
        del calls[: count + 2]
        assert sent == addresses[to - count : to]
        assert isinstance(cursor, CursorRecord)
        assert (cursor.ordinal, commit) == (to, "commit")
        assert cursor.address > addresses[to - 1]
    assert calls == []


def test_records_whose_commit_was_not_answered_and_succeeded_count_once(
    log: Path, forward: Forward, calls: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    commit, answered = RowProducer.commit_transaction, iter([False])

    def commits(producer: RowProducer, *arguments: float) -> None:
        commit(producer, *arguments)
        if not next(answered, True):
            raise KafkaException(KafkaError(KafkaError._FAIL, "no answer", True))

    monkeypatch.setattr(RowProducer, "commit_transaction", commits)
    fill(log, 50)
    status = forward(delivery="exactly_once", drain=True, transaction_records=20).end()
    assert (status.acknowledged, status.skipped, status.ahead_records) == (50, 0, 0)
    assert calls.count("commit") == 3


def test_no_record_follows_poison_that_is_not_set_aside_yet(
    log: Path, forward: Forward, calls: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that dies then has sent nothing that counts the poison as passed."""

    sync = Writer.sync

    def dies(writer: Writer) -> int:
        if writer.path.endswith("dead-letter"):
            raise KeyboardInterrupt
        return sync(writer)

    with Writer(log, batch_bytes=4 << 20) as writer:  # one batch
        append(writer, range(10))
        poison = writer.append(b"x" * 2_000_000)
        append(writer, range(10, 20))
    monkeypatch.setattr(Writer, "sync", dies)
    with pytest.raises(KeyboardInterrupt):
        forward(delivery="exactly_once", drain=True, poison="dead-letter").end()
    assert all(call < poison for call in calls if isinstance(call, int))


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
