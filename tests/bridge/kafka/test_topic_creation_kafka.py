"""Missing topics, against Apache Kafka with its own defaults, where a metadata request may create a
topic: looking creates nothing, and the bridge reports what it has created."""

from __future__ import annotations

import json
import time
import uuid
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from bridge.client.buffer.buffer import Buffer
from bridge.client.buffer.kafka_provider import KafkaProvider
from bridge.testing.apache_kafka.server import KafkaServer
from tests.bridge.against_kafka import EXACTLY, committed_in
from tests.bridge.brokers import assert_arrived
from tests.bridge.logs import fill, records_of
from tests.bridge.processes import Process, Start
from tests.kafka.servers import restore
from tests.waiting import wait_until

pytestmark = pytest.mark.kafka

NEVER = ("--create-topics", "never")


def topics_of(kafka: KafkaServer) -> dict[str, int]:
    """Partitions by topic, without Kafka's own topics."""
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers, "log_level": 0})
    found = admin.list_topics(timeout=30).topics
    return {n: len(t.partitions) for n, t in found.items() if not n.startswith("__")}


@pytest.fixture
def unknown(kafka: KafkaServer) -> str:
    """The name of a topic that is missing."""
    restore(kafka)
    return f"unknown-{uuid.uuid4().hex[:8]}"


def created_lines(process: Process, topic: str) -> list[str]:
    lines = map(json.loads, process.stderr.splitlines())
    return [x["message"] for x in lines if f"topic {topic} was not there, and" in x["message"]]


def test_a_missing_topic_is_created_with_the_clusters_defaults_and_logged_once(
    kafka: KafkaServer, log: Path, start: Start, unknown: str
) -> None:
    fill(log, 100)
    process = start(unknown, "--drain")
    assert process.end() == 0
    (line,) = created_lines(process, unknown)
    assert line == (
        f"topic {unknown} was not there, and the cluster has created it, with 3 partitions and "
        f"replication factor 1; --create-topics=never waits for a topic instead"
    )
    process = start(unknown, "--drain")
    assert process.end() == 0
    assert created_lines(process, unknown) == []
    assert topics_of(kafka)[unknown] == 3
    assert_arrived(records_of(log), committed_in(kafka, unknown, 3), topic=unknown)


def test_missing_topics_that_are_never_created_are_waited_for_and_named(
    kafka: KafkaServer, log: Path, start: Start, unknown: str
) -> None:
    """The topic of cursor records, and then that of the records."""
    cursors = f"{unknown}-cursors"
    fill(log, 100)
    before = topics_of(kafka)
    process = start(unknown, *EXACTLY, *NEVER, "--cursor-topic", cursors)
    never = "and --create-topics=never creates none"
    process.until(lambda s: f"no topic '{cursors}', {never}" in str(s["error"]))
    assert topics_of(kafka) == before
    kafka.create_topic(cursors, 1, {"cleanup.policy": "compact"})
    process.until(lambda s: s["reachable"] and s["state"] != "backing_off")
    time.sleep(1.0)  # the topic is looked for now
    assert topics_of(kafka).keys() == before.keys() | {cursors}
    kafka.create_topic(unknown)
    process.until(lambda s: s["acknowledged"] == 100)
    assert process.terminate() == 0
    assert created_lines(process, unknown) == []
    assert_arrived(records_of(log), committed_in(kafka, unknown), topic=unknown)


@pytest.mark.parametrize("creates", [(), NEVER], ids=["auto", "never"])
def test_a_topic_that_collides_with_another_one_is_waited_for_with_that_reason(
    kafka: KafkaServer, log: Path, start: Start, unknown: str, creates: tuple[str, ...]
) -> None:
    """Kafka's metrics show . as _, so it creates no a_b beside a.b, and answers only that there is none."""
    there, wanted = f"{unknown}.a_b", f"{unknown}_a.b"
    kafka.create_topic(there)
    fill(log, 10)
    process = start(wanted, *creates)
    named = f"its name collides with that of topic '{there}'"
    status = process.until(lambda s: named in str(s["error"]))
    assert f"there is no topic '{wanted}'" in status["error"]
    assert status["acknowledged"] == 0
    assert wanted not in topics_of(kafka)
    assert process.terminate() == 0


def test_no_command_that_looks_creates_the_topic_that_it_looks_at(
    kafka: KafkaServer, log: Path, bridge: Start, unknown: str
) -> None:
    fill(log, 10)
    before = topics_of(kafka)
    servers = ("--bootstrap-servers", kafka.bootstrap_servers)
    assert bridge("seek", log, "--to", f"kafka:{unknown}/0@5", *servers).end() == 6
    ranged = ("--from", f"kafka:{unknown}/0@0", "--to", "latest")
    assert bridge("replay", log, *ranged, *servers).end() == 6
    assert bridge("replay", log, "--from", "0", "--to", "latest", "--dry-run", "--topic", unknown,
                  *servers).end() == 0  # fmt: skip  # a command line
    assert topics_of(kafka) == before


@pytest.mark.parametrize("creates", ["auto", "never"])
def test_a_buffer_creates_a_missing_topic_only_where_it_may(
    kafka: KafkaServer, tmp_path: Path, unknown: str, creates: str, caplog: pytest.LogCaptureFixture
) -> None:
    provider = KafkaProvider(kafka.bootstrap_servers, create_topics=creates)
    with Buffer(provider, tmp_path / "waiting", mode="buffer") as buffer:
        buffer.send(unknown, b"hello")
        if creates == "never":
            wait_until(lambda: "--create-topics=never" in str(buffer.status().error))
            assert unknown not in topics_of(kafka)
            kafka.create_topic(unknown)
        while not buffer.status().delivered:
            time.sleep(0.05)
    assert topics_of(kafka)[unknown] == (3 if creates == "auto" else 1)
    said = [r for r in caplog.records if f"topic {unknown} was not there" in r.getMessage()]
    assert len(said) == (creates == "auto")
