"""Three real nodes, of which one that leads partitions is killed: lanes of the others flow on, and
in the end nothing is lost or repeated, in order. 90 s on busy cores, so with --long."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from aolog import Reader, Writer
from bridge.deliver.delivery import AT_LEAST_ONCE, EXACTLY_ONCE
from bridge.deliver.status import Status
from bridge.kafka.cursor_record import CursorName
from bridge.kafka.partition import partition_of_key
from bridge.supervise.status import state_of
from bridge.testing.apache_kafka import KafkaCluster, KafkaServer, KafkaUnavailable
from tests.bridge.against_kafka import committed_in
from tests.bridge.conftest import (
    Run,
    append,
    assert_arrived,
    consume,
    records_of,
)

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.slow,
    pytest.mark.timeout(300),
    pytest.mark.xdist_group("kafka"),  # a file of its own, but the machine is the same
]

PARTITIONS = 3


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaCluster]:
    try:
        cluster = KafkaCluster(tmp_path_factory.mktemp("cluster"))
    except KafkaUnavailable as error:
        pytest.skip(str(error))
    with cluster:
        yield cluster


def in_place(cluster: KafkaCluster) -> tuple[str, int]:
    """A topic in which each node leads a partition, and the partition whose leader is to die: not
    the one that is the controller too."""
    name = f"three-{uuid.uuid4().hex[:8]}"
    cluster.create_topic(name, [[1, 2, 3], [2, 3, 1], [3, 1, 2]])
    controller = cluster.controller  # once: it may move, and then each node could be it
    return name, next(p for p, node in enumerate((1, 2, 3)) if node != controller)


@pytest.mark.parametrize("delivery", [AT_LEAST_ONCE, EXACTLY_ONCE])
def test_a_leader_is_killed_and_nothing_is_lost_or_repeated(
    cluster: KafkaCluster, log: Path, forward: Callable[..., Run], delivery: str
) -> None:
    name, dying = in_place(cluster)
    victim = dying + 1
    run = forward(
        log_with(log, range(2_000)),
        topic=name,
        bootstrap_servers=cluster.bootstrap_servers,
        delivery=delivery,
    )
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
    assert cluster.leaders(name)[dying] not in {victim, -1}
    cluster.nodes[victim].start()
    assert run.stop().lag_records == 0
    messages = (
        committed_in(cluster, name, PARTITIONS)  # type: ignore[arg-type]  # it has the one name
        if delivery == EXACTLY_ONCE
        else consume(cluster.bootstrap_servers, name, PARTITIONS)
    )
    assert_arrived(records_of(log), messages, topic=name)


def test_while_a_partition_has_no_leader_the_others_flow_on(
    cluster: KafkaCluster, log: Path, forward: Callable[..., Run]
) -> None:
    """Without replicas nobody leads a partition until its node is back."""
    name, dying = in_place(cluster)
    victim = dying + 1
    name = f"{name}-alone"
    cluster.create_topic(name, [[1], [2], [3]])
    run = forward(
        log_with(log, range(2_000)), topic=name, bootstrap_servers=cluster.bootstrap_servers
    )
    run.until(lambda s: s.acknowledged >= 2_000)
    cluster.nodes[victim].kill()
    with Writer(log) as writer:
        append(writer, range(2_000, 8_000))
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


@pytest.mark.parametrize("how", ["kill", "pause"])
@pytest.mark.parametrize("delivery", [AT_LEAST_ONCE, EXACTLY_ONCE])
def test_a_lane_whose_leader_does_not_answer_is_named_within_ten_seconds(
    cluster: KafkaCluster,
    log: Path,
    forward: Callable[..., Run],
    caplog: pytest.LogCaptureFixture,
    delivery: str,
    how: str,
) -> None:
    """Without replicas; and not the lanes whose leaders answer, which exactly once delays too."""
    name = f"three-{uuid.uuid4().hex[:8]}"
    cluster.create_topic(name, [[1], [2], [3]])
    servers = cluster.bootstrap_servers
    run = forward(
        log_with(log, range(300)), topic=name, bootstrap_servers=servers, delivery=delivery
    )
    run.until(lambda s: s.acknowledged == 300)
    others = {cluster.controller}
    if delivery == EXACTLY_ONCE:
        others = {coordinator_of(cluster, log)}  # of which the transaction is named
    victim = min({1, 2, 3} - others)
    node = cluster.nodes[victim]

    def named(status: Status) -> list[int]:
        return [s["partition"] for s in status.stalled if s["topic"] == name]

    lane = f"{name}/{victim - 1} for "
    with caplog.at_level("INFO", "bridge"):
        with away(node, how):
            log_with(log, range(300, 600))
            run.until(lambda s: s.outstanding)
            begun_s = time.monotonic()
            status = run.until(named, 15.0)
            assert time.monotonic() - begun_s < 10.5
            assert named(status) == [victim - 1]
            (stall,) = (s for s in status.stalled if s["topic"] == name)
            assert f"{node.bootstrap_servers}, node {victim}" in stall["leader"]
            assert 7 <= stall["seconds"] < 11
            assert state_of(status) == "blocked"
            assert name in (status.error or "")
            assert lane in caplog.text
            time.sleep(10)
            assert named(run.statuses[-1]) == [victim - 1]
        status = run.until(lambda s: s.acknowledged == 600 and not s.stalled, 60.0)
        assert status.error is None
    over = [r.message for r in caplog.records if getattr(r, "event", "") == "stall_over"]
    assert any(lane in line for line in over)
    assert run.stop().lag_records == 0


@pytest.mark.parametrize("delivery", [AT_LEAST_ONCE, EXACTLY_ONCE])
def test_too_few_replicas_in_sync_are_a_reason_while_it_waits(
    cluster: KafkaCluster, log: Path, forward: Callable[..., Run], delivery: str
) -> None:
    controller = cluster.controller
    victim = next(node for node in (1, 2, 3) if node != controller)
    leader = next(node for node in (1, 2, 3) if node != victim)
    name = f"three-{uuid.uuid4().hex[:8]}"
    cluster.create_topic(name, [[leader, victim]])
    servers = cluster.bootstrap_servers
    run = forward(
        log_with(log, range(100)), topic=name, bootstrap_servers=servers, delivery=delivery
    )
    run.until(lambda s: s.acknowledged == 100)
    cluster.nodes[victim].kill()
    log_with(log, range(100, 200))
    status = run.until(lambda s: "NOT_ENOUGH_REPLICAS" in (s.error or ""))
    assert f"{name}/0 has 1 in sync, and min.insync.replicas=2" in (status.error or "")
    assert (name, 0) in [(s["topic"], s["partition"]) for s in status.stalled]
    cluster.nodes[victim].start()
    run.until(lambda s: s.acknowledged == 200 and s.error is None)
    assert run.stop().lag_records == 0


def coordinator_of(cluster: KafkaCluster, log: Path) -> int:
    """The node that keeps the state of the bridge's transactions, as Kafka finds it."""
    with Reader(log) as reader:
        assert reader.topic_uuid is not None
        owner = CursorName(reader.topic_uuid, "bridge").transactional_id
    number = 0
    for character in owner:
        number = (31 * number + ord(character)) & 0xFFFFFFFF
    number = abs(number - (number >> 31 << 32))
    leaders = cluster.leaders("__transaction_state")
    return leaders[number % len(leaders)]


@contextmanager
def away(node: KafkaServer, how: str) -> Iterator[None]:
    """Killed, or paused."""
    node.kill() if how == "kill" else node.pause()
    try:
        yield
    finally:
        node.restore()


def log_with(log: Path, numbers: range) -> Path:
    with Writer(log) as writer:
        append(writer, numbers)
    return log
