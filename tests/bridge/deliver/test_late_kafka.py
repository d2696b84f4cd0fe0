"""A request to end a transaction arrives when the next one is under way, and ends nothing. And a link
that is too slow for a transaction as large as it may be."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka import KafkaError

from bridge.testing.apache_kafka.ports import free_ports
from bridge.testing.apache_kafka.server import KafkaServer
from tests.bridge.against_kafka import EXACTLY, committed_in
from tests.bridge.brokers import assert_arrived
from tests.bridge.forwarders import WAITS, Forward
from tests.bridge.logs import fill, records_of
from tests.bridge.processes import Process, Start, running
from tests.kafka.late import END_TXN, INIT_PRODUCER_ID, LateProxy

pytestmark = pytest.mark.kafka

COUNT = 1_500
OTHER_EPOCH = {KafkaError.INVALID_PRODUCER_EPOCH, 90}  # or PRODUCER_FENCED, which has no name here
# A transaction is nearly always open.
SLOW = (*EXACTLY, "--transaction-records", "100", "--commit-seconds", "0.4")
# The client asks again after a second of silence, or soon after a connection that broke.
WAYS = {
    "silent": (False, ("-X", "socket.timeout.ms=1000")),
    "closed": (True, ("-X", "log.connection.close=false")),
}


class Behind(NamedTuple):
    """A server with a topic, and the proxy through which a bridge reaches it."""

    server: KafkaServer
    topic: str
    proxy: LateProxy
    start: Start


@pytest.fixture(scope="module")
def server(
    kafka: KafkaServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[KafkaServer, LateProxy, str]]:
    """Of its own, since its clients are told to connect to the proxy. kafka: skips where none can
    be had."""
    (port,) = free_ports(1)
    at = f"127.0.0.1:{port}"
    directory = tmp_path_factory.mktemp("late") / "kafka"
    listeners = {"LATE": "PLAINTEXT"}
    config = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": 500}  # by default 10 s
    with (
        KafkaServer(directory, config, listeners, advertised={"LATE": at}) as server,
        closing(LateProxy(at, server.bootstrap_of("LATE"))) as proxy,
    ):
        yield server, proxy, at


@pytest.fixture
def behind(server: tuple[KafkaServer, LateProxy, str], log: Path, bridge: Start) -> Behind:
    kafka, proxy, at = server
    topic = f"late-{log.parent.name}"
    kafka.create_topic(topic, 3)
    fill(log, COUNT)

    def start(*arguments: str) -> Process:
        return running(bridge, log, topic, at, *SLOW, *arguments)

    proxy.holds.clear()
    proxy.delay_s.clear()
    proxy.bytes_per_s = math.inf
    proxy.seen.clear()
    return Behind(kafka, topic, proxy, start)


def ended(process: Process, behind: Behind, log: Path) -> None:
    process.until(lambda s: s["lag_records"] == 0, 120)
    assert process.terminate(30) == 0
    topic = behind.topic
    assert_arrived(records_of(log), committed_in(behind.server, topic, 3), topic=topic)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("before", [0, 300], ids=["abort", "commit"])
def test_an_end_that_arrives_late_ends_no_other_transaction(
    behind: Behind, log: Path, before: int, way: str
) -> None:
    """The first transaction is the proof that the cluster isolates them, which is aborted."""
    proxy, (closes, settings) = behind.proxy, WAYS[way]
    if not before:
        proxy.hold(END_TXN, closes=closes)
    process = behind.start(*settings)
    if before:
        process.until(lambda s: s["acknowledged"] >= before)
        proxy.hold(END_TXN, closes=closes)
    assert proxy.holds.wait(60)
    ends = proxy.seen[END_TXN]
    process.until(lambda _: proxy.seen[END_TXN] >= ends + 4, 60)  # it was asked for again
    assert proxy.release() in OTHER_EPOCH
    ended(process, behind, log)


def test_a_late_answer_to_a_single_request_is_no_failure(behind: Behind, log: Path) -> None:
    """Each end is on its way for longer than a client waits by default until it asks again: 0.1 s. The
    bridge's waits for a second, so a machine may stall for half of that."""
    proxy = behind.proxy
    proxy.delay_s[END_TXN] = 0.15
    process = behind.start()
    process.until(lambda s: s["acknowledged"] > 0, 60)
    epochs = proxy.seen[INIT_PRODUCER_ID]  # a coordinator that loads yet is asked again
    ended(process, behind, log)
    assert proxy.seen[END_TXN] > COUNT / 100
    assert proxy.seen[INIT_PRODUCER_ID] == epochs


def test_a_link_on_which_a_transaction_takes_longer_than_its_timeout_still_delivers(
    behind: Behind, tmp_path: Path, forward: Forward, caplog: pytest.LogCaptureFixture
) -> None:
    log = tmp_path / "slow"
    fill(log, 60, size=1_000)
    behind.proxy.bytes_per_s = 16_000
    run = forward(
        log, topic=behind.topic, bootstrap_servers=behind.proxy.address, drain=True,
        delivery="exactly_once", settings={"transaction.timeout.ms": "3000"},
        waits=WAITS._replace(take_over_s=0.5),
    )  # fmt: skip  # one call
    run.end(120.0)
    assert_arrived(
        records_of(log), committed_in(behind.server, behind.topic, 3), topic=behind.topic
    )
    said = "and the cluster ends one after 3 s: the next one holds at most"
    assert said in caplog.text
    assert any(said in str(status.error) for status in run.statuses)
