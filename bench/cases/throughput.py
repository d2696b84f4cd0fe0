"""throughput: a backlog through the bridge, beside a producer that sends the same records.

The raw producer is confluent-kafka's with the bridge's settings, in a loop that does nothing else:
values, keys, partitions and timestamps are made before, `produce` is called with positional arguments, and
one record in 256 has a callback (in another row each record). In other rows each record also has the
bridge's header, made before too. The bridge reads the same records from a log, checks, stamps and routes
them, and keeps its cursor. The time begins with open connections, because connecting takes half a second,
and ends with the last acknowledgement.

Proof of work: the number of records between the ends of the partitions before and after. (The mock keeps
5 MiB of a partition, so the records cannot be read again.) The mock does not isolate transactions, so
exactly_once runs against Apache Kafka only.
"""

from __future__ import annotations

import time
from contextlib import contextmanager
from itertools import count
from operator import eq, ge
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import uuid4

from bench.bridges import KAFKA, LITTLE_IS_KEPT, MOCK, Destination, without_kafka
from bench.measure import Contender, Group, Promise, Skipped, Target, Wrong
from bench.payloads import Proof, make_payloads, prove

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from bench.cases.plan import Plan
    from bridge.config.run_options import Delivery

__all__ = ["BRIDGE", "RAW", "RAW_EACH", "RAW_STAMPED", "groups"]

RAW, RAW_EACH = "raw producer", "raw producer, a callback each"
RAW_STAMPED = "raw producer, the bridge's header"
BRIDGE = {
    "at_least_once": "aolog bridge, at_least_once",
    "exactly_once": "aolog bridge, exactly_once",
}
# Of the raw producer's time, by the records' length; and of the one's that sends the bridge's header.
_RATIO_MAX, _STAMPED_RATIO_MAX = (
    {100: 1.2, 1024: 1.3},
    {"at_least_once": 1 / 0.85, "exactly_once": 1 / 0.7},
)
_ROUND_TRIP_MS = 10
_ROUNDS = 6  # a broker that writes to its disk slows some
_PARTITIONS = 4
_KEYS = 1_000
_CALLBACK_EVERY = 256
_TRANSACTION_RECORDS = 10_000
_SOON_S = 60.0
_TIMESTAMP_US = 1_700_000_000_000_000
_VALUE_BYTES = (100, 1024)
# Times the records of other cases, so that all last half a second to two: a new connection of the
# bridge begins with little in flight, and needs a tenth of a second to reach its full rate.
_TIMES = 8


class _Records(NamedTuple):
    """The same records for all: in a log, and as arguments of a producer."""

    log: str
    values: list[bytes]
    keys: list[bytes]
    partitions: list[int]
    stamps: list[bytes]
    proof: Proof


def groups(plan: Plan) -> Iterator[Group]:
    """Shorter records first: beside large ones in the same heap each allocation is slower."""
    missing = without_kafka(plan.size)
    for length in sorted({*plan.record_bytes, *_VALUE_BYTES}):
        with plan.fixture() as directory:
            records = _records(plan, length, directory)
            for to in _clusters(directory, with_kafka=not missing):
                yield _group(to, length, records, missing)


def _group(to: Destination, length: int, records: _Records, skipped: list[Skipped]) -> Group:
    topic = f"throughput-{length}"
    to.cluster.create_topic(topic, _PARTITIONS)
    deliveries: list[Delivery] = ["at_least_once"]
    if to.isolates:
        deliveries.append("exactly_once")
    return Group(
        "throughput",
        f"to {to.name}, {length}-byte records",
        "with a connection that stands, until the last record is acknowledged",
        length,
        [
            _raw(RAW, to, topic, records, _CALLBACK_EVERY),
            _raw(RAW_EACH, to, topic, records, 1),
            _raw(RAW_STAMPED, to, topic, records, _CALLBACK_EVERY, stamped=True),
            *[_bridge(delivery, to, topic, records) for delivery in deliveries],
        ],
        (RAW,),
        skipped,
        targets=tuple(_targets(deliveries, length)),
        rounds=None if len(records.values) < 50_000 else _ROUNDS,
    )


def _targets(deliveries: list[Delivery], length: int) -> Iterator[Target]:
    if length in _RATIO_MAX:
        name = BRIDGE["at_least_once"]
        yield Target(f"{name}: time, of the raw producer's", name, (RAW,), _RATIO_MAX[length])
    for delivery in deliveries:
        name, most = BRIDGE[delivery], _STAMPED_RATIO_MAX[delivery]
        yield Target(
            f"{name}: time, of the raw producer's with its header", name, (RAW_STAMPED,), most
        )


# --- contenders ---------------------------------------------------------------------------------


def _raw(
    name: str,
    to: Destination,
    topic: str,
    records: _Records,
    every: int,
    *,
    stamped: bool = False,
) -> Contender:
    from confluent_kafka import Producer

    from aolog.format.origin import HEADER_NAME
    from bridge.kafka.client import BATCH_BYTES, DEFAULTS, FIXED

    settings = {
        **DEFAULTS, **FIXED, "batch.size": BATCH_BYTES, "log_level": 3,
        "bootstrap.servers": to.cluster.bootstrap_servers,
    }  # fmt: skip  # a table

    def begin() -> Callable[[], int]:
        failed = reported = 0

        def report(error: object, _: object) -> None:
            nonlocal failed, reported
            failed, reported = failed + (error is not None), reported + 1

        producer = Producer(settings)
        produce, time_ms = producer.produce, _TIMESTAMP_US // 1000
        headers: list[Any] = [None] * len(records.values)
        if stamped:
            headers = [[(HEADER_NAME, stamp)] for stamp in records.stamps]
        for partition in range(_PARTITIONS):
            produce(topic, None, None, partition)
        producer.flush(_SOON_S)

        def work() -> int:
            columns = records.values, records.keys, records.partitions, headers
            for i, (value, key, partition, more) in enumerate(zip(*columns, strict=True), 1):
                callback = None if i % every else report
                while True:
                    try:
                        produce(topic, value, key, partition, callback, None, time_ms, more)
                        break
                    except BufferError:
                        producer.poll(0.005)
                if not i % 4096:
                    producer.poll(0)
            if producer.flush(_SOON_S) or failed or reported != len(records.values) // every:
                raise Wrong(f"{name}: {failed} failed, {reported} were reported")
            return len(records.values)

        return work

    note = "" if every == 1 else f"one record in {every} carries a callback"
    return _contender(name, to, topic, records, begin, note, before=1)


def _bridge(delivery: Delivery, to: Destination, topic: str, records: _Records) -> Contender:
    from bridge.deliver.forwarder import Forwarder
    from bridge.deliver.forwarder_options import ForwarderOptions

    numbers = count()

    def begin() -> Callable[[], int]:
        options = ForwarderOptions(
            topic=topic,
            bootstrap_servers=to.cluster.bootstrap_servers,
            settings={"log_level": "3"},
            cursor=f"{next(numbers)}-{uuid4().hex}",
            drain=True,
            delivery=delivery,
            transaction_records=_TRANSACTION_RECORDS,
        )
        forwarder = Forwarder(records.log, options)
        # It is connected when it sends in a transaction, otherwise when its first records, one for each
        # partition, are acknowledged.
        sending = forwarder._delivery  # noqa: SLF001 -- only the bench needs to see that
        first = 0 if delivery == "exactly_once" else 1
        until_s = time.monotonic() + _SOON_S
        while (now := forwarder.status()).state != "sending" or now.acknowledged < first:
            if time.monotonic() > until_s:
                raise Wrong(f"{BRIDGE[delivery]}: not connected after {_SOON_S:g} s")
            sending.turn(time.monotonic())

        def work() -> int:
            status = forwarder.run()
            # Skipped: found in Kafka after a pause of the cluster.
            return status.acknowledged + status.skipped

        return work

    note = "reads the log, keeps its cursor"
    if delivery == "exactly_once":
        note += f", {_TRANSACTION_RECORDS:,} records a transaction"
    return _contender(BRIDGE[delivery], to, topic, records, begin, note)


def _contender(
    name: str,
    to: Destination,
    topic: str,
    records: _Records,
    begin: Callable[[], Callable[[], int]],
    note: str,
    *,
    before: int = 0,
) -> Contender:
    """begin: connects, and returns the work. before: records that it sends to each partition to connect."""

    @contextmanager
    def session(_: str) -> Iterator[Callable[[], int]]:
        ends = _ends(to, topic)
        yield begin()
        arrived = [now - end for end, now in zip(ends, _ends(to, topic), strict=True)]
        expected = [records.partitions.count(number) + before for number in range(_PARTITIONS)]
        # A transaction ends with a marker in each partition.
        right = ge if name == BRIDGE["exactly_once"] else eq
        if not all(map(right, arrived, expected)):
            raise Wrong(f"{name}: {arrived} arrived of {expected}")

    checksum = "xxh3 of the log, crc32c" if name in BRIDGE.values() else "crc32c"
    return Contender(
        name, Promise("cluster", checksum), len(records.values), session, None, records.proof, note
    )


# --- what they share ----------------------------------------------------------------------------


def _records(plan: Plan, length: int, directory: str) -> _Records:
    """Makes the records, and writes them to a log too."""
    import aolog
    from bridge.config.routing import partition_of
    from bridge.kafka.stamp import encode_stamp

    size = plan.size
    number = _TIMES * min(size.records, size.bytes_max // length)
    values = make_payloads(number, length)
    names = [b"key-%d" % i for i in range(_KEYS)]
    keys = [names[i % _KEYS] for i in range(number)]
    partition_by_key = {name: partition_of(name, b"", _PARTITIONS) for name in names}
    log = str(Path(directory, f"log-{length}"))
    with aolog.Writer(log) as writer:
        addresses = [
            writer.append(value, key=key, timestamp=_TIMESTAMP_US)
            for value, key in zip(values, keys, strict=True)
        ]
    with aolog.Reader(log) as reader:
        uuid = reader.topic_uuid or bytes(16)
    stamps = [encode_stamp(uuid, 0, address, _TIMESTAMP_US) for address in addresses]
    partitions = [partition_by_key[key] for key in keys]
    return _Records(log, values, keys, partitions, stamps, prove(values))


def _clusters(directory: str, *, with_kafka: bool) -> Iterator[Destination]:
    """Kafka, the mock, and the mock with a delay; each runs until the next one is requested. The mocks come last,
    because they live in this process: what they leave of its heap makes each allocation after them slower."""
    from bridge.kafka.embedded import EmbeddedBroker

    if with_kafka:
        from bridge.testing.apache_kafka.server import KafkaServer

        with KafkaServer(Path(directory, "kafka"), LITTLE_IS_KEPT) as server:
            yield Destination(KAFKA, server, isolates=True)
    for round_trip_ms in (0, _ROUND_TRIP_MS):
        with EmbeddedBroker() as broker:
            name = MOCK
            if round_trip_ms:
                broker.set_rtt_ms(round_trip_ms)
                name += f", {round_trip_ms} ms away"
            yield Destination(name, broker, isolates=False)


def _ends(to: Destination, topic: str) -> Sequence[int]:
    """The end offset of each partition. Waits for the leaders of a new topic."""
    from confluent_kafka import Consumer, KafkaException, TopicPartition

    consumer = Consumer(
        {"bootstrap.servers": to.cluster.bootstrap_servers, "group.id": "bench", "log_level": 3}
    )
    until_s = time.monotonic() + _SOON_S
    try:
        while True:
            try:
                found = [
                    consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=5.0)
                    for partition in range(_PARTITIONS)
                ]
                return [int(ends[1]) for ends in found]
            except KafkaException:
                if time.monotonic() > until_s:
                    raise
                time.sleep(0.1)
    finally:
        consumer.close()
