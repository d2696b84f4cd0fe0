"""delivery: the ways to hand records to Kafka, from one that waits for each to the log.

The table that messagebuffer's README has, of the same payloads in the same run. Timed is until the
cluster has acknowledged the last record. All use the bridge's settings of the client, with a
connection that stands and a topic that has taken its first record.
"""

from __future__ import annotations

import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.bridges import SOON_S, Bridge, destinations, new_topic, without_kafka
from bench.measure import Contender, Group, Promise, Wrong
from bench.payloads import make_payloads, prove

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from confluent_kafka import Producer

    from bench.bridges import Destination
    from bench.cases.plan import Plan
    from bench.payloads import Proof
    from bridge.store_forward import Mode

__all__ = [
    "ASYNCHRONOUS", "BATCHES", "BUFFERED", "LOGGED", "SYNCHRONOUS", "group_of", "groups",
]  # fmt: skip  # a list

SYNCHRONOUS, BATCHES, ASYNCHRONOUS = "synchronous", "synchronous, by 100", "asynchronous"
LOGGED = {"at_least_once": "through the log", "exactly_once": "through the log, exactly once"}
BUFFERED: dict[Mode, str] = {
    mode: f"Buffer, {mode}" for mode in ("block", "error", "buffer", "always")
}
_BATCH = 100
_VALUE_BYTES = 100
_FIRST = b"first"  # what opens a topic; not timed, not proved
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
        missing = without_kafka(plan.size)
        for to in destinations(plan.size, directory):
            one = group_of(plan, to)
            one.skipped.extend(missing)
            yield one


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
        rounds=plan.size.bridge_rounds,
    )


# --- contenders ---------------------------------------------------------------------------------


def _produced(name: str, to: Destination, values: Sequence[bytes], batch: int) -> Contender:
    """Produces, and waits whenever `batch` are under way."""

    @contextmanager
    def session(directory: str) -> Iterator[Callable[[], int]]:
        topic, delivered = _topic(to, directory), 0
        producer = _producer(to)

        def done(error: object, _: object) -> None:
            nonlocal delivered
            if error is not None:
                raise Wrong(f"{name}: {error}")
            delivered += 1

        def produce(value: bytes) -> None:
            while True:
                try:
                    producer.produce(topic, value, None, 0, done)
                except BufferError:
                    producer.poll(0.01)
                else:
                    return

        def work() -> int:
            for i in range(0, len(values), batch):
                for value in values[i : i + batch]:
                    produce(value)
                producer.flush(SOON_S)
            return delivered

        produce(_FIRST)
        producer.flush(SOON_S)
        delivered = 0
        yield work

    return _contender(name, to, values, session, _AT_A_KILL[name])


def _logged(delivery: str, to: Destination, values: Sequence[bytes]) -> Contender:
    """Appends, with a bridge beside that drains."""
    import aolog

    @contextmanager
    def session(directory: str) -> Iterator[Callable[[], int]]:
        log, topic = str(Path(directory, "log")), _topic(to, directory)
        with aolog.Writer(log) as writer:
            first = writer.append(_FIRST)
            writer.flush()
            with Bridge(log, to, topic, "--delivery", delivery) as bridge:
                bridge.acknowledged(first)

                def work() -> int:
                    for value in values:
                        last = writer.append(value)
                    writer.flush()
                    bridge.acknowledged(last)
                    return len(values)

                yield work

    return _contender(LOGGED[delivery], to, values, session, _AT_A_KILL["log"], "xxh3, ")


def _buffered(mode: Mode, to: Destination, values: Sequence[bytes]) -> Contender:
    from bridge import Buffer, KafkaProvider

    @contextmanager
    def session(directory: str) -> Iterator[Callable[[], int]]:
        topic = _topic(to, directory)
        provider = KafkaProvider(to.cluster.bootstrap_servers)
        room = len(values) + 1  # what is measured is live, not how it ends
        with Buffer(provider, Path(directory, "log"), mode=mode, memory_messages=room) as buffer:

            def delivered(count: int) -> int:
                until_s = time.monotonic() + SOON_S
                buffer.flush(SOON_S)
                while buffer.status().delivered < count and time.monotonic() < until_s:
                    time.sleep(0.001)
                return buffer.status().delivered

            def work() -> int:
                for value in values:
                    buffer.send(topic, value)
                return delivered(room) - 1

            buffer.send(topic, _FIRST)
            delivered(1)
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
        return prove(_values_in(to, topic, len(values)))

    promise = Promise("cluster", f"{also}crc32c a batch")
    return Contender(name, promise, len(values), session, proof, prove(values), note)


def _topic(to: Destination, directory: str) -> str:
    """A new one, whose name the proof finds."""
    topic = new_topic(to.cluster)
    Path(directory, "topic").write_text(topic, encoding="utf-8")
    return topic


def _producer(to: Destination) -> Producer:
    from confluent_kafka import Producer

    from bridge.kafka import DEFAULTS, FIXED

    servers = to.cluster.bootstrap_servers
    return Producer({**DEFAULTS, **FIXED, "bootstrap.servers": servers, "log_level": 3})


def _values_in(to: Destination, topic: str, count: int) -> Iterator[bytes]:
    """What stands behind the first record, in order; more than was asked for, if more is there."""
    from confluent_kafka import Consumer, TopicPartition

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
    until_s, left = time.monotonic() + SOON_S, count
    try:
        consumer.assign([TopicPartition(topic, 0, 1)])
        while time.monotonic() < until_s:
            for message in consumer.consume(1_000, timeout=0.2):
                if message.error() is None:
                    left -= 1
                    yield message.value() or b""
                elif left <= 0:  # the partition's end
                    return
    finally:
        consumer.close()
