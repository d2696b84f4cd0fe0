"""Properties as users of the Java client, librdkafka and kafka-fast write them, to librdkafka's.

A key that librdkafka has under the same name passes as it is. The tables below are the rest: another
name for the same setting, a key with nothing left to set (ignored, with a notice), a key without a
counterpart (refused, with what to use instead), and a key whose value is written otherwise. Keys
without a dot are kafka-fast's. Two spellings of one setting are refused. Nothing here connects.
Messages never quote a value: it may be a secret.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal, NamedTuple, TypeAlias

from bridge.client.errors import KeyGivenTwice, KeyRefused, WrongType
from bridge.errors import WrongConfiguration

Side: TypeAlias = Literal["producer", "consumer"]
Settings: TypeAlias = dict[str, str]


class Translation(NamedTuple):
    """Of a client's properties."""

    settings: Settings  # librdkafka's
    is_sync: bool  # how `send` returns
    poll_records: int  # the most that one poll returns
    notices: list[str]  # sentences about what was changed or ignored
    problems: list[WrongConfiguration]


POLL_RECORDS = 500  # the Java client's default of max.poll.records

# Another name of the same setting: librdkafka's own aliases, the Java client's names, kafka-fast's.
RENAMED = {
    "metadata.broker.list": "bootstrap.servers",
    "request.required.acks": "acks",
    "message.send.max.retries": "retries",
    "queue.buffering.max.ms": "linger.ms",
    "compression.codec": "compression.type",
    "max.in.flight": "max.in.flight.requests.per.connection",
    "message.timeout.ms": "delivery.timeout.ms",
    "sasl.mechanisms": "sasl.mechanism",
    "fetch.message.max.bytes": "max.partition.fetch.bytes",
    "fetch.max.wait.ms": "fetch.wait.max.ms",
    "max.request.size": "message.max.bytes",
    "send.buffer.bytes": "socket.send.buffer.bytes",
    "receive.buffer.bytes": "socket.receive.buffer.bytes",
    "bootstrap-brokers": "bootstrap.servers",
    "client-id": "client.id",
    "consume-step": "max.poll.records",
}
_BYTES = "keys and values are bytes; strings are UTF-8"
_RETRY_CACHE = "failed sends wait in the client's queue, and with a log and the bridge on disk"
IGNORED = {
    "key.serializer": _BYTES,
    "value.serializer": _BYTES,
    "key.deserializer": _BYTES,
    "value.deserializer": _BYTES,
    "serializer.class": _BYTES,
    "auto.commit.enable": "enable.auto.commit decides",
    "send-cache-max-entries": _RETRY_CACHE,
    "send-cache-expire-after-write": _RETRY_CACHE,
    "send-cache-expire-after-access": _RETRY_CACHE,
    "consumer-reporting": "status() and the metrics show it",
}
REFUSED = {
    "ssl.truststore.location": "use ssl.ca.location, a file in PEM",
    "ssl.truststore.password": "use ssl.ca.location, a file in PEM, which has no password",
    "ssl.truststore.type": "use ssl.ca.location, a file in PEM",
    "sasl.jaas.config": "use sasl.username and sasl.password",
    "partitioner.class": "use partitioner; murmur2_random is the Java client's own, and the default",
    "interceptor.classes": "wrap send and poll in your program",
    "metric.reporters": "use Prometheus: the client is a collector",
    "max.block.ms": "send waits for room in the queue; bound a message with delivery.timeout.ms",
    "default.api.timeout.ms": "pass a timeout to the call",
    "exclude.internal.topics": "subscribe to a pattern that does not match them",
    "zookeeper.connect": "Kafka has no ZooKeeper any more; use bootstrap.servers",
    "transactional.id": "use a log and `aolog-bridge run --delivery exactly_once`",
    "batch-fail-message-over-limit": "a message that is too large raises SendFailed and is never"
    " discarded",
    "redis-conf": "Kafka keeps offsets and shares out partitions: name a group.id",
    "reset-ahead-offsets": "an offset past the end of a partition raises or restarts as"
    " auto.offset.reset says",
    "consumer-threads": "start a consumer for each thread, with one group.id",
    "producer-retry-strategy": "SendFailed names the message that failed",
}
_FOR_CONSUMERS = "it is a consumer's"
_PRODUCERS_IGNORE = {"group.id": _FOR_CONSUMERS, "enable.auto.commit": _FOR_CONSUMERS,
                     "auto.offset.reset": _FOR_CONSUMERS}  # fmt: skip  # a table
_ASSIGNORS = {
    "Range": "range",
    "RoundRobin": "roundrobin",
    "CooperativeSticky": "cooperative-sticky",
    "Sticky": "",
}
_WHERE = {"true": "earliest", "false": "latest"}


def _number(value: str, low: int = 0) -> int:
    number = int(value) if value.strip().isascii() else -1
    if number < low:
        raise ValueError
    return number


def _assignors(value: str) -> Settings:
    found = []
    for name in value.split(","):
        short = name.strip().rpartition(".")[2].removesuffix("Assignor")
        found.append(_ASSIGNORS.get(short, name.strip()) or "cooperative-sticky")
    return {"partition.assignment.strategy": ",".join(found)}


def _as(name: str) -> Callable[[str], Settings]:
    return lambda value: {name: str(_number(value))}


# Keys whose value is written otherwise, or has to be a whole number.
CONVERTED: dict[str, Callable[[str], Settings]] = {
    "buffer.memory": lambda value: {
        "queue.buffering.max.kbytes": str(max(1, _number(value, 1) // 1024))
    },
    "queue.buffering.max.kbytes": _as("queue.buffering.max.kbytes"),
    "partition.assignment.strategy": _assignors,
    "auto.offset.reset": lambda value: {"auto.offset.reset": "error" if value == "none" else value},
    "batch-num-messages": _as("batch.num.messages"),
    "queue-buffering-max-ms": _as("linger.ms"),
    "batch-byte-limit": _as("batch.size"),
    "max-wait-time": _as("fetch.wait.max.ms"),
    "min-bytes": _as("fetch.min.bytes"),
    "max-bytes": _as("fetch.max.bytes"),
    "codec": lambda value: {"compression.type": ["none", "gzip", "snappy"][_number(value)]},
    "offset-commit-freq": _as("auto.commit.interval.ms"),
    "fetch-timeout": _as("socket.timeout.ms"),
    "use-earliest": lambda value: {"auto.offset.reset": _WHERE[value.strip().lower()]},
    "metadata-timeout": _as("socket.timeout.ms"),
}
# kafka-fast bounds two kinds of request apart, and librdkafka all of them together.
_SHARED = {"socket.timeout.ms"}


def translate(given: Mapping[str, str], side: Side) -> Translation:
    """To librdkafka's settings. Problems are returned, not raised, so that all can be reported."""
    found: Settings = {}
    spelt: dict[str, str] = {}
    notices: list[str] = []
    problems: list[WrongConfiguration] = []
    for key, value in given.items():
        taken = _take(key, value, side)
        if isinstance(taken, WrongConfiguration):
            problems.append(taken)
        elif isinstance(taken, str):
            notices.append(taken)
        else:
            for name, text in taken.items():
                if name in spelt and (name not in _SHARED or found[name] != text):
                    twice = f"{key}: is another spelling of {spelt[name]}; keep one of them"
                    problems.append(KeyGivenTwice([twice]))
                found[name], spelt[name] = text, key
    own = _own_options(found, problems)
    if side == "producer":
        _weaken_idempotence(found, notices)
    return Translation(found, *own, notices, problems)


def _take(key: str, value: str, side: Side) -> Settings | WrongConfiguration | str:
    """The settings of one key, what is wrong with it, or the notice that it is ignored."""
    if key in REFUSED:
        return KeyRefused([f"{key}: has no counterpart; {REFUSED[key]}"])
    why = IGNORED.get(key) or (_PRODUCERS_IGNORE.get(key) if side == "producer" else None)
    if why is not None:
        return f"{key} is ignored: {why}"
    convert = CONVERTED.get(key)
    if convert is None:
        return {RENAMED.get(key, key): value}
    try:
        return convert(value)
    except (ValueError, KeyError, IndexError):
        return WrongType([f"{key}: has a value that it cannot have"])


def _own_options(found: Settings, problems: list[WrongConfiguration]) -> tuple[bool, int]:
    """Takes the options out that librdkafka does not have."""
    kind = found.pop("producer.type", "sync")
    if kind not in {"sync", "async"}:
        problems.append(WrongType(["producer.type: is neither sync nor async"]))
    text = found.pop("max.poll.records", str(POLL_RECORDS))
    try:
        records = _number(text, 1)
    except ValueError:
        problems.append(WrongType(["max.poll.records: is not a positive whole number"]))
        records = POLL_RECORDS
    return kind == "sync", records


def _weaken_idempotence(found: Settings, notices: list[str]) -> None:
    """Idempotence is the default. It needs acks=all and retries: where the configuration asks for
    less, it is off, unless the configuration also asks for it, which librdkafka refuses."""
    if "enable.idempotence" in found:
        return
    weak = [
        key
        for key, strong in (("retries", found.get("retries", "1").strip() != "0"),
                            ("acks", found.get("acks", "all") in {"all", "-1"}))
        if not strong
    ]  # fmt: skip  # a table
    found["enable.idempotence"] = "false" if weak else "true"
    if weak:
        notices.append(
            f"{' and '.join(weak)} turned idempotence off: a message may be lost, repeated or"
            " overtaken when a connection breaks"
        )
