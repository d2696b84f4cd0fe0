"""Producer: sends messages to Kafka, as hazdev-broker's JSON configures it.

`send` waits for the acknowledgement, or with `producer.type` = `async` returns at once. librdkafka
does the work: batches, retries, order. This module owns no queue. An asynchronous message that failed
is never forgotten: `flush` and `close` raise its error unless the caller has taken it from its Delivery.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any, Self

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka import Producer as KafkaProducer

from aolog.errors import RecordRefused, counted, not_copied
from bridge.client.config import Source, load
from bridge.client.connection import CLIENT_ID, PRODUCER_DEFAULTS, Waiting, families, interruptible
from bridge.client.delivery import Delivery, Failures, Route, send_failed
from bridge.client.errors import ClientClosed, MissingTopic, SendFailed
from bridge.client.heartbeat import HeartbeatSender, make_heartbeat
from bridge.client.signing import Sign, signer_of
from bridge.kafka.client import ALL_DOWN, away, let_go, made
from bridge.kafka.client_limits import client_headers, over_queue, queue_kbytes_of
from bridge.kafka.lane import is_topic_name

_log = logging.getLogger("bridge.client")
_WAIT_S = 0.1  # a signal's handler runs so soon
_POLL_EVERY = 512  # sends between two looks at the reports, which cost as much as a send


class Producer:
    """A producer on a cluster. Thread-safe.

    source: JSON text, a dictionary, or the path of a file. notices: what was changed or ignored in
    it; they are logged too. Connects in the background: a cluster that is away is no error until a
    message has waited for delivery.timeout.ms (120 s unless set). A topic that is missing is created
    where the cluster allows it. Keys go to the partitions where the Java client puts them.
    Raises WrongConfiguration, or the class of the mistake.
    """

    def __init__(self, source: Source) -> None:
        options = load(source, "producer")
        self.notices = options.notices
        self._is_sync = options.is_sync
        self._sign: Sign | None = None
        if options.signing is not None:
            self._sign = signer_of(options.signing, options.base)
        self._servers = options.settings["bootstrap.servers"]
        self.last_error: str | None = None
        self._failures, self._waiting = Failures(), Waiting()
        self._queue_kbytes: dict[KafkaProducer, int] = {}
        self._default = self._make(options.settings)
        self._by_topic = {
            topic: self._make(settings) for topic, settings in options.topic_settings.items()
        }
        self._producers = (self._default, *self._by_topic.values())
        self._sent = 0
        self._is_closed = False
        self._all_routes: list[Route] = []  # also once it is closed
        self._routes: dict[str, Route] = {}  # of topics that were sent to; none once it is closed
        self._client_id = options.settings.get("client.id", CLIENT_ID)
        self._heartbeats = HeartbeatSender(
            self._client_id, options.heartbeat_s, self._send_heartbeat
        )

    def _make(self, settings: dict[str, str]) -> KafkaProducer:
        fast = {"linger.ms": 0} if self._is_sync else {}  # nothing to wait for
        with_defaults: dict[str, Any] = {**fast, **PRODUCER_DEFAULTS, **settings}
        producer = made(KafkaProducer, {**with_defaults, "error_cb": self._on_error})
        self._queue_kbytes[producer] = queue_kbytes_of(with_defaults)
        return producer

    def _on_error(self, error: KafkaError) -> None:
        if error.code() != ALL_DOWN:  # how many are down says less than why one is
            self.last_error = self._failures.away = away(error.str(), self._servers)
            self._waiting.say(self.last_error)

    # --- sending ------------------------------------------------------------------------------

    def send(
        self,
        topic: str,
        data: bytes | None,
        key: bytes | str | None = None,
        partition: int | None = None,
        *,
        headers: Sequence[tuple[str, bytes | None]] = (),
        timestamp_ms: int | None = None,
        wait: bool | None = None,
        block: bool = True,
    ) -> Delivery:
        """Sends a message; its topic, partition, offset and timestamp.

        wait: whether to wait for the acknowledgement; None: as producer.type says. An asynchronous
        Delivery waits when one of its attributes is asked for. Where librdkafka's queue is full,
        the call waits for room, or without `block` raises BufferError; a message larger than the queue
        fails at once. Raises SendFailed, MissingTopic, ClientClosed, and RecordRefused for what can be no
        message.
        """
        route = self._routes.get(topic) or self._route_to(topic)
        if key is not None and isinstance(key, str):
            key = key.encode()
        if headers:
            headers = client_headers(headers)
        if self._sign is not None:
            timestamp_ms = timestamp_ms or time.time_ns() // 1_000_000
            headers = [*headers, self._sign(topic, key, data, timestamp_ms)]
        where = -1 if partition is None else partition
        delivery = Delivery(route)
        while True:
            try:
                if headers or timestamp_ms:
                    with_headers: Any = list(headers)
                    route.produce(
                        topic, data, key, where, delivery, None, timestamp_ms or 0, with_headers
                    )
                else:  # the client takes longer with more arguments
                    route.produce(topic, data, key, where, delivery)
                break
            except BufferError:
                pass
            except KafkaException as error:
                self._failures.count += 1
                raise send_failed(topic, error.args[0]) from None
            except (TypeError, ValueError, OverflowError) as error:
                raise RecordRefused(f"the client cannot take a message: {error}") from None
            self._wait_for_room(route, data, block=block)
        self._sent = sent = self._sent + 1
        if self._is_sync if wait is None else wait:
            delivery.result()
        elif sent % _POLL_EVERY == 0:
            with interruptible():
                route.producer.poll(0)
        return delivery

    def _wait_for_room(self, route: Route, data: bytes | None, *, block: bool) -> None:
        """Waits a moment for room in the queue. Raises SendFailed if it never has room for this, and BufferError
        without `block`."""
        why = over_queue(len(data or b""), self._queue_kbytes[route.producer])
        if why is not None:
            self._failures.count += 1
            raise send_failed(route.topic, KafkaError(KafkaError.MSG_SIZE_TOO_LARGE, why))
        if not block:
            raise BufferError
        with interruptible():
            route.producer.poll(_WAIT_S)

    def send_string(
        self, topic: str, text: str, key: bytes | str | None = None, partition: int | None = None
    ) -> Delivery:
        """As `send`, of a string in UTF-8."""
        return self.send(topic, text.encode(), key, partition)

    def _route_to(self, topic: str) -> Route:
        """The route of a topic that is sent to for the first time."""
        if self._is_closed:
            raise ClientClosed("the producer is closed", hint="make a new one")
        if not isinstance(topic, str) or not is_topic_name(topic):
            raise MissingTopic([f"{topic!r} is not a topic's name"])
        producer = self._by_topic.get(topic, self._default)
        route = self._routes[topic] = Route(topic, producer, self._failures)
        self._all_routes.append(route)
        self._heartbeats.add(topic)
        return route

    # --- heartbeats ---------------------------------------------------------------------------

    def send_heartbeat(self, topic: str) -> Delivery:
        """Sends a heartbeat at once. With `HeartbeatInterval` each topic that was sent to gets one
        at that interval without this call."""
        return self.send(topic, make_heartbeat(topic, self._client_id).to_json())

    def _send_heartbeat(self, topic: str, message: bytes) -> None:
        """For the heartbeats' thread. A failure shows in the status, and never in the program."""
        delivery = self.send(topic, message, wait=False)
        delivery.ignore_failure()
        self.serve(0)

    def serve(self, timeout_s: float) -> None:
        """Takes reports on messages; waits so long for the first."""
        for producer in self._producers:
            with suppress(KafkaException):  # a fatal error, which is also each message's
                producer.poll(timeout_s)

    # --- the end ------------------------------------------------------------------------------

    def flush(self, timeout_s: float | None = None) -> int:
        """Waits until every message is acknowledged or has failed; how many are still under way.
        Raises SendFailed for the first asynchronous message that failed and whose Delivery was not
        asked; the messages of the others are in the log lines."""
        until_s = None if timeout_s is None else time.monotonic() + timeout_s
        for producer in self._producers:
            while len(producer):
                rest_s = _WAIT_S if until_s is None else until_s - time.monotonic()
                if rest_s <= 0:
                    break
                with interruptible():
                    producer.flush(min(rest_s, _WAIT_S))
        self._raise_failure()
        return self._under_way()

    def _under_way(self) -> int:
        """Messages that were sent and have no answer. The length of the client also counts its events,
        such as errors. A message may be answered before `send` has counted it."""
        return max(0, self._sent - sum(route.answers for route in self._all_routes))

    def _raise_failure(self) -> None:
        errors = []
        while self._failures.untaken:
            _, message = self._failures.untaken.popitem()
            if (kafkas := message.error()) is not None:  # always: it failed
                errors.append(send_failed(str(message.topic()), kafkas, self._failures.away))
        for error in errors[:-1]:
            _log.error("%s", error)
        if errors:
            raise errors[-1]  # the first that failed

    def close(self, timeout_s: float | None = None) -> None:
        """Flushes and ends. What is under way after timeout_s is dropped: it may have arrived. Raises
        SendFailed for that, and as `flush`, after the end. May be called again."""
        if self._is_closed:
            return
        self._heartbeats.close()
        try:
            self.flush(timeout_s)
        finally:  # after an interrupt, too
            self._is_closed = True
            self._routes.clear()
            dropped = self._drop()
        if dropped is not None:
            raise dropped

    def _drop(self) -> SendFailed | None:
        """Drops what is under way. The error for that, which is logged; None if there was nothing."""
        left = self._under_way()
        for producer in self._producers:
            let_go(producer)
        self._failures.untaken.clear()
        if not left:
            return None
        error = SendFailed(
            f"{counted(left, 'message', ',')} had no answer when the producer was closed",
            hint="they may have arrived; give `close` more time",
            kafka_code="_TIMED_OUT",
        )
        _log.error("%s", error)
        return error

    __reduce__ = not_copied("pass its configuration, and make a Producer there")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- what is seen -------------------------------------------------------------------------

    def status(self) -> dict[str, Any]:
        """Counts since the start, and the last error of a connection."""
        return {
            "sent": self._sent,
            "failed": self._failures.count,
            "under_way": self._under_way(),
            "heartbeats_sent": self._heartbeats.sent,
            "last_error": self.last_error,
        }

    def collect(self) -> Iterable[Any]:
        """Metrics for prometheus_client: `REGISTRY.register(producer)`."""
        return families("producer", self.status(), ())

    # hazdev-broker's names
    sendString = send_string  # noqa: N815
    sendHeartbeat = send_heartbeat  # noqa: N815
