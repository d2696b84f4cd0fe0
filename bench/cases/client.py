"""client: what `bridge.client` costs beside bare confluent-kafka, and what a transform costs.

Both producers have the same settings, send the same values with a delivery callback for each, and poll
every 512 messages. The time begins with an open connection and ends with the last acknowledgement. The
transform is timed without Kafka: from a log's batches to the arguments of librdkafka.
"""

from __future__ import annotations

from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.measure import Contender, Group, Promise, Target, Wrong

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from bench.cases.plan import Plan, Values

__all__ = ["BARE", "CLIENT", "groups"]

BARE, CLIENT = "bare confluent-kafka", "aolog client, asynchronous"
_RATIO_MIN = 0.8  # of the bare producer's rate
_NONE, _RECORDS, _ARROW = "no transform", "transform of records", "transform of Arrow"
_VALUE_BYTES = 100
_POLL_EVERY = 512
_PARTITIONS = 4
_PROMISE = Promise("-", "crc32c a batch")
_SETTINGS: dict[str, Any] = {
    "linger.ms": "5", "enable.idempotence": "true", "queue.buffering.max.messages": "1000000",
    "partitioner": "murmur2_random", "socket.keepalive.enable": "true", "delivery.timeout.ms": "120000",
}  # fmt: skip  # a table


def groups(plan: Plan) -> Iterator[Group]:
    from bridge.kafka.embedded import EmbeddedBroker

    values = plan.values(_VALUE_BYTES)
    with EmbeddedBroker() as broker:
        broker.create_topic("bench", _PARTITIONS)
        yield Group(
            "client",
            f"asynchronous producer, {_VALUE_BYTES}-byte values, the embedded broker",
            "from the first send until the last acknowledgement",
            _VALUE_BYTES,
            [
                _contender(BARE, values, partial(_bare, broker.bootstrap_servers)),
                _contender(CLIENT, values, partial(_client, broker.bootstrap_servers)),
            ],
            (BARE,),
            targets=(Target(f"the time of {BARE}", CLIENT, (BARE,), 1 / _RATIO_MIN),),
        )
    with plan.fixture() as directory:
        log = str(Path(directory, "log"))
        _fill(log, values.all)
        yield Group(
            "client",
            f"a route's transform that changes nothing, {_VALUE_BYTES}-byte values",
            "from a log's batches to what librdkafka is given",
            _VALUE_BYTES,
            [
                _contender(name, values, partial(_transformed, log, function, takes_arrow))
                for name, function, takes_arrow in (
                    (_NONE, "", False), (_RECORDS, "same", False), (_ARROW, "same", True)
                )
            ],
            (_NONE,),
        )  # fmt: skip  # one group


def _contender(name: str, values: Values, send: Callable[[Sequence[bytes]], Any]) -> Contender:
    @contextmanager
    def session(_: str) -> Iterator[Callable[[], int]]:
        with send(values.all) as work:
            yield work

    return Contender(name, _PROMISE, len(values.all), session, None, values.proof)


@contextmanager
def _bare(servers: str, values: Sequence[bytes]) -> Iterator[Callable[[], int]]:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": servers, **_SETTINGS})
    producer.produce("bench", b"the connection stands")
    producer.flush()
    failed: list[object] = []

    def done(error: object, _message: object) -> None:
        if error is not None:
            failed.append(error)

    def work() -> int:
        produce = producer.produce
        for i, value in enumerate(values):
            produce("bench", value, None, -1, done)
            if i % _POLL_EVERY == 0:
                producer.poll(0)
        producer.flush()
        if failed:
            raise Wrong(f"{BARE}: {failed[0]}")
        return len(values)

    yield work


@contextmanager
def _client(servers: str, values: Sequence[bytes]) -> Iterator[Callable[[], int]]:
    from bridge.client import Producer

    properties = {"bootstrap.servers": servers, "producer.type": "async", **_SETTINGS}
    with Producer({"Type": "ProducerConfig", "Properties": properties}) as producer:
        producer.send("bench", b"the connection stands", wait=True)

        def work() -> int:
            send = producer.send
            for value in values:
                send("bench", value)
            producer.flush()  # raises where a message failed
            return len(values)

        yield work


def same(batch: Any) -> Any:
    """The transform that is timed."""
    return batch


def _fill(log: str, values: Sequence[bytes]) -> None:
    import aolog

    with aolog.Writer(log, sync="never") as writer:
        writer.append_many(values)


@contextmanager
def _transformed(
    log: str,
    function: str,
    takes_arrow: bool,  # noqa: FBT001 -- bound by partial
    values: Sequence[bytes],
) -> Iterator[Callable[[], int]]:
    import aolog
    from bridge.config.routing import Routing, Rule
    from bridge.deliver.transform import Transforms
    from bridge.kafka.messages import messages_of

    name = f"{__name__}:{function}" if function else None
    transforms = Transforms(Routing("t", [Rule(transform=name, takes_arrow=takes_arrow)]))

    def work() -> int:
        records = 0
        with aolog.Reader(log) as reader:
            while (batch := reader.read_batch(512 << 10)) is not None:
                changed = transforms.batch(batch) if function else batch
                records += messages_of(changed, bytes(16)).records
        if records != len(values):
            raise Wrong(f"{records} of {len(values)} records")
        return records

    yield work
