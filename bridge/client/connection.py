"""What Producer and Consumer share: defaults, the check of settings, log lines about waiting, metrics.

The settings are checked with a client that has no servers: it connects to nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer

from bridge.client.errors import UnknownKey, WrongType
from bridge.client.properties import Side
from bridge.config.settings import refused_keys
from bridge.errors import WrongConfiguration
from bridge.kafka.client import made, words
from bridge.kafka.client_limits import QUEUE_KBYTES
from bridge.kafka.known_settings import meant, unreadable_file

_log = logging.getLogger("bridge.client")
_SAID_MAX = 20  # causes until something arrives: a broker's name may be in each
CLIENT_ID = "aolog-client"
PRODUCER_DEFAULTS: dict[str, Any] = {
    "client.id": CLIENT_ID,
    "partitioner": "murmur2_random",  # keys go where the Java client's go
    "delivery.timeout.ms": 120_000,  # the Java client's default; librdkafka's is five minutes
    "socket.keepalive.enable": True,
    QUEUE_KBYTES: 1 << 20,  # librdkafka's default
}
CONSUMER_DEFAULTS: dict[str, Any] = {
    "client.id": CLIENT_ID,
    "enable.auto.offset.store": False,  # a position is stored at the next poll, as Java does
    "topic.metadata.refresh.interval.ms": 5_000,  # a new topic is found within 5 s
    "socket.keepalive.enable": True,
}
_HELP = {
    "sent": "Messages given to librdkafka.",
    "failed": "Messages that were not acknowledged.",
    "received": "Records returned to the program.",
    "dropped": "Records dropped because of their signature.",
    "headers_left_out": "Headers left out of records, since their names are not UTF-8.",
    "heartbeats_sent": "Heartbeats sent.",
    "heartbeats_received": "Heartbeats received.",
}


class Waiting:
    """Logs what a client waits for: once, until that is over."""

    def __init__(self) -> None:
        self._said: set[str] = set()

    def say(self, what: str) -> None:
        """The client waits, and tries again."""
        if what not in self._said and len(self._said) < _SAID_MAX:
            self._said.add(what)
            _log.warning("waiting: %s", what)

    def over(self) -> None:
        """Something has arrived."""
        self._said.clear()


@contextmanager
def interruptible() -> Iterator[None]:
    """Around a call of librdkafka that runs callbacks, such as for a log line during an outage. It loses what a
    signal's handler raises inside one of them, and raises SystemError: that becomes KeyboardInterrupt."""
    try:
        yield
    except SystemError as error:
        raise KeyboardInterrupt from error


def check_settings(settings: Mapping[str, str], side: Side) -> list[WrongConfiguration]:
    """What librdkafka refuses: each key alone, or what their combination does."""
    return [
        UnknownKey([_unknown(key)])
        if "No such configuration property" in said
        else WrongType([f"{key or 'Properties'}: {said}"])
        for key, said in refused_keys(settings, lambda part: _refusal(part, side)).items()
    ]


def _unknown(key: str) -> str:
    guess = meant(key)
    return f"{key}: librdkafka has no such key" + (f"; {guess}" if guess else "")


def _refusal(settings: Mapping[str, str], side: Side) -> str | None:
    if (wrong := unreadable_file(settings)) is not None:
        return wrong
    probe: dict[str, Any] = {**settings, "log_level": 0}
    probe.pop("bootstrap.servers", None)
    try:
        if side == "producer":
            made(Producer, probe)
        else:
            made(Consumer, {"group.id": "check", **probe}).close()
    except (KafkaException, ValueError, TypeError) as error:
        return words(error)
    return None


def families(
    side: str, status: Mapping[str, Any], heartbeats: Sequence[Mapping[str, Any]]
) -> Iterator[Any]:
    """Metric families of prometheus_client. heartbeats: rows of HeartbeatWatch.status."""
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    for name, text in _HELP.items():
        if name in status:
            family = CounterMetricFamily(f"aolog_client_{name}", text, labels=["client"])
            family.add_metric([side], status[name])
            yield family
    age = GaugeMetricFamily(
        "aolog_client_heartbeat_age_seconds", "Age of the last heartbeat.", labels=["topic", "from"]
    )
    overdue = GaugeMetricFamily(
        "aolog_client_heartbeat_overdue",
        "1 for a heartbeat that is overdue.",
        labels=["topic", "from"],
    )
    for row in heartbeats:
        age.add_metric([row["topic"], row["client_id"]], row["age_s"])
        overdue.add_metric([row["topic"], row["client_id"]], float(row["overdue"]))
    if heartbeats:
        yield age
        yield overdue
