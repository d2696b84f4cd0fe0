"""The clients for asyncio: Producer, whose reports a thread takes, and Consumer in a thread.

The configuration, heartbeats and errors are those of Producer and Consumer. Differences: a producer's
`send` returns when the message is acknowledged, and many may be awaited at once; a consumer has no
`backfill`. Make both inside a running loop.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator, Callable, Iterable
from functools import partial
from typing import Self, TypeVar

from aolog.aio import Worker
from bridge.client.config import Source, load
from bridge.client.consumer import Consumer, until
from bridge.client.delivery import Delivery
from bridge.client.errors import KeyRefused
from bridge.client.heartbeat import Heartbeat, Silence
from bridge.client.producer import Producer
from bridge.client.received import Received

_SLICE_S = 0.2
_ROOM_S = 0.01  # between looks for room in the queue
_REPORTS_S = 0.05  # another thread may have taken the report that is waited for
_T = TypeVar("_T")


class AsyncProducer:
    """As Producer, for asyncio. Raises WrongConfiguration, or the class of the mistake."""

    def __init__(self, source: Source) -> None:
        options = load(source, "producer")
        if options.topic_settings:
            raise KeyRefused(["Topics: use Producer, or a producer for each topic"])
        self.notices = options.notices
        self._producer = Producer(options._replace(is_sync=True))  # which does not linger
        self._calls = Worker("client-producer")
        # Messages are sent in the order of the calls, also if they wait for room.
        self._turn = asyncio.Lock()
        self._under_way: list[tuple[asyncio.Future[None], Delivery]] = []
        self._driving: asyncio.Task[None] | None = None

    async def send(
        self,
        topic: str,
        data: bytes | None,
        key: bytes | str | None = None,
        partition: int | None = None,
    ) -> Delivery:
        """Sends a message and waits for the acknowledgement. The Delivery is done. Raises
        SendFailed, MissingTopic."""
        async with self._turn:
            while True:
                try:
                    delivery = self._producer.send(
                        topic, data, key, partition, wait=False, block=False
                    )
                    break
                except BufferError:  # librdkafka's queue is full
                    await asyncio.sleep(_ROOM_S)
        known: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._under_way.append((known, delivery))
        if self._driving is None or self._driving.done():
            self._driving = asyncio.ensure_future(self._drive())
        await known
        return delivery.result()

    async def send_string(
        self, topic: str, text: str, key: bytes | str | None = None, partition: int | None = None
    ) -> Delivery:
        """As `send`, of a string in UTF-8."""
        return await self.send(topic, text.encode(), key, partition)

    async def _drive(self) -> None:
        """Takes reports while messages are under way."""
        while self._under_way:
            await self._calls.run(partial(self._producer.serve, _REPORTS_S))
            left = []
            for known, delivery in self._under_way:
                if not delivery.is_known:
                    left.append((known, delivery))
                    continue
                delivery.ignore_failure()  # `send` raises it, unless its task was cancelled
                if not known.done():
                    known.set_result(None)
            self._under_way = left

    async def flush(self) -> None:
        """Waits until every message is acknowledged or has failed."""
        if self._driving is not None:
            await asyncio.shield(self._driving)

    async def close(self) -> None:
        """Flushes and ends."""
        if not self._calls.ended:
            await self.flush()
            closing = self._calls.begin(self._producer.close)
            self._calls.end()
            await asyncio.shield(closing)

    __reduce__ = Producer.__reduce__  # raises

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


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


def _in_loop(call: Callable[[_T], None] | None) -> Callable[[_T], None] | None:
    if call is None:
        return None
    loop = asyncio.get_running_loop()

    def later(found: _T) -> None:
        loop.call_soon_threadsafe(call, found)

    return later
