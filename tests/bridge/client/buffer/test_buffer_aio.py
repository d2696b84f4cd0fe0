"""Buffer from asyncio: the loop goes on while a message waits."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from aolog.errors import LogClosed
from bridge.client.buffer.aio import AsyncBuffer
from bridge.client.buffer.provider import NotDelivered
from bridge.testing import FaultyProvider, MemoryProvider


def test_messages_arrive_in_the_order_of_the_calls(tmp_path: Path) -> None:
    memory = MemoryProvider()

    async def main() -> None:
        async with AsyncBuffer(memory, tmp_path / "log", mode="always") as buffer:
            await asyncio.gather(*(buffer.send("t", b"%d" % i) for i in range(100)))
            assert await buffer.flush(10)
            assert buffer.status().error is None

    asyncio.run(main())
    assert [message.value for message in memory.messages] == [b"%d" % i for i in range(100)]


def test_a_send_that_waits_for_room_does_not_stop_the_loop_and_close_ends_it() -> None:
    provider = FaultyProvider(MemoryProvider())
    provider.down = True

    async def main() -> None:
        buffer = await AsyncBuffer(
            provider, mode="block", memory_messages=2, close_s=0.1
        ).__aenter__()
        sends = [asyncio.create_task(buffer.send("t", b"%d" % i)) for i in range(6)]
        await asyncio.sleep(0.2)
        assert not sends[-1].done()
        with pytest.raises(NotDelivered):
            await buffer.close()
        results = await asyncio.gather(*sends, return_exceptions=True)
        assert isinstance(results[-1], LogClosed)

    asyncio.run(main())
