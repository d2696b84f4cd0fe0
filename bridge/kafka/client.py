"""What every Kafka client of the bridge shares: settings, exceptions, time-outs, and the client's
error texts in plain words.

No question changes the cluster: every client is made with AUTO_CREATE off, so no question and no
record creates a topic. `topic_creation` and `cursor_topic` create topics, on purpose.

Found with confluent-kafka 2.16: positional arguments of `produce` are markedly faster than
keywords. `produce_batch` silently drops headers and partitions, so it is not used. A delivery report
has no headers, so each callback is bound to its record's address. A call that raises while another
exception is handled keeps that one for ever, and with its traceback's frames the client itself: 8
descriptors and 4 threads. So no client is called inside an `except` block.
"""

from __future__ import annotations

import contextlib
import logging
import re
import socket
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from aolog.errors import StorageFailed

_Client = TypeVar("_Client")
_Consumer = TypeVar("_Consumer", bound=Consumer)
_Key = TypeVar("_Key")
_Answer = TypeVar("_Answer")
_log = logging.getLogger("bridge")

CLIENT_LOG = logging.getLogger("bridge.librdkafka")
CLIENT_LOG.addHandler(logging.NullHandler())  # an outage fills pages: shown only on request
# The client logs as critical what ends a producer or a transaction. The bridge expects these, logs
# them in its own words, and goes on.
_EXPECTED = {"FATAL", "TXNERR", "ADDPARTS"}


def _demote(record: logging.LogRecord) -> bool:
    if isinstance(record.args, tuple) and record.args[:1] and record.args[0] in _EXPECTED:
        record.levelno, record.levelname = logging.DEBUG, "DEBUG"
        return CLIENT_LOG.isEnabledFor(logging.DEBUG)
    return True


CLIENT_LOG.addFilter(_demote)
_OTHER_CLUSTER = "CLUSTERID"  # the line's facility (rdkafka_metadata.c)
_FAILURE = "FAIL"
# A listener that expects SASL or TLS closes a plain connection within milliseconds. A broker that
# closes an idle connection does so after minutes.
_CLOSED_AT_ONCE = re.compile(
    r".*: Disconnected: .*\(after (?:\d{1,2}ms in state UP|\d+ms in state APIVERSION_QUERY)\b.*"
)

# Whether a metadata request creates the topics that it names, if the brokers' setting
# auto.create.topics.enable is true. The default is false for a consumer, and true for a producer
# and an admin client.
AUTO_CREATE = "allow.auto.create.topics"
# The guarantees rest on these; a user's setting for one of them is refused.
FIXED: dict[str, object] = {
    AUTO_CREATE: False,
    "enable.idempotence": True,  # a retry is neither stored twice nor out of order
    "enable.gapless.guarantee": True,  # after a record that failed nothing is delivered
    "acks": "all",
    "message.timeout.ms": 0,  # an outage may last for ever; other values leave silent gaps
}
# An idempotent producer has one request in flight a partition (measured), so a partition's rate is
# the request's size divided by the round trip. This is the largest that brokers take by default.
BATCH_BYTES = 1_000_000
DEFAULTS: dict[str, object] = {
    "linger.ms": 5,
    # More records than the engine sends without an acknowledgement, so no batch is cut for their number. The
    # bound in bytes is ForwarderOptions.max_in_flight_bytes.
    "queue.buffering.max.messages": 200_000,
    "retry.backoff.ms": 100,
    "retry.backoff.max.ms": 1_000,
    "reconnect.backoff.ms": 50,
    "reconnect.backoff.max.ms": 1_000,  # finds a cluster that comes back within a second
    "socket.keepalive.enable": True,
    "client.id": "aolog-bridge",
}
ANSWER_S = 5.0  # a cluster that takes longer to answer counts as unreachable
_PRODUCER_ONLY = {"linger.ms", "compression.type", "compression.codec"}  # no consumer takes them

ALL_DOWN = KafkaError._ALL_BROKERS_DOWN  # noqa: SLF001 -- a public name; says how many, not why
_TRANSPORT = KafkaError._TRANSPORT  # noqa: SLF001 -- a public name
_CHECK_LISTENER = "check the address; and security.protocol, if the listener expects SASL or TLS"
MOCK_CLUSTER = "mockCluster"  # the embedded broker's cluster id begins with this (rdkafka_mock.c)

_PURGE_POLLS, _PURGE_POLL_S = 20, 0.05  # a second at most; the rest is dropped with the producer

_AWAY = re.compile(
    r"(?P<part>\w+: )?(?:\w+://)?(?P<broker>\S+?:\d+)(?:/(?:bootstrap|-?(?P<node>\d+)))?: "
    r"(?:Connect to \S+ failed: |Failed to resolve '\S+': )?"
    r"(?P<why>.+?)(?: \(after \d+ms in state \w+.*\))?"
)


class ListeningLog(logging.LoggerAdapter[logging.Logger]):
    """Passes on what the client logs: only there it reports that another cluster answers, and that a broker
    closes every connection at once. Called in the thread that polls it: other_cluster, if the servers lead to
    another one; closed, with the broker that closed a new connection at once."""

    def __init__(self, other_cluster: Callable[[], None], closed: Callable[[str], None]) -> None:
        super().__init__(CLIENT_LOG)
        self._other_cluster = other_cluster
        self._closed = closed

    def log(self, level: int, msg: object, *args: object, **more: Any) -> None:
        """Called by the client."""
        facility = args[0] if args else None
        if facility == _FAILURE and (broker := _closed_at_once(str(args[-1]))) is not None:
            self._closed(broker)
        if facility == _OTHER_CLUSTER and level >= logging.WARNING:  # below: the first cluster's id
            self._other_cluster()
        super().log(level, msg, *args, **more)


def _closed_at_once(line: str) -> str | None:
    """The broker, if the line reports that it closed a new connection at once:

    [thrd:...]: host:9092/bootstrap: Disconnected: connection closed by peer (after 1ms in state UP)"""
    text = line.partition("]: ")[2]
    return broker_of(text) if _CLOSED_AT_ONCE.fullmatch(text) else None


class ToldToStop(Exception):
    """The caller gave up because it is to stop: nothing failed."""


def made(
    kind: Callable[..., _Client],
    settings: dict[str, Any],
    logger: logging.Logger | logging.LoggerAdapter[logging.Logger] = CLIENT_LOG,
) -> _Client:
    """A client of this kind. Raises what it raises, except StorageFailed while no descriptor is free: the
    client's error for a certificate's file does not name the cause."""
    refused: KafkaException | None = None
    try:
        return kind(settings, logger=logger)
    except KafkaException as error:
        refused = error
    try:
        socket.socket(socket.AF_UNIX).close()
    except OSError as error:
        raise StorageFailed(
            f"cannot make a client of Kafka: {error.strerror}",
            hint="raise the limit of descriptors (ulimit -n)", errno=error.errno,
        ) from refused  # fmt: skip  # one call
    raise refused


def admin_client(settings: dict[str, Any]) -> AdminClient:
    """For questions and for creating topics. settings: a producer's."""
    return made(AdminClient, {**settings, AUTO_CREATE: False})


def answers(asked: Mapping[_Key, Future[_Answer]], wait_s: float) -> dict[_Key, _Answer]:
    """What the cluster answers to some questions, each within this time; nothing where it does not tell."""
    found = {}
    for key, answer in asked.items():
        try:
            found[key] = answer.result(wait_s)
        except (KafkaException, TimeoutError) as error:
            _log.debug("the cluster tells nothing of %s: %s", key, words(error))
    return found


def consumer(
    kind: type[_Consumer], settings: dict[str, Any], group: str, **more: object
) -> _Consumer:
    """A consumer of this kind that creates no topic, and commits nothing by itself. settings: a producer's.
    group: joined only if it subscribes. more: a consumer's own settings, with `_` for `.`."""
    kept = {key: value for key, value in settings.items() if key not in _PRODUCER_ONLY}
    return made(
        kind,
        {
            **kept,
            AUTO_CREATE: False,
            "group.id": group,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "fetch.wait.max.ms": 50,
            **{key.replace("_", "."): value for key, value in more.items()},
        },
    )


def group_protocol(settings: Mapping[str, Any]) -> str:
    """Kafka's group protocol: "classic", or KIP-848's "consumer"."""
    return str(settings.get("group.protocol", "classic")).lower()


def away(text: str, servers: str) -> str:
    """Which broker cannot be reached, and why, from the client's text:

    host:9092/bootstrap: Connect to ipv4#10.0.0.1:9092 failed: Connection refused (after 0ms in ...)
    GroupCoordinator: host:9092: Receive failed: Invalid response size 1213486160 (0..100000000)

    servers: the configured ones."""
    found = _AWAY.fullmatch(text)
    if found is None:
        return text
    why, broker = found["why"], found["broker"]
    why = why if why[:2].isupper() else why[:1].lower() + why[1:]
    of_cluster = found["node"] is not None or found["part"] is not None
    return f"{broker}: {why}{advertised(broker, servers) if of_cluster else ''}"


def advertised(broker: str, servers: str) -> str:
    """Where the client has the address of a broker from, if the configured servers do not name it."""
    if broker in re.split(r"[,\s]+|\w+://", servers):
        return ""
    return " (the cluster advertises this address: see the brokers' advertised.listeners)"


def broker_of(text: str) -> str | None:
    """HOST:PORT in the client's text about a broker, see `away`."""
    found = _AWAY.fullmatch(text)
    return None if found is None else found["broker"]


def let_go(producer: Producer) -> bool:
    """Drops everything that a producer has queued or in flight, and runs the last callbacks: for
    unacknowledged records they report "purged". Takes a second at most, and almost always none. Whether nothing
    is left: requests that were sent in part stay until they are sent."""
    # Purge first: after a fatal error the records in flight would never leave the queue. No flush:
    # with a fatal error pending, it runs callbacks in a state in which they fail.
    with contextlib.suppress(KafkaException):
        producer.purge()
    for _ in range(_PURGE_POLLS):
        if not len(producer):
            break
        with contextlib.suppress(KafkaException, SystemError):
            producer.poll(_PURGE_POLL_S)
    return not len(producer)


def lacking(right: str, topic: str, purpose: str) -> str:
    """The text for a missing right. right: Kafka's name. purpose: why the bridge needs it."""
    return f"the right {right} on topic {topic!r} is missing: {purpose}"


def words(error: Exception) -> str:
    """The client's text for an error, with a hint if a broker could not be reached."""
    first = error.args[0] if error.args else error
    text = (first.str() if isinstance(first, KafkaError) else str(first)).strip()
    if isinstance(first, KafkaError) and first.code() == _TRANSPORT:
        return f"{text} ({_CHECK_LISTENER})"
    return text
