"""What the clients share of librdkafka: defaults, the check of settings, errors in words.

The settings are checked with a client that has no servers: it connects to nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer

from bridge.client.errors import Problem, UnknownKey, WrongType
from bridge.client.properties import Side
from bridge.config.settings import refused_keys
from bridge.kafka.client import made, words
from bridge.kafka.client_limits import QUEUE_KBYTES
from bridge.kafka.setting_files import meant, unreadable_file

_log = logging.getLogger("bridge.client")
_SAID_MAX = 20  # causes until something arrives: a broker's name may be in each
_DEFAULTS: dict[str, dict[str, object]] = {
    "producer": {
        "client.id": "aolog-client",
        "partitioner": "murmur2_random",  # keys go where the Java client's go
        "delivery.timeout.ms": 120_000,  # the Java client's default; librdkafka's is five minutes
        "socket.keepalive.enable": True,
        QUEUE_KBYTES: 1 << 20,  # librdkafka's default
    },
    "consumer": {
        "client.id": "aolog-client",
        "enable.auto.offset.store": False,  # a position is stored at the next poll, as Java does
        "topic.metadata.refresh.interval.ms": 5_000,  # a new topic is found within 5 s
        "socket.keepalive.enable": True,
    },
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


def client_settings(given: Mapping[str, str], side: Side) -> dict[str, Any]:
    """With the defaults below what is given."""
    return {**_DEFAULTS[side], **given}


def check_settings(settings: Mapping[str, str], side: Side) -> list[Problem]:
    """What librdkafka refuses: each key alone, or what their combination does."""
    return [
        Problem(UnknownKey, _unknown(key))
        if "No such configuration property" in said
        else Problem(WrongType, f"{key or 'Properties'}: {said}")
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
