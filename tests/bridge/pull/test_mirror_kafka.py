"""mirror: from a real Kafka to another cluster, and never back to where a record came from."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from confluent_kafka import Producer

from bridge.kafka.catalog import Catalog
from bridge.pull.origin import HEADER_NAME
from bridge.testing.apache_kafka import KafkaServer
from tests.bridge.conftest import consume

pytestmark = [pytest.mark.kafka, pytest.mark.xdist_group("kafka 2")]


def mirror(kafka: KafkaServer, to: str, topic: str, log: Path, *more: str) -> subprocess.Popen:
    return subprocess.Popen([
        sys.executable, "-m", "bridge", "mirror", "--topic", topic, "--log", str(log),
        "--from-servers", kafka.bootstrap_servers, "--to-servers", to, *more,
    ], stderr=subprocess.PIPE, text=True, env={**os.environ, "PYTHONUNBUFFERED": "1"})  # fmt: skip  # one call


def test_a_mirror_copies_all_but_what_came_from_the_destination(kafka, topic, broker, tmp_path):
    name, log = topic(), tmp_path / "log"
    broker.create_topic(name, 1)
    destination = Catalog(broker.bootstrap_servers, {}).cluster_id()
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    for number in range(100):
        came = b"%b/a/0/0" % (destination if number % 10 == 0 else "elsewhere").encode()
        producer.produce(name, b"%d" % number, headers=[(HEADER_NAME, came)])
    producer.flush(30)
    process = mirror(kafka, broker.bootstrap_servers, name, log, "--drain")
    _, errors = process.communicate(timeout=40)
    assert process.returncode == 0, errors
    found = [message.value for message in consume(broker.bootstrap_servers, name, 1)]
    assert found == [b"%d" % number for number in range(100) if number % 10]

    process = mirror(kafka, broker.bootstrap_servers, name, log)
    producer.produce(name, b"later")
    producer.flush(30)
    until_s = time.monotonic() + 30
    while consume(broker.bootstrap_servers, name, 1)[-1].value != b"later":
        assert time.monotonic() < until_s
        assert process.poll() is None, process.communicate()
        time.sleep(0.2)
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=20)
    assert process.returncode == 0, errors


def test_a_mirror_of_a_cluster_to_itself_is_refused(kafka, topic, tmp_path):
    process = mirror(kafka, kafka.bootstrap_servers, topic(), tmp_path / "log")
    _, errors = process.communicate(timeout=30)
    assert process.returncode == 2
    assert "are one cluster" in errors
    assert not (tmp_path / "log").exists()
