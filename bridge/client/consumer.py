"""Consumer: receives the records of topics, as hazdev-broker's JSON configures it.

`poll` returns what has arrived, without heartbeats, and with signatures verified where that is
configured. An outage is waited out. An error that waiting does not solve is raised once everything
received before it has been returned.
"""

from __future__ import annotations

import logging
import math
import re
import time
from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Self

from confluent_kafka import Consumer as KafkaConsumer
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from aolog.errors import AologError, UsageError, not_copied
from bridge.client.config import Source, load
from bridge.client.connection import CONSUMER_DEFAULTS, Waiting, families, interruptible
from bridge.client.errors import ClientClosed, MissingTopic, ReceiveFailed
from bridge.client.heartbeat import Heartbeat, HeartbeatWatch, Silence, heartbeat_in
from bridge.client.positions import Positions
from bridge.client.received import Received, received
from bridge.client.signing import keys_of, verify
from bridge.kafka.client import ALL_DOWN, away, made, words
from bridge.kafka.consumed import Omissions
from bridge.kafka.error_table import ends_reading, row_of
from bridge.kafka.lane import is_topic_name

if TYPE_CHECKING:
    from aolog.format.signature import Keys
    from bridge.client.files.log_tap import LogTap
    from bridge.kafka.catalog import Place

_log = logging.getLogger("bridge.client")
_RESET = "auto.offset.reset"
_TRUE = {"true", "t", "1"}  # as librdkafka reads them
_SLICE_S = 0.2  # a wait without end is cut so that a signal's handler runs


class Consumer:
    """A member of a consumer group. For one thread at a time.

    source: JSON text, a dictionary, or the path of a file; topics that an application's file names are
    subscribed. on_heartbeat, on_overdue: called in `poll`. keeper: of positions of its own. Offsets are
    committed automatically unless enable.auto.commit is false; see positions.py. Raises
    WrongConfiguration, or the class of the mistake.
    """

    def __init__(
        self,
        source: Source,
        *,
        on_heartbeat: Callable[[Heartbeat], None] | None = None,
        on_overdue: Callable[[Silence], None] | None = None,
        keeper: LogTap | None = None,
    ) -> None:
        options = load(source, "consumer")
        self.notices = options.notices
        self._poll_records = options.poll_records
        self._settings = {**CONSUMER_DEFAULTS, **options.settings}
        automatic = str(self._settings.get("enable.auto.commit", "true"))
        self._is_automatic = automatic.lower() in _TRUE
        self._resets = str(self._settings.get(_RESET, "latest")).lower() != "error"
        self._keys: Keys | None = None
        if options.signing is not None:
            self._keys = keys_of(options.signing, options.base)
            self._drops = options.signing.on_failure == "drop"
        self.last_error: str | None = None
        self._consumer = made(KafkaConsumer, {**self._settings, "error_cb": self._on_error})
        self._positions = Positions(self._consumer, self._settings, keeper)
        self._watch = HeartbeatWatch(
            options.heartbeat_s, on_heartbeat=on_heartbeat, on_overdue=on_overdue
        )
        self._topics: list[str] = []  # names, and patterns, which begin with ^
        self._failure: AologError | None = None  # raised by the next poll
        self._waiting = Waiting()
        self._received = self._dropped = 0
        self._omissions = Omissions()
        self._is_closed = False
        if options.topics:
            self.subscribe(options.topics)

    def _on_error(self, error: KafkaError) -> None:
        if error.code() != ALL_DOWN:  # how many are down says less than why one is
            self.last_error = away(error.str(), self._settings["bootstrap.servers"])
            self._waiting.say(self.last_error)

    # --- subscription -------------------------------------------------------------------------

    def subscribe(self, topics: str | re.Pattern[str] | Iterable[str | re.Pattern[str]]) -> None:
        """These topics from now on, and no others. A compiled pattern, or a text that begins with ^,
        means all topics that match it, new ones within 5 s. A topic that does not exist is waited
        for. Raises MissingTopic."""
        self._subscribe(topic_names(topics))

    def add_topics(self, *topics: str | re.Pattern[str]) -> None:
        """Subscribes to these as well, while records keep coming."""
        self._subscribe([*self._topics, *(n for n in topic_names(topics) if n not in self._topics)])

    def remove_topics(self, *topics: str | re.Pattern[str]) -> None:
        """Leaves these. Raises MissingTopic for one that is not subscribed, or for the last."""
        names = topic_names(topics)
        for name in names:
            if name not in self._topics:
                raise MissingTopic([f"{name!r} is not subscribed"])
        self._subscribe([name for name in self._topics if name not in names])

    def _subscribe(self, names: list[str]) -> None:
        self._check()
        if not names:
            raise MissingTopic(["no topic is named"])
        self._consumer.subscribe(
            names, on_assign=self._positions.assigned, on_revoke=self._positions.revoked
        )
        self._topics = names
        self._watch.expect(name for name in names if not name.startswith("^"))

    def backfill(self, ago: float | timedelta) -> None:
        """Goes back to the first record of each partition that is at most so old (seconds), now and
        in each partition that is assigned later, once in each. Earlier commits do not count."""
        seconds = ago.total_seconds() if isinstance(ago, timedelta) else ago
        if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not seconds >= 0:
            raise UsageError(f"backfill({ago!r})", hint="use a number of seconds, or a timedelta")
        self._check()
        try:
            self._positions.backfill(seconds)
        except KafkaException as error:
            raise receive_failed(error.args[0]) from None

    # --- receiving ----------------------------------------------------------------------------

    def poll(self, timeout_ms: float = 0) -> list[bytes]:
        """The values of the records that have arrived, in the order of each partition.

        timeout_ms: how long to wait for the first one; 0: not at all; negative: without end, until a
        signal's handler raises. An empty list: none has arrived. A record without a value is b"".
        Raises ReceiveFailed, SignatureForged, SignatureMissing, MissingTopic, ClientClosed.
        """
        return [record.value or b"" for record in self.poll_records(timeout_ms)]

    def poll_string(self, timeout_ms: float = 0) -> list[str]:
        """As `poll`, in UTF-8; bytes that are not UTF-8 become U+FFFD."""
        return [value.decode(errors="replace") for value in self.poll(timeout_ms)]

    def poll_records(self, timeout_ms: float = 0) -> list[Received]:
        """As `poll`: the records with their keys, headers and places."""
        self._check()
        until_s = until(timeout_ms)
        if not self._topics:
            raise MissingTopic(["nothing is subscribed; call subscribe first"])
        if self._is_automatic:
            self._positions.store()
        self._raise_failure()
        while True:
            rest_s = _SLICE_S if until_s is None else max(0.0, until_s - time.monotonic())
            messages = self._messages(min(rest_s, _SLICE_S))
            records = self._records(messages)
            self._watch.overdue()
            if records:
                for each in records:
                    self._positions.passed(each.topic, each.partition, each.offset)
                self._received += len(records)
                self._waiting.over()
                return records
            self._raise_failure()
            if until_s is not None and time.monotonic() >= until_s:
                return []

    def _raise_failure(self) -> None:
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure

    def _messages(self, timeout_s: float) -> list[Any]:
        """What has arrived, waiting for the first only: `consume` waits for the last."""
        with interruptible():
            first = self._consumer.poll(timeout_s)
            if first is None:
                return []
            rest = self._poll_records - 1
            return [first, *(self._consumer.consume(rest, timeout=0) if rest else ())]

    def _records(self, messages: list[Any]) -> list[Received]:
        """The data in messages, up to a failure, which is kept. After a failure the position goes
        back, so that nothing that arrived is passed over."""
        records: list[Received] = []
        for i, message in enumerate(messages):
            if message.error() is not None:
                self._failure = self._failure_of(message.error())
            else:
                self._take(message, records)
            if self._failure is not None:
                self._go_back(messages[i + 1 :])
                break
        return records

    def _take(self, message: Any, records: list[Received]) -> None:
        record = received(message, self._omissions)
        if self._keys is not None:
            try:
                verify(self._keys, message)
            except AologError as error:
                if self._drops:
                    self._dropped += 1
                    _log.error("dropped: %s", error)
                else:
                    self._failure = error
                self._positions.passed(message.topic(), message.partition(), message.offset())
                return
        heartbeat = heartbeat_in(record.value)
        if heartbeat is not None:
            self._positions.passed(message.topic(), message.partition(), message.offset())
            self._watch.take(heartbeat)
        else:
            records.append(record)

    def _go_back(self, messages: list[Any]) -> None:
        """These were received and are to be received again."""
        firsts: dict[Place, int] = {}
        for message in messages:
            if message.error() is None:
                firsts.setdefault((message.topic(), message.partition()), message.offset())
        for (topic, partition), offset in firsts.items():
            self._consumer.seek(TopicPartition(topic, partition, offset))

    def _failure_of(self, error: KafkaError) -> ReceiveFailed | None:
        """None: it is waited out. What is waited for is logged once."""
        code = error.name()
        if code == "_PARTITION_EOF":
            return None
        if ends_reading(code, resets=self._resets):
            return receive_failed(error)
        self.last_error = error.str()
        self._waiting.say(f"{code}: {self.last_error}")
        return None

    def __iter__(self) -> Iterator[Received]:
        """Records one by one, without end. Raises as `poll`."""
        while True:
            yield from self.poll_records(-1)

    def commit(self) -> None:
        """Commits the positions after the records that were returned, and waits for it. Raises
        ReceiveFailed."""
        self._check()
        try:
            self._positions.commit()
        except KafkaException as error:
            raise receive_failed(error.args[0]) from None

    # --- the end ------------------------------------------------------------------------------

    def close(self) -> None:
        """Leaves the group. With automatic commits, everything returned counts as processed. May be
        called again."""
        self._end(processed=True)

    def _end(self, *, processed: bool) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        if processed and self._is_automatic:
            self._positions.store()
        self._consumer.close()

    def _check(self) -> None:
        if self._is_closed:
            raise ClientClosed("the consumer is closed", hint="make a new one")

    __reduce__ = not_copied("pass its configuration, and make a Consumer there")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._end(processed=kind is None)

    # --- what is seen -------------------------------------------------------------------------

    def status(self) -> dict[str, Any]:
        """Counts since the start, subscriptions, and a row for each sender of heartbeats."""
        return {
            "received": self._received,
            "dropped": self._dropped,
            "headers_left_out": self._omissions.headers,
            "topics": list(self._topics),
            "heartbeats_received": self._watch.received,
            "heartbeats": self._watch.status(),
            "last_error": self.last_error,
        }

    def collect(self) -> Iterable[Any]:
        """Metrics for prometheus_client: `REGISTRY.register(consumer)`."""
        status = self.status()
        return families("consumer", status, status["heartbeats"])

    pollString = poll_string  # noqa: N815 -- hazdev-broker's name


def topic_names(topics: str | re.Pattern[str] | Iterable[str | re.Pattern[str]]) -> list[str]:
    """As librdkafka takes them. Raises MissingTopic."""
    listed = [topics] if isinstance(topics, str | re.Pattern) else list(topics)
    names = []
    for topic in listed:
        name = topic if isinstance(topic, str) else "^" + topic.pattern.removeprefix("^")
        if not name.startswith("^") and not is_topic_name(name):
            raise MissingTopic([f"{name!r} is not a topic's name"])
        names.append(name)
    return names


def until(timeout_ms: float) -> float | None:
    """When a wait ends, on the monotonic clock; None: never. Raises UsageError."""
    is_number = isinstance(timeout_ms, int | float) and not isinstance(timeout_ms, bool)
    if not is_number or math.isnan(timeout_ms):
        raise UsageError(f"timeout_ms={timeout_ms!r}", hint="use a number of milliseconds")
    return None if timeout_ms < 0 else time.monotonic() + timeout_ms / 1_000


def receive_failed(error: KafkaError) -> ReceiveFailed:
    """Kafka's error in words, with what to do about it."""
    code = error.name()
    return ReceiveFailed(
        f"{code}: {words(KafkaException(error))}", hint=row_of(code).does, kafka_code=code
    )
