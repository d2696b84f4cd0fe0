"""The clients for asyncio: a producer on confluent-kafka's own AIOProducer, and Consumer in a thread.

The configuration, heartbeats and errors are those of Producer and Consumer. Differences: a producer's
`send` returns when the message is acknowledged, and many may be awaited at once; AIOProducer takes no
headers, so a producer's signing is refused; a consumer has neither `fetch` nor `backfill`. Make both
inside a running loop.
"""

from __future__ import annotations

import asyncio
import logging
import time
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypeVar

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.aio import AIOProducer

from aolog.aio import Worker
from bridge.client.config import load
from bridge.client.connection import client_settings
from bridge.client.consumer import Consumer, until
from bridge.client.delivery import send_failed
from bridge.client.errors import KeyRefused, MissingTopic
from bridge.client.heartbeat import make_heartbeat
from bridge.client.producer import Producer
from bridge.kafka.client import made
from bridge.kafka.client_queue import over_queue, queue_kbytes_of
from bridge.kafka.topic_names import is_topic_name

if TYPE_CHECKING:
    import re
    from collections.abc import AsyncIterator, Callable, Iterable

    from bridge.client.config import Source
    from bridge.client.heartbeat import Heartbeat, Silence
    from bridge.client.received import Received

__all__ = ["AsyncConsumer", "AsyncProducer", "Sent"]

_log = logging.getLogger("bridge.client")
_SLICE_S = 0.2
_T = TypeVar("_T")


class Sent(NamedTuple):
    """The place of a message. timestamp: milliseconds since the epoch, UTC."""

    topic: str
    partition: int
    offset: int
    timestamp: int


class AsyncProducer:
    """As Producer, for asyncio. Raises WrongConfiguration, or the class of the mistake."""

    def __init__(self, source: Source) -> None:
        options = load(source, "producer")
        if options.signing is not None:
            raise KeyRefused(
                ["Signing: confluent-kafka's asyncio client takes no headers; use Producer"]
            )
        if options.topic_settings:
            raise KeyRefused(["Topics: use Producer, or a producer for each topic"])
        self.notices = options.notices
        self._client_id = options.settings.get("client.id", "aolog-client")
        settings = client_settings(options.settings, "producer")
        # Its own timer looks at reports every 0.1 s at best; `_drive` does while there are some.
        self._producer = made(_aio_producer, settings)
        self._queue_kbytes = queue_kbytes_of(settings)
        self._driving: asyncio.Task[None] | None = None
        self._topics: set[str] = set()
        self._beating: asyncio.Task[None] | None = None
        if options.heartbeat_s is not None:
            self._beating = asyncio.ensure_future(self._beat(options.heartbeat_s))

    async def send(
        self,
        topic: str,
        data: bytes | None,
        key: bytes | str | None = None,
        partition: int | None = None,
    ) -> Sent:
        """Sends a message and waits for the acknowledgement. Raises SendFailed, MissingTopic."""
        if topic not in self._topics and not is_topic_name(topic):
            raise MissingTopic([f"{topic!r} is not a topic's name"])
        self._topics.add(topic)
        if (why := over_queue(len(data or b""), self._queue_kbytes)) is not None:
            raise send_failed(topic, KafkaError(KafkaError.MSG_SIZE_TOO_LARGE, why))
        where = {} if partition is None else {"partition": partition}
        key = key.encode() if isinstance(key, str) else key
        try:
            outcome = await self._producer.produce(topic, data, key, **where)
            self._start_driving()
            message = await outcome
        except KafkaException as error:
            raise send_failed(topic, error.args[0]) from None
        if message.error() is not None:
            raise send_failed(topic, message.error())
        return Sent(topic, message.partition(), message.offset(), message.timestamp()[1])

    async def send_string(
        self, topic: str, text: str, key: bytes | str | None = None, partition: int | None = None
    ) -> Sent:
        """As `send`, of a string in UTF-8."""
        return await self.send(topic, text.encode(), key, partition)

    def _start_driving(self) -> None:
        if self._driving is None or self._driving.done():
            self._driving = asyncio.ensure_future(self._drive())

    async def _drive(self) -> None:
        """Sends what the current turn of the loop has collected, and takes reports."""
        await asyncio.sleep(0)
        while len(self._producer):
            await self._producer.flush(_SLICE_S)

    async def _beat(self, interval_s: float) -> None:
        while True:
            await asyncio.sleep(interval_s)
            for topic in sorted(self._topics):
                message = make_heartbeat(topic, self._client_id).to_json()
                outcome = await self._producer.produce(topic, message)
                outcome.add_done_callback(_note_failure)
                self._start_driving()

    async def flush(self) -> None:
        """Waits until every message is acknowledged or has failed."""
        await self._producer.flush()

    async def close(self) -> None:
        """Flushes and ends."""
        if self._beating is not None:
            self._beating.cancel()
        await self._producer.close()

    __reduce__ = Producer.__reduce__  # raises

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    sendString = send_string  # noqa: N815 -- hazdev-broker's name


class AsyncConsumer:
    """Consumer, for asyncio, with its options; its calls run in a thread. on_heartbeat and on_overdue are
    called in the loop. Call `subscribe` first. Raises WrongConfiguration, or the class of the mistake."""

    def __init__(
        self,
        source: Source,
        *,
        on_heartbeat: Callable[[Heartbeat], None] | None = None,
        on_overdue: Callable[[Silence], None] | None = None,
    ) -> None:
        self._consumer = Consumer(
            source, on_heartbeat=_in_loop(on_heartbeat), on_overdue=_in_loop(on_overdue)
        )
        self.notices = self._consumer.notices
        self._calls = Worker("client-consumer")

    async def subscribe(
        self, topics: str | re.Pattern[str] | Iterable[str | re.Pattern[str]]
    ) -> None:
        """These topics from now on, and no others. Raises MissingTopic."""
        await self._calls.run(partial(self._consumer.subscribe, topics))

    async def poll(self, timeout_ms: float = 0) -> list[bytes]:
        """As Consumer.poll. A cancelled poll may have received records: they are lost to this
        consumer. Cancel it between polls."""
        return [record.value or b"" for record in await self.poll_records(timeout_ms)]

    async def poll_string(self, timeout_ms: float = 0) -> list[str]:
        """As Consumer.poll_string."""
        return [value.decode(errors="replace") for value in await self.poll(timeout_ms)]

    async def poll_records(self, timeout_ms: float = 0) -> list[Received]:
        """As Consumer.poll_records. Raises ReceiveFailed, MissingTopic."""
        until_s = until(timeout_ms)
        while True:
            rest_s = _SLICE_S if until_s is None else max(0.0, until_s - time.monotonic())
            slice_ms = min(rest_s, _SLICE_S) * 1_000
            records = await self._calls.run(partial(self._consumer.poll_records, slice_ms))
            if records or (until_s is not None and time.monotonic() >= until_s):
                return records

    async def __aiter__(self) -> AsyncIterator[Received]:
        """Records one by one, without end."""
        while True:
            for record in await self.poll_records(-1):
                yield record

    async def commit(self) -> None:
        """Commits the positions after the records that were returned. Raises ReceiveFailed."""
        await self._calls.run(self._consumer.commit)

    async def close(self) -> None:
        """Leaves the group. With automatic commits, everything returned counts as processed."""
        if not self._calls.ended:
            closing = self._calls.begin(self._consumer.close)
            self._calls.end()
            await asyncio.shield(closing)

    __reduce__ = Consumer.__reduce__  # raises

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    pollString = poll_string  # noqa: N815 -- hazdev-broker's name


def _in_loop(call: Callable[[_T], None] | None) -> Callable[[_T], None] | None:
    if call is None:
        return None
    loop = asyncio.get_running_loop()

    def later(found: _T) -> None:
        loop.call_soon_threadsafe(call, found)

    return later


def _aio_producer(settings: dict[str, Any], logger: logging.Logger) -> AIOProducer:
    return AIOProducer({**settings, "logger": logger}, buffer_timeout=0)


def _note_failure(outcome: asyncio.Future[Any]) -> None:
    if not outcome.cancelled() and outcome.exception() is not None:
        _log.warning("heartbeat: %s", outcome.exception())
