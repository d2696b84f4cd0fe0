"""delivery: the ways to send records to Kafka, from one that waits for each record to the log.

The table of messagebuffer's README, of the same payloads in the same run. The time ends when the cluster
has acknowledged the last record. All use the bridge's settings of the client, an open connection, and a
topic whose partitions have a first record. A record is a key and a value; the bridge's partitioner chooses
its partition.
"""

from __future__ import annotations

import heapq
import time
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.bridges import SOON_S, Bridge, new_topic, on_each_cluster
from bench.measure import Contender, Group, Promise, Target, Wrong
from bench.payloads import make_payloads, prove

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from confluent_kafka import Producer

    from bench.bridges import Destination
    from bench.cases.plan import Plan
    from bench.payloads import Proof
    from bridge.client.buffer.settings import Mode

__all__ = [
    "ASYNCHRONOUS", "BATCHES", "BUFFERED", "LOGGED", "SYNCHRONOUS", "group_of", "groups",
]  # fmt: skip  # a list

SYNCHRONOUS, BATCHES, ASYNCHRONOUS = "synchronous", "synchronous, by 100", "asynchronous"
LOGGED = {"at_least_once": "through the log", "exactly_once": "through the log, exactly once"}
BUFFERED: dict[Mode, str] = {
    mode: f"Buffer, {mode}" for mode in ("block", "error", "buffer", "always")
}
_BATCH = 100
_RATIO_MIN = 0.7  # of the asynchronous producer's rate, for a Buffer that keeps messages in memory
_VALUE_BYTES = 100
PARTITIONS = 4  # of which the mock keeps 5 MiB each
_FIRST = b"first"  # what opens a partition; not timed, not proved
_AT_A_KILL = {
    SYNCHRONOUS: "a kill loses the one that is waited for",
    BATCHES: "a kill loses the batch that is waited for",
    ASYNCHRONOUS: "a kill loses what waits in memory",
    "log": "a kill of the program loses what was not flushed; of the bridge nothing",
    "live": "a kill loses what waits in memory",
    "always": "a kill loses what was not flushed",
}


def groups(plan: Plan) -> Iterator[Group]:
    with plan.fixture() as directory:
        yield from on_each_cluster(plan.size, directory, lambda to: group_of(plan, to))


def group_of(plan: Plan, to: Destination) -> Group:
    """Of one cluster."""
    values = make_payloads(plan.size.delivery_records, _VALUE_BYTES)
    few = values[: plan.size.delivery_slow]
    deliveries = ["at_least_once", *(["exactly_once"] if to.isolates else [])]
    return Group(
        "delivery",
        f"delivered to {to.name}, {_VALUE_BYTES}-byte records",
        "until the cluster has acknowledged the last",
        _VALUE_BYTES,
        [
            _produced(SYNCHRONOUS, to, few, 1),
            _produced(BATCHES, to, values, _BATCH),
            _produced(ASYNCHRONOUS, to, values, len(values)),
            *[_logged(each, to, values) for each in deliveries],
            *[_buffered(mode, to, values) for mode in BUFFERED],
        ],
        (ASYNCHRONOUS,),
        targets=tuple(
            Target(
                f"{name}: time, of the asynchronous producer's",
                name,
                (ASYNCHRONOUS,),
                1 / _RATIO_MIN,
            )
            for mode, name in BUFFERED.items()
            if mode != "always"
        ),
        rounds=plan.size.bridge_rounds,
    )


# --- contenders ---------------------------------------------------------------------------------


def _produced(name: str, to: Destination, values: Sequence[bytes], batch: int) -> Contender:
    """Produces, and waits whenever `batch` are under way."""

    @contextmanager
    def session(directory: str) -> Iterator[Callable[[], int]]:
        topic, delivered = _topic(to, directory), 0
        producer, keys = _producer(to), _keys()

        def done(error: object, _: object) -> None:
            nonlocal delivered
            if error is not None:
                raise Wrong(f"{name}: {error}")
            delivered += 1

        def produce(value: bytes, partition: int) -> None:
            key = keys[partition]
            while True:
                try:
                    producer.produce(topic, value, key, partition, done)
                except BufferError:
                    producer.poll(0.01)
                else:
                    return

        def work() -> int:
            for i in range(0, len(values), batch):
                for j, value in enumerate(values[i : i + batch], i):
                    produce(value, j % PARTITIONS)
                producer.flush(SOON_S)
            return delivered

        for partition in range(PARTITIONS):
            produce(_FIRST, partition)
        producer.flush(SOON_S)
        delivered = 0
        yield work

    return _contender(name, to, values, session, _AT_A_KILL[name])


def _logged(delivery: str, to: Destination, values: Sequence[bytes]) -> Contender:
    """Appends, with a bridge beside that drains."""
    import aolog

    @contextmanager
    def session(directory: str) -> Iterator[Callable[[], int]]:
        log, topic, keys = str(Path(directory, "log")), _topic(to, directory), _keys()
        with aolog.Writer(log) as writer:
            for key in keys:
                first = writer.append(_FIRST, key=key)
            writer.flush()
            with Bridge(log, to, topic, "--delivery", delivery) as bridge:
                bridge.acknowledged(first)

                def work() -> int:
                    for i, value in enumerate(values):
                        last = writer.append(value, key=keys[i % PARTITIONS])
                    writer.flush()
                    bridge.acknowledged(last)
                    return len(values)

                yield work

    return _contender(LOGGED[delivery], to, values, session, _AT_A_KILL["log"], "xxh3, ")


def _buffered(mode: Mode, to: Destination, values: Sequence[bytes]) -> Contender:
    from bridge import Buffer, KafkaProvider

    @contextmanager
    def session(directory: str) -> Iterator[Callable[[], int]]:
        topic, keys = _topic(to, directory), _keys()
        provider = KafkaProvider(to.cluster.bootstrap_servers)
        room = PARTITIONS + len(values)
        # Memory for all records, and time: the buffer must stay live.
        buffer = Buffer(
            provider,
            Path(directory, "log"),
            mode=mode,
            memory_messages=room,
            memory_bytes=1 << 30,
            live_age_s=SOON_S,
        )
        with buffer:

            def delivered(count: int) -> int:
                until_s = time.monotonic() + SOON_S
                buffer.flush(SOON_S)
                while buffer.status().delivered < count and time.monotonic() < until_s:
                    time.sleep(0.001)
                return buffer.status().delivered

            def work() -> int:
                for i, value in enumerate(values):
                    buffer.send(topic, value, keys[i % PARTITIONS])
                return delivered(room) - PARTITIONS

            for key in keys:
                buffer.send(topic, _FIRST, key)
            delivered(PARTITIONS)
            yield work

    note = _AT_A_KILL["always" if mode == "always" else "live"]
    return _contender(
        BUFFERED[mode], to, values, session, note, "xxh3, " if mode == "always" else ""
    )


# --- what they share ----------------------------------------------------------------------------


def _contender(
    name: str, to: Destination, values: Sequence[bytes], session: Any, note: str, also: str = ""
) -> Contender:
    def proof(directory: str) -> Proof:
        topic = Path(directory, "topic").read_text(encoding="utf-8")
        place = {value: i for i, value in enumerate(values)}  # a wrong value breaks the order
        lanes = [
            _values_in(to, topic, partition, len(values[partition::PARTITIONS]))
            for partition in range(PARTITIONS)
        ]
        return prove(heapq.merge(*lanes, key=lambda value: place.get(value, -1)))

    promise = Promise("cluster", f"{also}crc32c a batch")
    return Contender(name, promise, len(values), session, proof, prove(values), note)


def _topic(to: Destination, directory: str) -> str:
    """Creates a topic, and stores its name for the proof."""
    topic = new_topic(to.cluster, PARTITIONS)
    Path(directory, "topic").write_text(topic, encoding="utf-8")
    return topic


def _keys() -> list[bytes]:
    """One for each partition, in order."""
    from bridge.config.routing import partition_of

    found: dict[int, bytes] = {}
    for i in count():
        key = b"key %d" % i
        found.setdefault(partition_of(key, b"", PARTITIONS), key)
        if len(found) == PARTITIONS:
            return [found[partition] for partition in range(PARTITIONS)]
    raise AssertionError


def _producer(to: Destination) -> Producer:
    from confluent_kafka import Producer

    from bridge.kafka.client import DEFAULTS, FIXED

    servers = to.cluster.bootstrap_servers
    return Producer({**DEFAULTS, **FIXED, "bootstrap.servers": servers, "log_level": 3})


def _values_in(to: Destination, topic: str, partition: int, count: int) -> Iterator[bytes]:
    """The values after the first record, in order, at least `count`: the marker of a committed transaction
    may come later. Raises Wrong if fewer arrive."""
    from confluent_kafka import Consumer, KafkaError, TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": to.cluster.bootstrap_servers,
            "group.id": "bench",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "fetch.wait.max.ms": 10,
            "enable.partition.eof": True,
            "log_level": 3,
        }
    )
    until_s = time.monotonic() + SOON_S
    try:
        consumer.assign([TopicPartition(topic, partition, 1)])
        while time.monotonic() < until_s:
            for message in consumer.consume(1_000, timeout=0.2):
                error = message.error()
                if error is None:
                    count -= 1
                    yield message.value() or b""
                elif error.code() != KafkaError._PARTITION_EOF:  # noqa: SLF001 -- a public name
                    raise Wrong(f"{topic}/{partition}: {error}")
                elif count <= 0:
                    return
    finally:
        consumer.close()
    raise Wrong(f"{topic}/{partition}: {count} records have not come")
