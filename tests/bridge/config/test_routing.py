"""Records go where Java's clients and librdkafka would send their keys, or where rules say, and
always the same way."""

from __future__ import annotations

import operator
import random
import sys

import pytest
from confluent_kafka import Producer

from bridge.config.routing import (
    Destination,
    Routing,
    Rule,
    clusters_of,
    partition_of,
    partition_of_address,
    partition_of_key,
)
from bridge.kafka.embedded import EmbeddedBroker


def test_a_key_goes_where_librdkafkas_murmur2_partitioner_sends_it() -> None:
    chance = random.Random(1)
    keys = [chance.randbytes(n % 40) for n in range(400)] + [
        b"",
        b"\0",
        b"\xff" * 7,
        "ключ".encode(),
    ]
    found: list[tuple[bytes, int]] = []
    with EmbeddedBroker() as broker:
        broker.create_topic("t", 7)
        producer = Producer(
            {
                "bootstrap.servers": broker.bootstrap_servers,
                "partitioner": "murmur2",
                "log_level": 0,
            }
        )
        for key in keys:
            producer.produce(
                "t", b"", key, on_delivery=lambda _, m, key=key: found.append((key, m.partition()))
            )
        assert producer.flush(20) == 0
    assert sorted(key for key, _ in found) == sorted(keys)
    assert found
    for key, partition in found:
        assert partition == partition_of_key(key, 7)


def test_records_without_a_key_all_go_to_one_partition_that_depends_on_the_log_alone() -> None:
    uuids = [random.Random(i).randbytes(16) for i in range(64)]
    chosen = [partition_of(None, uuid, 8) for uuid in uuids]
    assert set(chosen) == set(range(8))  # many logs spread over all


def test_an_empty_key_is_a_key() -> None:
    assert {partition_of(b"", random.Random(i).randbytes(16), 8) for i in range(64)} == {
        partition_of_key(b"", 8)
    }


# --- round-robin ----------------------------------------------------------------------------


@pytest.mark.parametrize("step", [1, 8, 4096])
@pytest.mark.parametrize("partitions", [2, 3, 12])
def test_round_robin_is_even_however_addresses_lie(step: int, partitions: int) -> None:
    count = 12_000
    chosen = [partition_of_address(8192 + step * i, partitions) for i in range(count)]
    for partition in range(partitions):
        share = chosen.count(partition) * partitions / count
        assert 0.85 < share < 1.15


def test_round_robin_is_fixed_for_ever() -> None:
    """A restart of a later release must find each record where this one has sent it."""
    addresses = [0, 1, 8, 8192, 8193, 1 << 40, (1 << 63) - 8]
    assert [partition_of_address(a, 12) for a in addresses] == [5, 2, 6, 6, 2, 10, 10]


# --- rules ----------------------------------------------------------------------------------


def test_without_rules_the_record_s_topic_goes_before_the_default_and_that_before_the_log_s() -> (
    None
):
    routing = Routing("default")
    routing.of_log("log's")
    assert routing.of("own") == Destination("own", "key")
    assert routing.of(None) == routing.of("") == Destination("default", "key")
    routing = Routing()
    assert routing.of(None) == Destination(None, "key")
    routing.of_log("log's")
    assert routing.of(None) == Destination("log's", "key")


def test_the_first_rule_that_matches_decides_and_leaves_open_what_it_does_not_say() -> None:
    rules = [
        Rule(log="web/*", record_topic="click*", topic="clicks", partition="round-robin"),
        Rule(log_topic="audit", partition=0),
        Rule(record_topic="*", partition=3),
    ]
    web = Routing("rest", rules, log="web/host-1/a")
    assert web.of("click.left") == Destination("clicks", "round-robin")
    assert web.of("other") == Destination("other", 3)
    assert web.of(None) == Destination("rest", "key")
    app = Routing("rest", rules, log="app")
    assert app.of("click.left") == Destination("click.left", 3)
    app.of_log("audit")
    assert app.of("click.left") == Destination("click.left", 0)
    assert app.of(None) == Destination("rest", 0)


def test_patterns_tell_upper_from_lower_case_and_need_something_to_match() -> None:
    rules = [Rule(record_topic="A*", topic="a"), Rule(log_topic="*", topic="b")]
    routing = Routing(None, rules)
    assert routing.of("ax") == Destination("ax", "key")
    assert routing.of("Ax") == Destination("a", "key")
    assert routing.of(None) == Destination(None, "key")


def test_each_record_of_a_log_is_one_cluster_s_and_no_other_s() -> None:
    rules = [
        Rule(record_topic="pay.*", cluster="safe"),
        Rule(log="lab/*", cluster="lab", topic="lab"),
        Rule(record_topic="x", topic="y"),
    ]
    for log in ("lab/1", "app"):
        names = clusters_of(rules, log, None, "main")
        assert names == ({"safe", "lab"} if log == "lab/1" else {"safe", "main"})
        parts = [
            Routing("rest", rules, log=log, cluster=name, default_cluster="main")
            for name in sorted(names)
        ]
        for topic in ("pay.in", "x", "z", None):
            assert sum(part.of(topic) is not None for part in parts) == 1


def test_a_routing_remembers_a_bounded_number_of_topics() -> None:
    routing = Routing(None, [Rule(record_topic="*7", topic="sevens")])
    topics = [f"t{number}" for number in range(10_000)]
    unknown = [sys.getrefcount(topic) for topic in topics]
    for topic in topics:
        expected = "sevens" if topic.endswith("7") else topic
        assert routing.of(topic) == Destination(expected, "key")
    known = [sys.getrefcount(topic) for topic in topics]
    assert 0 < sum(map(operator.gt, known, unknown)) <= 4096
