"""A request to end a transaction arrives when the next one is under way, and ends nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import pytest
from confluent_kafka import KafkaError

from aolog import Writer
from tests.bridge.against_kafka import EXACTLY, committed_in
from tests.bridge.conftest import append, assert_arrived, records_of
from tests.kafka.late import END_TXN, LateProxy
from tests.kafka.server import KafkaServer, free_ports

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.bridge.conftest import Process

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]

TOPIC = "late"
# The client asks again after a second. A transaction is nearly always open.
SLOW = (*EXACTLY, "--transaction-records", "100", "--commit-seconds", "0.4",
        "-X", "socket.timeout.ms=1000")  # fmt: skip  # one thing
OTHER_EPOCH = {KafkaError.INVALID_PRODUCER_EPOCH, 90}  # or PRODUCER_FENCED, which has no name here


class Behind(NamedTuple):
    """A server, and the proxy through which its clients reach it."""

    server: KafkaServer
    proxy: LateProxy
    address: str


@pytest.fixture
def behind(kafka: KafkaServer, tmp_path: Path) -> Iterator[Behind]:
    """A server of its own. kafka: skips where none can be had."""
    (port,) = free_ports(1)
    at = f"127.0.0.1:{port}"
    with (
        KafkaServer(
            tmp_path / "kafka", listeners={"LATE": "PLAINTEXT"}, advertised={"LATE": at}
        ) as server,
        LateProxy(at, server.bootstrap_of("LATE")) as proxy,
    ):  # fmt: skip  # one thing
        server.create_topic(TOPIC, 3)
        yield Behind(server, proxy, at)


@pytest.mark.parametrize("behind_records", [0, 300], ids=["abort", "commit"])
def test_an_end_that_arrives_late_ends_no_other_transaction(
    behind: Behind, log: Path, bridge: Callable[..., Process], behind_records: int
) -> None:
    """The first transaction is the proof that the cluster isolates them, which is aborted."""
    with Writer(log) as writer:
        append(writer, range(3_000))
    if not behind_records:
        behind.proxy.hold(END_TXN)
    process = bridge(
        "run", "--log", log, "--topic", TOPIC, "--json", "--status-seconds", "0.05",
        "--bootstrap-servers", behind.address, *SLOW,
    )  # fmt: skip  # a command line
    if behind_records:
        process.until(lambda s: s["acknowledged"] >= behind_records)
        behind.proxy.hold(END_TXN)
    assert behind.proxy.holds.wait(60)
    done = process.statuses[-1]["acknowledged"] if process.statuses else 0
    process.until(lambda s: s["acknowledged"] >= done + 200, 60)  # it was asked for again
    assert behind.proxy.release() in OTHER_EPOCH
    process.until(lambda s: s["lag_records"] == 0, 120)
    assert process.terminate(30) == 0
    assert_arrived(records_of(log), committed_in(behind.server, TOPIC, 3), topic=TOPIC)
