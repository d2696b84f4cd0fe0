"""`Buffer` from asyncio: no call blocks the event loop.

    async with AsyncBuffer(provider, "path") as buffer:
        await buffer.send("topic", b"value", key=b"key")

A message is accepted when `send` returns. A task that is cancelled leaves its call at once, and the call
goes on in its thread (see aolog.aio).
"""

from __future__ import annotations

import os
from functools import partial
from typing import Any, Self

from aolog.aio import Worker, opened
from aolog.record import Headers
from bridge.client.buffer.buffer import Buffer
from bridge.client.buffer.provider import Provider
from bridge.client.buffer.settings import BufferStatus


class AsyncBuffer:
    """`bridge.Buffer`, with its options. `async with` opens and closes it."""

    def __init__(
        self, provider: Provider, path: str | os.PathLike[str] | None = None, **options: Any
    ) -> None:
        self._open = partial(Buffer, provider, path, **options)
        self._sends, self._waits = Worker("buffer-send"), Worker("buffer-wait")
        self._buffer: Buffer | None = None

    __reduce__ = Buffer.__reduce__  # raises

    async def __aenter__(self) -> Self:
        try:
            self._buffer = await opened(self._sends, self._open)
        except BaseException:
            self._end()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @property
    def _opened(self) -> Buffer:
        assert self._buffer is not None, "open it with `async with`"
        return self._buffer

    async def send(
        self, topic: str, value: bytes | None, key: bytes | None = None, headers: Headers = ()
    ) -> None:
        """See `bridge.Buffer.send`. Messages are accepted in the order of the calls."""
        await self._sends.run(partial(self._opened.send, topic, value, key, headers))

    async def flush(self, timeout_s: float | None = None) -> bool:
        """See `bridge.Buffer.flush`: for the messages whose `send` has returned."""
        return await self._waits.run(partial(self._opened.flush, timeout_s))

    def status(self) -> BufferStatus:
        """See `bridge.Buffer.status`."""
        return self._opened.status()

    async def close(self) -> None:
        """See `bridge.Buffer.close`. A `send` that waits for room raises LogClosed. Idempotent."""
        closer = Worker("buffer-close")  # the other threads may be waiting
        try:
            if self._buffer is not None:
                await closer.run(self._buffer.close)
        finally:
            closer.end()
            self._end()

    def _end(self) -> None:
        self._sends.end()
        self._waits.end()
