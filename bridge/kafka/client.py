"""What all that speaks to a Kafka cluster shares: the client's settings, what its errors mean, how
long to wait for an answer.

Asking changes nothing: every client is made with AUTO_CREATE off, so that no look at the cluster,
and no record, creates a topic. `topic_creation` and `cursor_topic` create topics, on purpose.

Found with confluent-kafka 2.16: positional arguments of `produce` are markedly faster than
keywords; `produce_batch` drops headers and partitions silently and is not used; a delivery
report has no headers, so what a callback stands for is bound to it.
"""

from __future__ import annotations

import contextlib
import logging
import re
from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from bridge.errors import DestinationError, NotIsolated
from bridge.kafka.error_table import Kind, row_of

if TYPE_CHECKING:
    from confluent_kafka import Producer

__all__ = [
    "ALL_DOWN",
    "ANSWER_S",
    "AUTO_CREATE",
    "BATCH_BYTES",
    "CLIENT_LOG",
    "DEFAULTS",
    "FIXED",
    "MESSAGE_BYTES_MAX",
    "MOCK_CLUSTER",
    "NoAnswer",
    "NotReachable",
    "Refused",
    "ToldToStop",
    "admin_client",
    "away",
    "broker_of",
    "closed_at_once",
    "consumer",
    "lacking",
    "let_go",
    "no_transactions",
    "words",
]

CLIENT_LOG = logging.getLogger("bridge.librdkafka")
CLIENT_LOG.addHandler(logging.NullHandler())  # an outage fills pages: shown only on request
# What ends a producer or a transaction: the client calls it critical. The bridge expects it, says it
# in its own words and goes on.
_EXPECTED = {"FATAL", "TXNERR", "ADDPARTS"}


def _demote(record: logging.LogRecord) -> bool:
    if isinstance(record.args, tuple) and record.args[:1] and record.args[0] in _EXPECTED:
        record.levelno, record.levelname = logging.DEBUG, "DEBUG"
        return CLIENT_LOG.isEnabledFor(logging.DEBUG)
    return True


CLIENT_LOG.addFilter(_demote)

# Whether a metadata request creates the topics that it names, where the brokers'
# auto.create.topics.enable is true. A consumer's default is false, a producer's and an admin
# client's is true.
AUTO_CREATE = "allow.auto.create.topics"
# What the guarantees rest on; a user's setting for one of these is refused.
FIXED: dict[str, object] = {
    AUTO_CREATE: False,
    "enable.idempotence": True,  # a retry is neither stored twice nor out of order
    "enable.gapless.guarantee": True,  # nothing behind a record that failed is delivered
    "acks": "all",
    "message.timeout.ms": 0,  # an outage has no end; other values leave silent gaps
}
# An idempotent producer has one request in flight a partition (measured), so a partition's rate is
# the request's size over the round trip: as large as brokers take by default.
BATCH_BYTES = 1_000_000
DEFAULTS: dict[str, object] = {
    "linger.ms": 5,
    # Both are more than the engine lets be outstanding: lanes that flow, lanes that are held, and
    # a batch that is cut off nowhere.
    "queue.buffering.max.messages": 200_000,
    "queue.buffering.max.kbytes": 65_536,  # bounds memory while a backlog drains
    "retry.backoff.ms": 100,
    "retry.backoff.max.ms": 1_000,
    "reconnect.backoff.ms": 50,
    "reconnect.backoff.max.ms": 1_000,  # a cluster that comes back is seen within a second
    "socket.keepalive.enable": True,
    "client.id": "aolog-bridge",
}
MESSAGE_BYTES_MAX = 1_000_000  # the client's default
ANSWER_S = 5.0  # how long a question may take before the cluster counts as out of reach
_PRODUCER_ONLY = {"linger.ms", "compression.type", "compression.codec"}  # no consumer takes them

ALL_DOWN = KafkaError._ALL_BROKERS_DOWN  # noqa: SLF001 -- a public name; says how many, not why
_TRANSPORT = KafkaError._TRANSPORT  # noqa: SLF001 -- a public name
_NOT_SPOKEN_TO = "check the address; and security.protocol, where the listener asks for SASL or TLS"
MOCK_CLUSTER = "mockCluster"  # the id of an embedded broker's cluster begins so (rdkafka_mock.c)

_PURGE_POLLS, _PURGE_POLL_S = 20, 0.05  # a second at most; what is left then goes with the producer

_AWAY = re.compile(
    r"(?:\w+://)?(?P<broker>\S+?)(?:/(?:bootstrap|-?(?P<node>\d+)))?: "
    r"(?:Connect to \S+ failed: |Failed to resolve '\S+': )?"
    r"(?P<why>.+?)(?: \(after \d+ms in state \w+.*\))?"
)
# A client that speaks another protocol than the listener is cut off within the first exchange; one
# that is idle, after minutes.
_CLOSED_AT_ONCE = re.compile(
    r".*: Disconnected: .*\(after (?:\d{1,2}ms in state UP|\d+ms in state APIVERSION_QUERY)\b.*"
)


class NotReachable(Exception):
    """The cluster did not answer, or not yet as it will. Try again later."""


class ToldToStop(NotReachable):
    """The caller gave up the question, since it is to stop: nothing failed."""

    def __init__(self) -> None:
        super().__init__("told to stop")


class NoAnswer(NotReachable):
    """One partition did not answer; others may."""


class Refused(NotReachable):
    """The cluster does not let us use this topic, until somebody acts. code: Kafka's name for the
    reason, or the bridge's own."""

    def __init__(self, reason: str, code: str) -> None:
        super().__init__(reason)
        self.code = code


def admin_client(settings: dict[str, Any]) -> AdminClient:
    """settings: a producer's."""
    return AdminClient({**settings, AUTO_CREATE: False}, logger=CLIENT_LOG)


def consumer(settings: dict[str, Any], group: str, **more: object) -> Consumer:
    """One that reads partitions by number, joins no group and commits nothing. settings: a
    producer's. more: a consumer's own, with `_` for `.`."""
    kept = {key: value for key, value in settings.items() if key not in _PRODUCER_ONLY}
    return Consumer(
        {
            **kept,
            AUTO_CREATE: False,
            "group.id": group,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "fetch.wait.max.ms": 50,
            **{key.replace("_", "."): value for key, value in more.items()},
        },
        logger=CLIENT_LOG,
    )


def away(said: str, servers: str) -> str:
    """Which broker cannot be reached and why, of what the client says of it:

    host:9092/bootstrap: Connect to ipv4#10.0.0.1:9092 failed: Connection refused (after 0ms in ...)

    servers: that were configured; where the broker is none of them, the cluster has named it.
    """
    found = _AWAY.fullmatch(said)
    if found is None:
        return said
    why, broker = found["why"], found["broker"]
    why = why if why[:2].isupper() else why[:1].lower() + why[1:]
    if found["node"] is not None and broker not in re.split(r"[,\s]+|\w+://", servers):
        why += " (the cluster advertises this address: see the brokers' advertised.listeners)"
    return f"{broker}: {why}"


def broker_of(said: str) -> str | None:
    """HOST:PORT in what the client says of a broker, see `away`."""
    found = _AWAY.fullmatch(said)
    return None if found is None else found["broker"]


def closed_at_once(said: str) -> str | None:
    """The broker, where the client's log line says that it closed a new connection at once: of

    [thrd:...]: host:9092/bootstrap: Disconnected: connection closed by peer (after 1ms in state UP)
    """
    line = said.partition("]: ")[2]
    return broker_of(line) if _CLOSED_AT_ONCE.fullmatch(line) else None


def let_go(producer: Producer) -> None:
    """Has a producer forget what it holds, and hears its callbacks to the end: of what the cluster
    did not acknowledge they say "purged". Takes a second at most, and nearly always no time."""
    # Purged first: after a fatal error what is in flight would never leave the queue. Not flushed:
    # with a fatal error pending, flush runs callbacks in a state in which they fail.
    with contextlib.suppress(KafkaException):
        producer.purge()
    for _ in range(_PURGE_POLLS):
        if not len(producer):
            break
        with contextlib.suppress(KafkaException, SystemError):
            producer.poll(_PURGE_POLL_S)


def no_transactions(error: KafkaError) -> DestinationError:
    """Why the cluster does not take transactions as they are asked for."""
    row = row_of(error.name())
    if row.kind is Kind.NO_TRANSACTIONS:
        return NotIsolated(
            f"the cluster has no transactions: {error.name()}: {error.str()}", hint=row.does
        )
    return DestinationError(row.reads, hint=row.does)


def lacking(right: str, topic: str, purpose: str) -> str:
    """right: as Kafka's ACLs call it. purpose: what the bridge needs it for, a sentence's rest."""
    return f"the right {right} on topic {topic!r} is missing: {purpose}"


def words(error: Exception) -> str:
    """What the client says of it."""
    first = error.args[0] if error.args else error
    said = first.str() if isinstance(first, KafkaError) else str(first)
    if isinstance(first, KafkaError) and first.code() == _TRANSPORT:
        said = f"{said.strip()} ({_NOT_SPOKEN_TO})"
    return said.strip()
