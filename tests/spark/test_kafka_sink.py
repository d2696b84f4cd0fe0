"""The pipeline's Kafka sink against Apache Kafka: its tasks and its driver's checks, without a Spark.
About 10 s, beside the start of Kafka."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

import aolog
from aolog.errors import UsageError
from aolog.spark import kafka_sink
from aolog.spark.kafka_sink import JobFailed, KafkaTarget, check_topic, sender
from tests.bridge.against_kafka import messages_in
from tests.bridge.brokers import NOWHERE
from tests.spark.driving import tasks

pytestmark = pytest.mark.kafka

FIRST_US = 1_700_000_000_000_000
COUNT = 500


def fill(path: Path, count: int = COUNT) -> None:
    """Keys that repeat and none, values and none, headers twice of one name and without a value."""
    with aolog.Writer(path) as log:
        for i in range(count):
            log.append(
                None if i % 50 == 7 else b"%d" % i,
                key=None if i % 5 == 0 else b"k%d" % (i % 7),
                headers=(("h", b"%d" % i), ("h", None), ("ü", b"")) if i % 3 == 0 else (),
                timestamp=FIRST_US + i * 1_234,
            )


def rows(root: Path) -> list[pa.RecordBatch]:
    """As the pipeline reads them, in small batches."""
    read = [batch for task in tasks(root, includeHeaders="true") for batch in task]
    return [batch.slice(at, 100) for batch in read for at in range(0, batch.num_rows, 100)]


def send(target: KafkaTarget, batches: Iterator[pa.RecordBatch]) -> int:
    """How many records the task says that it sent."""
    (told,) = sender(target)(batches)
    return int(told.column("records")[0].as_py())


def target(kafka, topic: str, root: Path, **settings: str) -> KafkaTarget:
    return KafkaTarget(kafka.bootstrap_servers, topic, settings, str(root))


def origins(root: Path) -> dict[tuple[bytes, int], aolog.Record]:
    """Records by what a stamp says of them."""
    found = {}
    for path in root.iterdir():
        with aolog.Reader(path) as reader:
            found |= {(reader.topic_uuid, record.address): record for record in reader}
    return found


def test_a_message_has_all_of_its_record_and_keys_keep_their_order(kafka, topic, tmp_path):
    fill(tmp_path / "a")
    fill(tmp_path / "b", 10)
    to = target(kafka, topic(3), tmp_path)
    check_topic(to)
    assert send(to, iter(rows(tmp_path))) == COUNT + 10
    arrived = messages_in(kafka, to.topic, 3)
    records = origins(tmp_path)
    assert len(arrived) == len(records) == COUNT + 10
    by_key: dict[tuple[bytes, bytes], list[int]] = {}
    partitions: dict[bytes, set[int]] = {}
    for message in arrived:
        record = records.pop((message.uuid, message.address))
        assert (message.key, message.value) == (record.key, record.value)
        assert message.headers == record.headers
        assert (message.timestamp_us, message.epoch) == (record.timestamp, 1)
        assert message.timestamp_ms == record.timestamp // 1000
        if message.key is not None:
            by_key.setdefault((message.uuid, message.key), []).append(message.address)
            partitions.setdefault(message.key, set()).add(message.partition)
    assert records == {}
    assert all(addresses == sorted(addresses) for addresses in by_key.values())
    assert {len(found) for found in partitions.values()} == {1}


def test_a_cluster_that_stops_answering_fails_the_task_and_the_next_attempt_sends_all(
    kafka, topic, tmp_path
):
    fill(tmp_path / "a", 300)
    to = target(kafka, topic(), tmp_path, **{"message.timeout.ms": "1000"})

    def frozen():
        for number, batch in enumerate(rows(tmp_path)):
            if number == 1:
                kafka.pause()
            yield batch

    with pytest.raises(JobFailed, match=rf"{to.bootstrap}: topic {to.topic}: .*timed out") as told:
        send(to, frozen())
    assert "run it again" in str(told.value)
    kafka.resume()
    assert send(to._replace(settings={}), iter(rows(tmp_path))) == 300
    arrived = messages_in(kafka, to.topic)
    assert {(m.uuid, m.address) for m in arrived} == set(origins(tmp_path))


def test_a_record_that_kafka_refuses_is_an_error_and_not_left_out(kafka, topic, tmp_path):
    with aolog.Writer(tmp_path / "a") as log:
        log.append(b"small")
        log.append(b"x" * 5_000)
    to = target(kafka, topic(config={"max.message.bytes": "1000"}), tmp_path)
    with pytest.raises(JobFailed, match=rf"topic {to.topic}: .*[Mm]essage size too large"):
        send(to, iter(rows(tmp_path)))


def test_a_value_larger_than_the_clients_queue_is_an_error_and_does_not_wait(
    kafka, topic, tmp_path
):
    with aolog.Writer(tmp_path / "a") as log:
        for size in (700, 700, 1_100):
            log.append(b"x" * size)
    to = target(kafka, topic(), tmp_path, **{"queue.buffering.max.kbytes": "1"})
    with pytest.raises(JobFailed, match=r"never has room for a value of 1100 bytes"):
        send(to, iter(rows(tmp_path)))
    assert len(messages_in(kafka, to.topic)) == 2


def test_a_topic_that_is_not_there_is_refused_before_a_task_if_the_option_says_so(kafka, tmp_path):
    never = target(kafka, "nowhere-at-all", tmp_path)._replace(
        settings={"kafka.allow.auto.create.topics": "false"}
    )
    for _ in range(2):
        with pytest.raises(UsageError, match=r"topic nowhere-at-all: .*Unknown topic"):
            check_topic(never)
        time.sleep(0.5)  # what the first question might have created is there


def test_a_topic_that_is_not_there_is_created_by_the_cluster_as_run_does_it(
    kafka, tmp_path, caplog
):
    new = target(kafka, f"new-{time.time_ns()}", tmp_path)
    check_topic(new)
    assert f"topic {new.topic} was not there, and the cluster has created it" in caplog.text
    fill(tmp_path / "a", 5)
    assert send(new, iter(rows(tmp_path))) == 5
    with pytest.raises(UsageError, match=r"topic no/name: .*Invalid topic"):
        check_topic(target(kafka, "no/name", tmp_path))


def test_a_cluster_that_is_not_there_is_told_with_its_address(tmp_path, monkeypatch):
    monkeypatch.setattr(kafka_sink, "_ANSWER_S", 1.0)
    with pytest.raises(JobFailed, match=f"^Kafka at {NOWHERE}: .+"):
        check_topic(KafkaTarget(NOWHERE, "t", {}, str(tmp_path)))
