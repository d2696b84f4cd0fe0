"""Exactly once against Apache Kafka: whatever is killed, frozen or taken over, a read_committed
consumer sees each record once and in order."""

from __future__ import annotations

import json
import shutil
import signal
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

import aolog
from aolog import Reader, Writer
from aolog.errors import CursorDiverged, CursorForeign
from aolog.storage.storage import Storage
from bridge.deliver.checkpoints import checkpoints_path
from bridge.deliver.dead_letter import DeadLetters, read_dead_letter
from bridge.deliver.delivery import BUSY_S
from bridge.deliver.log_source import LogSource
from bridge.deliver.seek import seek
from bridge.errors import CursorTopicUnfit, OtherCluster, Undeliverable
from bridge.kafka.cursor_record import CursorRecord, decode_cursor, encode_cursor
from tests.bridge.against_kafka import (
    CURSORS,
    EXACTLY,
    Budget,
    Start,
    committed_in,
    fill_mixed,
    kill_over_and_over,
    name_of,
    raw_committed,
    set_limit,
)
from tests.bridge.conftest import (
    SOON_S,
    Process,
    Run,
    append,
    assert_arrived,
    bounded,
    cursor_of,
    fill,
    gone,
    notes_of,
    records_of,
)
from tests.stalling import StallingSystem

if TYPE_CHECKING:
    from bridge.testing.apache_kafka import KafkaServer
    from tests.kafka.plugin import TopicFactory

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]

SLOW = (*EXACTLY, "--transaction-records", "300", "--commit-seconds", "0.4")


@pytest.fixture
def exactly(forward_to: Callable[..., Run]) -> Callable[..., Run]:
    """Starts a forwarder in a thread, draining exactly once."""
    return lambda topic, **options: forward_to(topic, delivery="exactly_once", **options)


def error_of(process: Process) -> dict[str, object]:
    told: dict[str, object] = json.loads(process.stderr.splitlines()[-1])["error"]
    return told


def cursor_records(kafka: KafkaServer, log: Path, topic: str = CURSORS) -> list[CursorRecord]:
    key = name_of(log).key
    return [decode_cursor(m.value()) for m in raw_committed(kafka, topic) if m.key() == key]


def write_cursor(kafka: KafkaServer, log: Path, record: CursorRecord) -> None:
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "log_level": 0})
    producer.produce(CURSORS, encode_cursor(record), name_of(log).key)
    assert producer.flush(30) == 0


# --- the promise ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "budget",
    [
        pytest.param(Budget(5, 40_000)),
        pytest.param(Budget(30, 300_000), marks=[pytest.mark.slow, pytest.mark.timeout(1800)]),
    ],
    ids=["small", "long"],
)
def test_kills_lose_nothing_repeat_nothing_and_keep_the_order(
    kafka: KafkaServer, topic: TopicFactory, log: Path, start: Start, budget: Budget
) -> None:
    name = topic(3)
    fill_mixed(log, budget.records)
    kills = kill_over_and_over(lambda: start(name, *SLOW), budget, seed=1)
    print(kills)
    process = start(name, *EXACTLY, "--drain")
    assert process.end(300) == 0
    records = records_of(log)
    assert len(records) == budget.records
    assert_arrived(records, committed_in(kafka, name, 3), topic=name)
    assert kills.counted == budget.kills
    last = process.statuses[-1]
    assert last["lag_records"] == 0
    assert cursor_records(kafka, log)[-1].ordinal == budget.records


def test_a_broker_that_crashes_restarts_and_freezes_is_waited_for(
    kafka: KafkaServer, topic: TopicFactory, log: Path, start: Start
) -> None:
    count, name = 30_000, topic(3)
    fill_mixed(log, count)
    process = start(
        name, *SLOW, "-X", "socket.timeout.ms=2000", "-X", "transaction.timeout.ms=5000"
    )

    def until(left: float) -> None:
        process.until(lambda s: s["acknowledged"] and s["lag_records"] < count * left)

    until(0.9)
    kafka.kill()
    process.until(lambda s: not s["reachable"])
    kafka.start()
    until(0.7)
    kafka.stop()
    process.until(lambda s: not s["reachable"])
    kafka.start()
    until(0.5)
    kafka.pause()
    time.sleep(7.0)  # longer than the client waits, and than a transaction may be open
    kafka.resume()
    until(0.3)
    assert process.popen.poll() is None
    process.kill()
    assert start(name, *EXACTLY, "--drain").end(120) == 0
    assert_arrived(records_of(log), committed_in(kafka, name, 3), topic=name)


def test_a_transaction_that_the_cluster_aborted_for_its_age_is_sent_again(
    kafka: KafkaServer, topic: TopicFactory, log: Path, start: Start
) -> None:
    """To the producer that looks as if it was fenced, so it looks for five seconds by whom."""
    name = topic(2)
    with Writer(log) as writer:
        append(writer, range(500))
    process = start(
        name, *EXACTLY, "--transaction-seconds", "2", "-X", "transaction.timeout.ms=4000",
        "-X", "socket.timeout.ms=1000",
    )  # fmt: skip  # a command line
    process.until(lambda s: s["outstanding"] == 500)
    process.popen.send_signal(signal.SIGSTOP)
    time.sleep(6.0)  # longer than a transaction may be open
    process.popen.send_signal(signal.SIGCONT)
    process.until(lambda s: s["acknowledged"] == 500)
    assert "connecting anew" in process.stderr
    assert process.terminate() == 0
    assert_arrived(records_of(log), committed_in(kafka, name, 2), topic=name)


def test_a_stop_while_the_broker_hangs_takes_seconds_and_the_next_start_resolves_the_doubt(
    kafka: KafkaServer, topic: TopicFactory, log: Path, start: Start
) -> None:
    name = topic(2)
    with Writer(log) as writer:
        append(writer, range(20_000))
    process = start(name, *SLOW, "--stop-seconds", "2")
    process.until(lambda s: s["acknowledged"] > 500)
    kafka.pause()
    process.until(lambda s: s["error"])  # a commit is not answered
    assert process.terminate(15.0) == 0
    assert process.statuses[-1]["lag_records"] > 0
    assert notes_of(log)["clean"] is False
    kafka.resume()
    assert start(name, *EXACTLY, "--drain").end(120) == 0
    assert notes_of(log)["clean"] is True
    assert_arrived(records_of(log), committed_in(kafka, name, 2), topic=name)


def test_a_drain_ends_with_its_last_commit_and_waits_for_no_more_of_the_log(
    kafka: KafkaServer, topic: TopicFactory, log: Path, exactly: Callable[..., Run],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip  # one call
    read, waited_s = LogSource.read_batch, []

    def told(self: LogSource, timeout_s: float, *more: int) -> object:
        waited_s.append(timeout_s)
        return read(self, timeout_s, *more)

    monkeypatch.setattr(LogSource, "read_batch", told)
    name = topic(1)
    with Writer(log) as writer:
        append(writer, range(300))
    assert exactly(name, transaction_records=100).end().acknowledged == 300
    assert max(waited_s) <= BUSY_S


def test_transactions_go_on_while_the_disk_of_the_local_cursor_stalls(
    kafka: KafkaServer, topic: TopicFactory, log: Path, exactly: Callable[..., Run]
) -> None:
    name, disk = topic(1), StallingSystem()
    fill(log, 10)
    run = exactly(name, storage=Storage(disk), drain=False, commit_s=0.05)
    run.until(lambda s: s.committed == s.position > 0)
    with disk.stalled():
        for total in range(20, 50, 10):
            fill(log, 10)
            run.until(lambda s, n=total: s.acknowledged == n)  # type: ignore[misc]  # mypy: no defaults
        assert cursor_of(log) < run.status.position
    run.until(lambda s: s.committed == s.position)
    assert run.stop().acknowledged == 40
    assert cursor_of(log) == run.status.position


def test_an_older_bridge_on_a_copy_of_the_log_ends_with_the_error_fenced(
    kafka: KafkaServer, topic: TopicFactory, log: Path, tmp_path: Path, start: Start
) -> None:
    name = topic(3)
    with Writer(log) as writer:
        append(writer, range(20_000))
    copy = tmp_path / "copy"
    shutil.copytree(log, copy)
    # Still sending when the newer one has started, however long that takes: an idle one is not fenced.
    older = start(name, *SLOW, "--transaction-records", "100", "--records-per-second", "500")
    older.until(lambda s: s["acknowledged"] > 500)
    newer = start(name, *SLOW, "--drain", path=copy)
    assert older.end() == 7
    assert error_of(older)["code"] == "fenced"
    assert newer.end() == 0
    assert_arrived(records_of(log), committed_in(kafka, name, 3), topic=name)
    # the older log's cursor is older than the cluster's, and continues there
    last = start(name, *EXACTLY, "--drain")
    assert last.end() == 0
    assert last.statuses[-1]["acknowledged"] == 0
    assert cursor_of(log) == cursor_of(copy)


# --- the cursor record ------------------------------------------------------------------------


def test_the_clusters_cursor_overrides_a_local_one_that_is_older(
    kafka: KafkaServer, topic: TopicFactory, log: Path, exactly: Callable[..., Run]
) -> None:
    name = topic(3)
    with Writer(log) as writer:
        append(writer, range(300))
    exactly(name).end()
    shutil.rmtree(log / "cursors")
    with Writer(log) as writer:
        append(writer, range(300, 500))
    status = exactly(name).end()
    assert (status.skipped, status.acknowledged) == (300, 200)
    assert_arrived(records_of(log), committed_in(kafka, name, 3), topic=name)
    record = cursor_records(kafka, log)[-1]
    assert (record.address, record.ordinal) == (status.position, 500) or record.ordinal == 500
    assert record.topic_uuid == name_of(log).topic_uuid


def test_a_cursor_record_of_another_log_or_history_is_a_clear_error(
    kafka: KafkaServer, topic: TopicFactory, log: Path, exactly: Callable[..., Run]
) -> None:
    name = topic(1)
    with Writer(log) as writer:
        append(writer, range(10))
    exactly(name).end()
    uuid_ = name_of(log).topic_uuid
    write_cursor(kafka, log, CursorRecord(0, 0, uuid.uuid4().bytes, 1, "x"))
    with pytest.raises(CursorForeign, match="the cluster's cursor record does not fit"):
        exactly(name).end()
    with Writer(log) as writer:  # as after a restored backup: a later epoch below the cursor
        append(writer, range(10, 12))
    end = records_of(log)[-1].address
    shutil.copytree(log, log.parent / "restored")
    with Writer(log.parent / "restored") as writer:
        append(writer, range(12, 14))
    far = records_of(log.parent / "restored")[-1].address + (1 << 40)
    write_cursor(kafka, log, CursorRecord(far, 1000, uuid_, 1, "x"))
    with pytest.raises(CursorDiverged, match="the cluster's cursor record does not fit"):
        exactly(name, path=log.parent / "restored").end()
    assert end < far
    assert len(committed_in(kafka, name)) == 10


def test_a_cursor_topic_is_made_compacted_with_one_partition_and_used_by_all(
    kafka: KafkaServer, topic: TopicFactory, log: Path, exactly: Callable[..., Run]
) -> None:
    name, cursors = topic(1), f"cursors-{uuid.uuid4().hex[:8]}"
    with Writer(log) as writer:
        append(writer, range(10))
    exactly(name, cursor_topic=cursors).end()
    seen = [(m.key(), m.value()) for m in raw_committed(kafka, cursors)]
    every = [m.key() for m in raw_committed(kafka, cursors, isolation="read_uncommitted")]
    proof, key = name_of(log).proof_key, name_of(log).key
    assert {k for k, _ in seen} == {key}
    assert every[:2] == [proof, key]  # what was aborted is there, and hidden
    assert decode_cursor(seen[-1][1]).ordinal == 10


@pytest.mark.parametrize(
    ("partitions", "config", "said"),
    [(2, {"cleanup.policy": "compact"}, "2 partitions"),
     (1, {"cleanup.policy": "delete"}, "cleanup.policy=delete"),
     (1, {"cleanup.policy": "compact,delete"}, "cleanup.policy=")],
)  # fmt: skip  # a table
def test_an_unfit_cursor_topic_is_refused_before_anything_is_written(
    kafka: KafkaServer, topic: TopicFactory, log: Path, exactly: Callable[..., Run],
    partitions: int, config: dict[str, str], said: str,
) -> None:  # fmt: skip  # as above
    name, cursors = topic(1), topic(partitions, config)
    with Writer(log) as writer:
        append(writer, range(10))
    with pytest.raises(CursorTopicUnfit, match=said) as caught:
        exactly(name, cursor_topic=cursors).end()
    assert (caught.value.code, caught.value.exit_status) == ("cursor_topic_unfit", 8)
    for p in range(partitions):
        assert raw_committed(kafka, cursors, p, isolation="read_uncommitted") == []
    assert committed_in(kafka, name) == []


def test_another_cluster_is_refused_before_anything_is_written(
    kafka: KafkaServer, topic: TopicFactory, log: Path, exactly: Callable[..., Run]
) -> None:
    name, cursors = topic(1), f"cursors-{uuid.uuid4().hex[:8]}"
    with Writer(log) as writer:
        append(writer, range(10))
    exactly(name).end()
    with Writer(log) as writer:
        append(writer, range(10, 20))
    path = Path(checkpoints_path(str(log), "bridge"))
    notes = notes_of(log)
    assert notes["cluster"]
    path.write_text(json.dumps({**notes, "cluster": "another"}))
    with pytest.raises(OtherCluster, match="is of another"):
        exactly(name, cursor_topic=cursors).end()
    assert (
        cursors
        not in AdminClient({"bootstrap.servers": kafka.bootstrap_servers}).list_topics().topics
    )
    assert len(committed_in(kafka, name)) == 10
    seek(str(log), None, cursor="bridge", forget_cluster=True)
    exactly(name).end()
    assert_arrived(records_of(log), committed_in(kafka, name), topic=name)
    assert notes_of(log)["cluster"] == notes["cluster"]


def test_a_transaction_timeout_that_the_cluster_refuses_is_a_clear_error(
    kafka: KafkaServer, topic: TopicFactory, log: Path, start: Start
) -> None:
    name = topic(1)
    with Writer(log) as writer:
        append(writer, range(10))
    process = start(name, *EXACTLY, "-X", "transaction.timeout.ms=900001")
    assert process.end() == 6
    error = error_of(process)
    assert error["code"] == "destination"
    assert "transaction.timeout.ms" in str(error["message"])
    assert committed_in(kafka, name) == []
    assert records_of(log)


# --- what a topic does not take -------------------------------------------------------------


def test_a_record_too_large_for_its_topic_is_found_and_delivery_stops_before_it(
    kafka: KafkaServer, topic: TopicFactory, log: Path, exactly: Callable[..., Run]
) -> None:
    name = topic(2, {"max.message.bytes": "20000"})
    with Writer(log) as writer:
        append(writer, range(400))
        large = writer.append(b"x" * 30_000, key=b"k3")
        append(writer, range(400, 700))
    for _ in range(2):  # the next start finds it again
        with pytest.raises(Undeliverable, match="MSG_SIZE_TOO_LARGE") as caught:
            exactly(name).end()
        assert caught.value.details["address"] == large
        assert cursor_of(log) == large
    records = records_of(log)
    assert_arrived(records[:400], committed_in(kafka, name, 2), topic=name)
    set_limit(kafka, name, 50_000)
    exactly(name).end()
    assert_arrived(records, committed_in(kafka, name, 2), topic=name)


def test_delivery_stops_before_a_record_that_the_client_refuses_until_the_cursor_is_moved(
    kafka: KafkaServer, topic: TopicFactory, log: Path, exactly: Callable[..., Run]
) -> None:
    name = topic(1)
    with Writer(log) as writer:
        append(writer, range(30))
        large = writer.append(b"x" * 30_000)
        append(writer, range(30, 40))
    with pytest.raises(Undeliverable) as caught:
        exactly(name, settings={"message.max.bytes": "20000"}).end()
    assert caught.value.details["address"] == large == cursor_of(log)
    with Reader(log, cursor="bridge") as reader:
        assert (reader.read() or records_of(log)[0]).address == large
        reader.commit()
    exactly(name, settings={"message.max.bytes": "20000"}).end()
    rest = [record for record in records_of(log) if record.address != large]
    assert_arrived(rest, committed_in(kafka, name), topic=name)


@pytest.mark.parametrize("poison", ["dead-letter", "drop"])
def test_refused_records_are_set_aside_or_dropped_and_the_rest_is_committed(
    kafka: KafkaServer, topic: TopicFactory, log: Path, exactly: Callable[..., Run], poison: str
) -> None:
    name = topic(1, {"max.message.bytes": "20000"})
    with Writer(log) as writer:
        append(writer, range(30))
        large = [writer.append(b"x" * 30_000), writer.append(b"y" * 30_000)]
        append(writer, range(30, 40))
        large.append(writer.append(b"z" * 3_000_000))  # the client says so
    status = exactly(name, poison=poison).end()
    assert (status.dead_lettered, status.dropped) in {(3, 0), (0, 3)}
    assert (status.acknowledged, status.dropped) == (40, 3 if poison == "drop" else 0)
    rest = [record for record in records_of(log) if record.address not in large]
    assert_arrived(rest, committed_in(kafka, name), topic=name)
    if poison == "dead-letter":
        with Reader(log / "dead-letter") as reader:
            letters = [read_dead_letter(record) for record in reader]
        assert sorted(letter.origin.address for letter in letters if letter) == large
        assert {letter and letter.code for letter in letters} == {"MSG_SIZE_TOO_LARGE"}


def test_what_was_set_aside_before_a_crash_is_not_set_aside_again(
    kafka: KafkaServer, topic: TopicFactory, log: Path, exactly: Callable[..., Run],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip  # as above
    take = DeadLetters.take

    def crash(self: DeadLetters, *arguments: Any) -> None:
        take(self, *arguments)
        raise RuntimeError("crash")

    name = topic(1)
    with Writer(log) as writer:
        append(writer, range(3))
        writer.append(b"x" * 3_000_000)
        append(writer, range(3, 5))
    with monkeypatch.context() as patch:
        patch.setattr(DeadLetters, "take", crash)
        with pytest.raises(RuntimeError, match="crash"):
            exactly(name, poison="dead-letter").end()
    status = exactly(name, poison="dead-letter").end()
    assert (status.acknowledged, status.dead_lettered) == (5, 0)
    assert len(list(Reader(log / "dead-letter"))) == 1
    assert len(committed_in(kafka, name)) == 5


def test_requests_too_large_for_a_topic_that_takes_each_record_are_made_smaller(
    kafka: KafkaServer, topic: TopicFactory, log: Path, exactly: Callable[..., Run]
) -> None:
    name = topic(1, {"max.message.bytes": "5000"})
    with Writer(log) as writer:
        append(writer, range(60), size=1000, keys=1)
    exactly(name).end()
    assert_arrived(records_of(log), committed_in(kafka, name), topic=name)


def test_a_topic_that_does_not_exist_is_named_with_all_before_it_committed(
    kafka: KafkaServer, topic: TopicFactory, log: Path, exactly: Callable[..., Run],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip  # one call
    monkeypatch.setattr("bridge.deliver.exactly_once.partitions.TOPIC_WAIT_S", 0.5)
    name, cursors = topic(1), topic(1, {"cleanup.policy": "compact"})
    with Writer(log) as writer:
        append(writer, range(20))
        stray = writer.append(b"stray", topic="nowhere")
        append(writer, range(20, 25))
    with pytest.raises(Undeliverable, match="no topic 'nowhere'") as caught:
        exactly(name, create_topics="never", cursor_topic=cursors).end()
    assert caught.value.details["address"] == stray == cursor_of(log)
    assert_arrived(records_of(log)[:20], committed_in(kafka, name), topic=name)
    waiting = exactly(name, create_topics="never", cursor_topic=cursors, drain=False)
    lanes = waiting.until(lambda s: s.waiting_lanes).waiting_lanes
    assert {lane["state"] for lane in lanes} == {"blocked"}
    assert "no topic 'nowhere'" in lanes[0]["reason"]
    waiting.stop()


# --- from one way of delivering to the other --------------------------------------------------


def test_the_delivery_changes_only_after_an_orderly_stop(
    kafka: KafkaServer, topic: TopicFactory, log: Path, start: Start
) -> None:
    name = topic(2)
    with Writer(log) as writer:
        append(writer, range(20_000))
    process = start(name, *SLOW)
    process.until(lambda s: s["acknowledged"] > 100)
    process.kill()
    other = start(name, "--drain")
    assert other.end() == 2
    assert error_of(other)["code"] == "wrong_setting"
    assert "exactly_once" in str(error_of(other)["message"])
    process = start(name, *SLOW)
    process.until(lambda s: s["acknowledged"] > 100)
    assert process.terminate() == 0
    assert start(name, "--drain").end() == 0
    assert_arrived(records_of(log), committed_in(kafka, name, 2), topic=name)


# --- what retention removes -----------------------------------------------------------------------


def test_delivered_and_lost_records_add_up_if_a_writer_is_faster_than_the_bridge(
    kafka: KafkaServer, topic: TopicFactory, log: Path, exactly: Callable[..., Run]
) -> None:
    name = topic(2)
    with bounded(log) as writer:
        append(writer, range(1))
        writer.flush()
        run = exactly(name, drain=False, bytes_per_second=50_000)
        run.until(lambda s: s.acknowledged == 1)
        written, until_s = 1, time.monotonic() + SOON_S
        while run.statuses[-1].lost_records < 5_000 or run.statuses[-1].gaps < 3:
            assert time.monotonic() < until_s
            append(writer, range(written, written + 500))
            written += 500
            time.sleep(0.02)
        writer.flush()
        run.until(lambda s: s.acknowledged + s.lost_records >= written)
        status = run.stop()
    assert status.acknowledged + status.lost_records == written
    assert len(committed_in(kafka, name, 2)) == status.acknowledged


def test_after_a_kill_the_clusters_cursor_tells_how_many_pruned_records_were_delivered(
    kafka: KafkaServer,
    topic: TopicFactory,
    log: Path,
    start: Start,
    exactly: Callable[..., Run],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The local cursor is older than the cluster's, and the records after it are pruned."""
    name = topic(1)
    options = (*EXACTLY, "--commit-seconds", "1000", "--status-seconds", "0.05")
    with bounded(log) as writer:
        append(writer, range(1_000))
        writer.flush()
        process = start(name, *options)
        process.until(lambda s: s["acknowledged"] == 1_000)
        process.kill()
        local = cursor_of(log)
        append(writer, range(1_000, 9_000))
        writer.flush()
    (cursor,) = aolog.cursors(log)
    assert cursor.address == local
    lost = gone(log, 9_000, 1_000)
    assert 0 < lost < cursor.pruned.records_lost
    monkeypatch.setattr("bridge.deliver.exactly_once.delivery.ANSWER_S", SOON_S)
    kafka.pause()
    run = exactly(name, drain=False)
    run.until(lambda _: len(run.statuses) > 10)
    kafka.resume()
    run.until(lambda s: s.lag_records == 0 and s.acknowledged)
    assert {status.lost_records for status in run.statuses} <= {0, lost}
    assert run.stop().lost_records == lost
    assert len(committed_in(kafka, name, 1)) == 9_000 - lost
