"""Three real nodes, of which one that leads partitions is killed: lanes of the others flow on, and
in the end nothing is lost or repeated, in order. 90 s on busy cores, so with --long."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from aolog import Writer
from bridge.config.routing import partition_of_key
from bridge.testing.apache_kafka.cluster import KafkaCluster
from tests.bridge.against_kafka import committed_in
from tests.bridge.brokers import assert_arrived, consume
from tests.bridge.forwarders import Forward
from tests.bridge.logs import append, fill, records_of
from tests.kafka.plugin import started
from tests.waiting import wait_until

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.slow,
    pytest.mark.xdist_group("kafka"),  # a file of its own, but the machine is the same
]

PARTITIONS = 3


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaCluster]:
    with started(lambda: KafkaCluster(tmp_path_factory.mktemp("cluster"))) as cluster:
        yield cluster


def metadata(cluster: KafkaCluster) -> Any:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
    return admin.list_topics(timeout=5)


def controller_of(cluster: KafkaCluster) -> int:
    """The node whose death would cost an election too."""
    return int(metadata(cluster).controller_id)


def leaders(cluster: KafkaCluster, topic: str) -> list[int]:
    """Of each partition; -1 where there is none."""
    partitions = metadata(cluster).topics[topic].partitions
    return [partitions[number].leader for number in sorted(partitions)]


def create_topic(cluster: KafkaCluster, name: str, replicas: list[list[int]]) -> None:
    """A partition for each list of nodes, the preferred leader first; on return all lead."""
    topic = NewTopic(name, num_partitions=len(replicas), replica_assignment=replicas)
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
    admin.create_topics([topic], operation_timeout=30)[name].result(30)

    def all_lead() -> bool:
        with suppress(KafkaException, KeyError):  # a node may not know of it yet
            return [ids[0] for ids in replicas] == leaders(cluster, name)
        return False

    wait_until(all_lead)


def in_place(cluster: KafkaCluster) -> tuple[str, int]:
    """A topic in which each node leads a partition, and the partition whose leader is to die: not
    the one that is the controller too."""
    name = f"three-{uuid.uuid4().hex[:8]}"
    create_topic(cluster, name, [[1, 2, 3], [2, 3, 1], [3, 1, 2]])
    controller = controller_of(cluster)  # once: it may move, and then each node could be it
    return name, next(p for p, node in enumerate((1, 2, 3)) if node != controller)


@pytest.mark.parametrize("delivery", ["at_least_once", "exactly_once"])
def test_a_leader_is_killed_and_nothing_is_lost_or_repeated(
    cluster: KafkaCluster, log: Path, forward: Forward, delivery: str
) -> None:
    name, dying = in_place(cluster)
    victim = dying + 1
    fill(log, 2_000)
    run = forward(topic=name, bootstrap_servers=cluster.bootstrap_servers, delivery=delivery)
    run.until(lambda s: s.acknowledged >= 2_000)
    with Writer(log) as writer:
        append(writer, range(2_000, 4_000))
        writer.flush()
        cluster.nodes[victim].kill()
        for begin in range(4_000, 12_000, 500):
            append(writer, range(begin, begin + 500))
            writer.flush()
            time.sleep(0.05)
    run.until(lambda s: s.acknowledged >= 12_000)
    assert leaders(cluster, name)[dying] not in {victim, -1}
    cluster.nodes[victim].start()
    assert run.stop().lag_records == 0
    messages = (
        committed_in(cluster, name, PARTITIONS)  # type: ignore[arg-type]  # it has the one name
        if delivery == "exactly_once"
        else consume(cluster.bootstrap_servers, name, PARTITIONS)
    )
    assert_arrived(records_of(log), messages, topic=name)


def test_while_a_partition_has_no_leader_the_others_flow_on(
    cluster: KafkaCluster, log: Path, forward: Forward
) -> None:
    """Without replicas nobody leads a partition until its node is back."""
    name, dying = in_place(cluster)
    victim = dying + 1
    name = f"{name}-alone"
    create_topic(cluster, name, [[1], [2], [3]])
    fill(log, 2_000)
    run = forward(topic=name, bootstrap_servers=cluster.bootstrap_servers)
    run.until(lambda s: s.acknowledged >= 2_000)
    cluster.nodes[victim].kill()
    fill(log, range(2_000, 8_000))
    records = records_of(log)
    waiting = [r for r in records[2_000:] if partition_of_key(r.key or b"", PARTITIONS) == dying]
    assert 0 < len(waiting) < 6_000
    status = run.until(lambda s: s.acknowledged >= 8_000 - len(waiting))
    assert status.acknowledged == 8_000 - len(waiting)
    assert status.committed <= waiting[0].address
    assert run.alive
    cluster.nodes[victim].start()
    run.until(lambda s: s.acknowledged == 8_000)
    assert run.stop().lag_records == 0
    assert_arrived(records, consume(cluster.bootstrap_servers, name, PARTITIONS), topic=name)


@pytest.mark.parametrize("delivery", ["at_least_once", "exactly_once"])
def test_too_few_replicas_in_sync_are_a_reason_while_it_waits(
    cluster: KafkaCluster, log: Path, forward: Forward, delivery: str
) -> None:
    controller = controller_of(cluster)
    victim = next(node for node in (1, 2, 3) if node != controller)
    leader = next(node for node in (1, 2, 3) if node != victim)
    name = f"three-{uuid.uuid4().hex[:8]}"
    create_topic(cluster, name, [[leader, victim]])
    fill(log, 100)
    run = forward(topic=name, bootstrap_servers=cluster.bootstrap_servers, delivery=delivery)
    run.until(lambda s: s.acknowledged == 100)
    cluster.nodes[victim].kill()
    fill(log, range(100, 200))
    status = run.until(lambda s: "NOT_ENOUGH_REPLICAS" in (s.error or ""))
    assert f"{name}/0 has 1 in sync, and min.insync.replicas=2" in (status.error or "")
    assert (name, 0) in [(s["topic"], s["partition"]) for s in status.stalled]
    cluster.nodes[victim].start()
    run.until(lambda s: s.acknowledged == 200 and s.error is None)
    assert run.stop().lag_records == 0
