"""Exactly once against Apache Kafka: whatever is killed, frozen or taken over, a read_committed
consumer sees each record once and in order."""

from __future__ import annotations

import gc
import json
import os
import shutil
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import aolog
from aolog import Reader, Writer
from bridge.config.load import load
from bridge.deliver.checkpoints import checkpoints_path
from bridge.deliver.dead_letter import DeadLetters
from bridge.errors import CursorTopicUnfit, OtherCluster, Undeliverable
from bridge.kafka.cursor_record import CursorRecord, decode_cursor
from bridge.supervise.supervisor import Supervisor
from bridge.testing.apache_kafka.server import KafkaServer
from tests.bridge.against_kafka import (
    BUDGETS,
    CURSORS,
    EXACTLY,
    Budget,
    committed_in,
    fill_mixed,
    kill_over_and_over,
    name_of,
    raw_committed,
)
from tests.bridge.brokers import assert_arrived
from tests.bridge.forwarders import WAITS, Forward
from tests.bridge.logs import append, bounded, cursor_of, fill, gone, notes_of, records_of
from tests.bridge.processes import Process, Start
from tests.kafka.plugin import TopicFactory
from tests.waiting import SOON_S, in_thread, wait_until

pytestmark = pytest.mark.kafka

SLOW = (*EXACTLY, "--transaction-records", "300", "--commit-seconds", "0.4")


@pytest.fixture
def exactly(forward_to: Forward) -> Forward:
    """Starts a forwarder in a thread, draining exactly once."""
    return lambda topic, **options: forward_to(topic, delivery="exactly_once", **options)


def error_of(process: Process) -> dict[str, object]:
    told: dict[str, object] = json.loads(process.stderr.splitlines()[-1])["error"]
    return told


def cursor_records(kafka: KafkaServer, log: Path, topic: str = CURSORS) -> list[CursorRecord]:
    key = name_of(log).key
    return [decode_cursor(m.value()) for m in raw_committed(kafka, topic) if m.key() == key]


def test_a_cluster_is_proved_before_there_is_a_log_and_stays_live(
    kafka: KafkaServer, topic: TopicFactory, tmp_path: Path
) -> None:
    root, cursors = tmp_path / "root", topic(config={"cleanup.policy": "compact"})
    root.mkdir()
    for restarts in range(1, 3):
        supervisor = Supervisor(
            load(None, {
                "root": str(root), "topic": "events", "delivery": "exactly_once",
                "clusters.bootstrap_servers": kafka.bootstrap_servers, "cursor_topic": cursors,
            }),
            waits=WAITS,
        )  # fmt: skip  # one call
        running = in_thread(supervisor.run)
        wait_until(lambda: len(raw_committed(kafka, cursors)) >= restarts)  # noqa: B023 -- ends here
        wait_until(lambda: "aolog-bridge-proof" not in {t.name for t in threading.enumerate()})
        assert supervisor.overview().state == "live"
        supervisor.stop()
        running.result()
    assert len({m.key() for m in raw_committed(kafka, cursors)}) == 1


# --- the promise ----------------------------------------------------------------------------


@BUDGETS
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
    count, name = 12_000, topic(3)  # a quarter of a minute, at this rate
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


def test_a_stop_while_the_broker_hangs_takes_seconds_and_the_next_start_resolves_the_doubt(
    kafka: KafkaServer, topic: TopicFactory, log: Path, start: Start
) -> None:
    name = topic(2)
    fill(log, 20_000)
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


@pytest.mark.skipif(sys.platform != "linux", reason="counts what /proc lists")
def test_stalls_of_the_broker_cost_no_descriptor_and_no_thread(
    kafka: KafkaServer, topic: TopicFactory, log: Path, exactly: Forward
) -> None:
    """After each of them a new producer takes over."""

    def held() -> tuple[int, int]:
        """Threads, and pipes, of which each thread of a client has some."""
        gc.collect()
        descriptors = [str(each.resolve()) for each in Path("/proc/self/fd").iterdir()]
        return len(os.listdir("/proc/self/task")), sum("pipe:" in each for each in descriptors)

    fill(log, 1)
    run = exactly(topic(1), drain=False)
    run.until(lambda s: s.acknowledged == 1)
    before = held()
    for records in (1, 3):
        kafka.pause()
        fill(log, 1)
        run.until(lambda s, records=records: s.acknowledged == records and s.error)
        kafka.resume()
        run.until(lambda s, records=records: s.acknowledged > records)
        fill(log, 1)
        run.until(lambda s, records=records: s.acknowledged == records + 2)
    assert held() == before


def test_an_older_bridge_on_a_copy_of_the_log_ends_with_the_error_fenced(
    kafka: KafkaServer, topic: TopicFactory, log: Path, tmp_path: Path, start: Start
) -> None:
    name = topic(3)
    fill(log, 20_000)
    copy = tmp_path / "copy"
    shutil.copytree(log, copy)
    # Still sending when the newer one has started, however long that takes: an idle one is not fenced.
    slow = (*EXACTLY, "--commit-seconds", "0.4", "--transaction-records", "100")
    older = start(name, *slow, "--records-per-second", "500")
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


@pytest.mark.parametrize(
    ("partitions", "config", "said"),
    [(2, {"cleanup.policy": "compact"}, "2 partitions"),
     (1, {"cleanup.policy": "delete"}, "cleanup.policy=delete"),
     (1, {"cleanup.policy": "compact,delete"}, "cleanup.policy=")],
)  # fmt: skip  # a table
def test_an_unfit_cursor_topic_is_refused_before_anything_is_written(
    kafka: KafkaServer, topic: TopicFactory, log: Path, exactly: Forward,
    partitions: int, config: dict[str, str], said: str,
) -> None:  # fmt: skip  # as above
    name, cursors = topic(1), topic(partitions, config)
    fill(log, 10)
    with pytest.raises(CursorTopicUnfit, match=said) as caught:
        exactly(name, cursor_topic=cursors).end()
    assert (caught.value.code, caught.value.exit_status) == ("cursor_topic_unfit", 8)
    for p in range(partitions):
        assert raw_committed(kafka, cursors, p, isolation="read_uncommitted") == []
    assert committed_in(kafka, name) == []


def test_another_cluster_is_refused_before_anything_is_written(
    kafka: KafkaServer, topic: TopicFactory, log: Path, exactly: Forward
) -> None:
    name, cursors = topic(1), topic(1, {"cleanup.policy": "compact"})
    fill(log, 10)
    exactly(name).end()
    fill(log, range(10, 20))
    notes = json.dumps({**notes_of(log), "cluster": "another"})
    Path(checkpoints_path(str(log), "bridge")).write_text(notes)
    with pytest.raises(OtherCluster, match="is of another"):
        exactly(name, cursor_topic=cursors).end()
    assert raw_committed(kafka, cursors, isolation="read_uncommitted") == []
    assert len(committed_in(kafka, name)) == 10


# --- what a topic does not take -------------------------------------------------------------


def test_what_was_set_aside_before_a_crash_is_not_set_aside_again(
    kafka: KafkaServer, topic: TopicFactory, log: Path, exactly: Forward,
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


def test_a_topic_that_does_not_exist_is_named_with_all_before_it_committed(
    kafka: KafkaServer, topic: TopicFactory, log: Path, exactly: Forward
) -> None:
    name, cursors = topic(1), topic(1, {"cleanup.policy": "compact"})
    waits = WAITS._replace(topic_s=0.5)
    with Writer(log) as writer:
        append(writer, range(20))
        stray = writer.append(b"stray", topic="nowhere")
        append(writer, range(20, 25))
    with pytest.raises(Undeliverable, match="no topic 'nowhere'") as caught:
        exactly(name, create_topics="never", cursor_topic=cursors, waits=waits).end()
    assert caught.value.details["address"] == stray == cursor_of(log)
    assert_arrived(records_of(log)[:20], committed_in(kafka, name), topic=name)
    waiting = exactly(name, create_topics="never", cursor_topic=cursors, drain=False, waits=waits)
    lanes = waiting.until(lambda s: s.waiting_lanes).waiting_lanes
    assert {lane["state"] for lane in lanes} == {"blocked"}
    assert "no topic 'nowhere'" in lanes[0]["reason"]
    waiting.stop()


# --- from one way of delivering to the other --------------------------------------------------


def test_the_delivery_changes_only_after_an_orderly_stop(
    kafka: KafkaServer, topic: TopicFactory, log: Path, start: Start
) -> None:
    name = topic(2)
    fill(log, 20_000)
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


def test_after_a_kill_the_clusters_cursor_tells_how_many_pruned_records_were_delivered(
    kafka: KafkaServer,
    topic: TopicFactory,
    log: Path,
    start: Start,
    exactly: Forward,
) -> None:
    """The local cursor is older than the cluster's, and the records after it are pruned."""
    name = topic(1)
    options = (*EXACTLY, "--commit-seconds", "1000")
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
    kafka.pause()
    run = exactly(name, drain=False, waits=WAITS._replace(answer_s=SOON_S))
    run.until(lambda _: len(run.statuses) > 10)
    kafka.resume()
    run.until(lambda s: s.lag_records == 0 and s.acknowledged)
    assert {status.lost_records for status in run.statuses} <= {0, lost}
    assert run.stop().lost_records == lost
    assert len(committed_in(kafka, name, 1)) == 9_000 - lost
