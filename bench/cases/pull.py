"""pull: what it costs to also check, frame and write a topic's records to a log.

Peers are bare loops of confluent-kafka over the same topic that read each value: `poll` one by one, and
`consume` in large batches, the fastest way. All three fetch with the same settings; with the client's
defaults, which wait a second on a full queue, the poll loop takes five times as long. Timed from the
connection to the cluster until the last record. Only Apache Kafka has the topic ids that a pull needs.
"""

from __future__ import annotations

import time
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from bench.bridges import KAFKA, without_kafka
from bench.measure import Contender, Group, Promise, Target, Wrong
from bench.payloads import prove

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from bench.cases.plan import Plan
    from bench.measure import Skipped
    from bench.payloads import Proof
    from bridge.testing.apache_kafka.server import KafkaServer

__all__ = ["CONSUME", "POLL", "PULL", "group_of", "groups"]

POLL, CONSUME, PULL = "bare poll loop", "bare consume loop", "aolog-bridge pull"
_RATIO_MIN = 0.6  # of the poll loop's rate
_CONSUME_RATIO_MAX = 1.6  # of the consume loop's time
_VALUE_BYTES = 100
_PARTITIONS = 4
_BATCH = 5_000
_LONGER = 5  # times the records of other cases: connecting and the last sync take 50 ms
_SOON_S = 60.0


def groups(plan: Plan) -> Iterator[Group]:
    if missing := without_kafka(plan.size):
        yield _group([], missing)
        return
    from bridge.testing.apache_kafka.server import KafkaServer

    with plan.fixture() as directory, KafkaServer(Path(directory, "kafka")) as server:
        yield group_of(plan, server, "bench")


def group_of(plan: Plan, server: KafkaServer, topic: str) -> Group:
    """The group, with a new topic of that name on the server."""
    values = plan.values(_VALUE_BYTES).all * _LONGER
    records, proof = len(values), prove(values)
    server.create_topic(topic, _PARTITIONS)
    _fill(server.bootstrap_servers, topic, values)
    given = server.bootstrap_servers, topic, records
    peer, ours = Promise("-", "-"), Promise("OS", "xxh3 a batch")
    return _group(
        [
            Contender(POLL, peer, records, partial(_bare, *given, 1), None, proof),
            Contender(CONSUME, peer, records, partial(_bare, *given, _BATCH), None, proof),
            Contender(PULL, ours, records, partial(_pull, *given), _pulled, proof),
        ],
        [],
    )


def _group(contenders: list[Contender], missing: list[Skipped]) -> Group:
    return Group(
        "pull",
        f"from {KAFKA}, {_PARTITIONS} partitions, {_VALUE_BYTES}-byte values",
        "from the connection to the cluster until the last record is taken",
        _VALUE_BYTES,
        contenders,
        (POLL, CONSUME),
        missing,
        targets=(
            Target(f"the time of {POLL}", PULL, (POLL,), 1 / _RATIO_MIN),
            Target(f"the time of {CONSUME}", PULL, (CONSUME,), _CONSUME_RATIO_MAX),
        ),
    )


def _fill(servers: str, topic: str, values: list[bytes]) -> None:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": servers, "linger.ms": "50"})
    for i, value in enumerate(values):
        while True:
            try:
                producer.produce(topic, value, partition=i % _PARTITIONS)
                break
            except BufferError:
                producer.poll(0.1)
    producer.flush(_SOON_S)


@contextmanager
def _bare(
    servers: str, topic: str, records: int, batch: int, _: str
) -> Iterator[Callable[[], int]]:
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "bench",
            "enable.auto.commit": False,
            "fetch.queue.backoff.ms": 10,  # as a pull: the default waits a second on a full queue
            "log_level": 0,
        }
    )

    def work() -> int:
        consumer.assign([TopicPartition(topic, number, 0) for number in range(_PARTITIONS)])
        poll, consume = consumer.poll, consumer.consume
        taken, until_s = 0, time.monotonic() + _SOON_S
        while taken < records:
            if batch == 1:
                message = poll(1.0)
                arrived = [] if message is None else [message]
            else:
                arrived = consume(batch, timeout=0.1)
            for message in arrived:
                if message.error() is not None or message.value() is None:
                    raise Wrong(f"{message.error()}")
            taken += len(arrived)
            if not arrived and time.monotonic() > until_s:
                raise Wrong(f"{taken} of {records} records arrived")
        return taken

    try:
        yield work
    finally:
        consumer.close()


@contextmanager
def _pull(servers: str, topic: str, records: int, directory: str) -> Iterator[Callable[[], int]]:
    from bridge.pull.pull_options import PullOptions
    from bridge.pull.puller import Puller

    puller = Puller(PullOptions(servers, (topic,), str(Path(directory, "log")), drain=True))

    def work() -> int:
        puller.run()
        if puller.status().pulled != records:
            raise Wrong(f"{puller.status()}")
        return records

    yield work


def _pulled(directory: str) -> Proof:
    """The log's values, in the order in which they were sent."""
    import aolog

    lanes: list[list[bytes]] = [[] for _ in range(_PARTITIONS)]
    with aolog.Reader(str(Path(directory, "log"))) as reader:
        for record in reader:
            (origin,) = [value for name, value in record.headers if name == "aolog-origin-kafka"]
            assert origin is not None
            assert record.value is not None
            lanes[int(origin.split(b"/")[2])].append(record.value)
    whole = [lanes[i % _PARTITIONS][i // _PARTITIONS] for i in range(sum(map(len, lanes)))]
    return prove(whole)
