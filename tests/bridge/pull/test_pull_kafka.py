"""pull: from a real Kafka into a log, each record once, whatever is killed and restarted."""

import json
import random
import time

import pytest
from confluent_kafka import Producer

from aolog import Reader, Writer
from tests.bridge.pull.pulling import (
    SLOWLY,
    Killed,
    delete_before,
    expected,
    origins,
    produce,
    pull,
    pulled,
)
from tests.kafka.servers import delete_topic

pytestmark = [pytest.mark.kafka, pytest.mark.xdist_group("kafka 1")]


def test_everything_of_a_record_is_kept_and_a_second_pull_adds_only_what_is_new(
    kafka, topic, tmp_path
):
    name, log = topic(2), tmp_path / "log"
    produce(kafka, name, range(1_001), 2)
    pulled(kafka, log, name)
    with Reader(log) as reader:
        record = next(r for r in reader if r.value == b"value 7")
    assert (record.key, record.timestamp, record.topic) == (b"key", 1_700_000_000_007_000, name)
    assert record.headers[:2] == (("n", b"7"), ("none", None))
    pulled(kafka, log, name)
    assert origins(log) == expected(name, 1_001, 2)
    produce(kafka, name, range(1_001, 1_100), 2)
    (log / "pull-positions.json").unlink()
    pulled(kafka, log, name)
    assert len(origins(log)) == 1_100


def test_aborted_transactions_are_not_pulled_and_do_not_keep_a_drain_from_ending(
    kafka, topic, tmp_path
):
    name, log = topic(), tmp_path / "log"
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": name})
    producer.init_transactions(30)
    for number, end in enumerate([producer.commit_transaction, producer.abort_transaction] * 3):
        producer.begin_transaction()
        producer.produce(name, b"%d" % number)
        end(30)
    for _ in range(2):
        pulled(kafka, log, name)
        assert [each[3] for each in origins(log)] == [b"0", b"2", b"4"]


def test_a_topic_that_is_made_anew_is_pulled_whole_beside_the_old_one(kafka, topic, tmp_path):
    name, log = topic(), tmp_path / "log"
    produce(kafka, name, range(10))
    pulled(kafka, log, name)
    delete_topic(kafka, name)
    kafka.create_topic(name)
    produce(kafka, name, range(20, 40))
    pulled(kafka, log, name)
    assert len(origins(log)) == 30


def test_records_that_the_cluster_deleted_are_reported_and_fail_stops(kafka, topic, tmp_path):
    name, log = topic(), tmp_path / "log"
    produce(kafka, name, range(10))
    pulled(kafka, log, name)
    produce(kafka, name, range(10, 30))
    delete_before(kafka, name, 0, 20)
    failed = pull(kafka, log, name, more=("--out-of-range", "fail"))
    assert failed.exit_code == 6
    assert "deleted 10 offsets before they were pulled (10 to 19)" in failed.stderr
    went_on = pull(kafka, log, name, more=("--json",))
    assert went_on.exit_code == 0
    assert json.loads(went_on.stdout.splitlines()[-1])["lost"] == 10
    assert [each[2] for each in origins(log)] == [*range(10), *range(20, 30)]


def test_a_log_that_another_program_has_written_is_refused(kafka, topic, tmp_path):
    with Writer(tmp_path / "other") as writer:
        writer.append(b"not from Kafka")
    other = pull(kafka, tmp_path / "other", topic())
    assert other.exit_code == 2
    assert "was not pulled" in other.stderr


def test_a_pull_that_is_killed_over_and_over_has_each_record_once(kafka, topic, tmp_path):
    name, log, chance, count = topic(3), tmp_path / "log", random.Random(28), 60_000
    produce(kafka, name, range(count), 3)
    process = Killed(kafka, log, name, *SLOWLY)
    had = []
    for _ in range(4):
        process.until(lambda status: status["positions"] != {})
        time.sleep(chance.uniform(0, 0.2))
        process.kill()
        had.append(len(origins(log)))
        process.start()
    process.kill()
    pulled(kafka, log, name)
    assert any(0 < records < count for records in had), f"never killed under way: {had}"
    assert origins(log) == expected(name, count, 3)


def test_an_outage_of_the_broker_is_waited_out(kafka, topic, tmp_path):
    name, log = topic(3), tmp_path / "log"
    produce(kafka, name, range(3_000), 3)
    process = Killed(kafka, log, name, *SLOWLY)
    process.until(lambda status: status["pulled"] > 0)
    kafka.kill()
    process.until(lambda status: status["state"] == "away")
    kafka.start()
    produce(kafka, name, range(3_000, 6_000), 3)
    process.until(lambda status: status["pulled"] == 6_000)
    process.stop()
    assert origins(log) == expected(name, 6_000, 3)


def test_a_full_log_makes_the_pull_wait_for_its_reader_and_nothing_is_lost(kafka, topic, tmp_path):
    name, log = topic(), tmp_path / "log"
    produce(kafka, name, range(10))
    pulled(kafka, log, name)
    with Reader(log, cursor="slow") as reader:
        reader.commit()
        produce(kafka, name, range(10, 30_000))
        process = Killed(kafka, log, name, "--max-bytes", "1M")
        process.until(lambda status: status["state"] == "full")
        assert process.status["pulled"] < 29_000
        read = []
        until_s = time.monotonic() + 40
        while len(read) < 30_000:
            assert time.monotonic() < until_s, (len(read), process.status)
            read += [record.value for record in reader]
            reader.commit()
            time.sleep(0.05)
        process.stop()
        assert read == [b"value %d" % number for number in range(30_000)]
