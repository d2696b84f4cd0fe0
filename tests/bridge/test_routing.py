"""Records go where Java's clients and librdkafka would send their keys, and always the same way."""

from __future__ import annotations

import random

import pytest
from confluent_kafka import Producer

from bridge.embedded import EmbeddedBroker
from bridge.routing import murmur2, partition_of, partition_of_key, partition_without_key


# org.apache.kafka.common.utils.UtilsTest, testMurmur2
@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_murmur2_is_javas(data: bytes, expected: int) -> None:
    assert murmur2(data) == expected & 0xFFFFFFFF


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


@pytest.mark.parametrize("partitions", [1, 2, 3, 12, 1000])
def test_a_partition_is_one_of_those_there_are(partitions: int) -> None:
    chance = random.Random(2)
    for _ in range(300):
        key = chance.choice([None, chance.randbytes(chance.randrange(30))])
        assert 0 <= partition_of(key, chance.randbytes(16), partitions) < partitions


def test_records_without_a_key_all_go_to_one_partition_that_depends_on_the_log_alone() -> None:
    uuids = [random.Random(i).randbytes(16) for i in range(64)]
    chosen = [partition_of(None, uuid, 8) for uuid in uuids]
    assert chosen == [partition_without_key(uuid, 8) for uuid in uuids]
    assert set(chosen) == set(range(8))  # many logs spread over all


def test_an_empty_key_is_a_key() -> None:
    assert {partition_of(b"", random.Random(i).randbytes(16), 8) for i in range(64)} == {
        partition_of_key(b"", 8)
    }
