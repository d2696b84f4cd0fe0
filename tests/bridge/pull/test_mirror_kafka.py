"""mirror: from a real Kafka to another cluster, and never back to where a record came from."""

from __future__ import annotations

import time

import pytest
from confluent_kafka import Producer

from bridge.kafka.catalog import Catalog
from bridge.pull.origin import HEADER_NAME
from tests.bridge.brokers import consume
from tests.bridge.foreign import Foreign, produce_foreign
from tests.bridge.processes import Start
from tests.waiting import wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.xdist_group("kafka 2")]


@pytest.fixture
def mirror(bridge, kafka) -> Start:
    """Starts `python -m bridge mirror` of a topic to other servers."""
    servers = ("--from-servers", kafka.bootstrap_servers, "--to-servers")
    return lambda to, topic, log, *more: bridge(
        "mirror", "--topic", topic, "--log", log, *servers, to, *more
    )


def test_a_mirror_copies_all_but_what_came_from_the_destination(
    kafka, topic, broker, tmp_path, mirror
):
    name, log = topic(), tmp_path / "log"
    broker.create_topic(name, 1)
    destination = Catalog(broker.bootstrap_servers, {}).cluster_id()
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    for number in range(100):
        came = b"%b/a/0/0" % (destination if number % 10 == 0 else "elsewhere").encode()
        producer.produce(name, b"%d" % number, headers=[(HEADER_NAME, came)])
    producer.flush(30)
    process = mirror(broker.bootstrap_servers, name, log, "--drain")
    assert process.end() == 0, process.stderr
    found = [message.value for message in consume(broker.bootstrap_servers, name, 1)]
    assert found == [b"%d" % number for number in range(100) if number % 10]

    process = mirror(broker.bootstrap_servers, name, log)
    producer.produce(name, b"later")
    producer.flush(30)
    wait_until(lambda: consume(broker.bootstrap_servers, name, 1)[-1].value == b"later")
    assert process.terminate(20) == 0, process.stderr


def test_a_bounded_mirror_waits_while_the_destination_is_away_and_loses_nothing(
    kafka, topic, broker, tmp_path, mirror
):
    name, log, bound = topic(), tmp_path / "log", 2_000_000
    broker.create_topic(name, 1)
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})

    def send(first: int, end: int) -> None:
        for number in range(first, end):
            producer.produce(name, b"%04d" % number * 250)
        producer.flush(30)

    def arrived() -> list[int]:
        return [int(each.value[:4]) for each in consume(broker.bootstrap_servers, name, 1)]

    send(0, 10)
    process = mirror(broker.bootstrap_servers, name, log, "--max-bytes", str(bound))
    wait_until(lambda: arrived() == [*range(10)])
    broker.set_down()
    send(10, 4000)
    wait_until(lambda: "full: " in process.stderr)
    assert sum(slab.stat().st_size for slab in log.glob("*.slab")) < 2 * bound
    broker.set_up()
    wait_until(lambda: len(arrived()) == 4000)
    assert arrived() == [*range(4000)]
    assert process.terminate(20) == 0, process.stderr
    assert "4,000 acknowledged, 0 pending" in process.stderr


def test_a_mirror_sends_what_has_no_usable_time_with_the_present_one(
    kafka, topic, broker, tmp_path, mirror
):
    """The destination's retention would delete a record of 1970 at once."""
    name, log = topic(config={"message.timestamp.after.max.ms": str(2**63 - 1)}), tmp_path / "log"
    broker.create_topic(name, 1)
    destination = Catalog(broker.bootstrap_servers, {}).cluster_id()
    came = (HEADER_NAME.encode(), f"{destination}/a/0/0".encode())
    records = [
        Foreign(b"none", timestamp_ms=-1),
        Foreign(b"nanoseconds", timestamp_ms=1_700_000_000_000_000_000),
        Foreign(b"a name", [(b"\xff", b"1"), (b"n", b"2")], 1_700_000_000_000),
        Foreign(b"came from there", [(b"\xff", b"1"), came], 1_700_000_000_000),
    ]
    produce_foreign(kafka.bootstrap_servers, name, records)
    before_ms = time.time_ns() // 1_000_000
    process = mirror(broker.bootstrap_servers, name, log, "--drain")
    assert process.end() == 0, process.stderr
    found = consume(broker.bootstrap_servers, name, 1)
    assert [message.value for message in found] == [each.value for each in records[:3]]
    assert all(m.timestamp_us is None and m.timestamp_ms >= before_ms for m in found[:2])
    assert (found[2].timestamp_ms, found[2].headers[0]) == (1_700_000_000_000, ("n", b"2"))


def test_a_mirror_of_a_cluster_to_itself_is_refused(kafka, topic, tmp_path, mirror):
    process = mirror(kafka.bootstrap_servers, topic(), tmp_path / "log")
    assert process.end(30) == 2
    assert "are one cluster" in process.stderr
    assert not (tmp_path / "log").exists()
