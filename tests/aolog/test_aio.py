"""aolog.aio: nothing blocks the loop, and a cancelled task loses nothing."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

import pytest

import aolog
from aolog import aio
from tests.aolog.conftest import NEVER, read_all, values

if TYPE_CHECKING:
    from collections.abc import Coroutine


class Held:
    """Delays a call of a writer until `release`, as a slow disk does."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
        self.begun, self.over = threading.Event(), threading.Event()
        self.calls = 0
        real = getattr(aolog.Writer, name)

        def held(*args: Any, **options: Any) -> Any:
            self.calls += 1
            self.begun.set()
            assert self.over.wait(30)
            return real(*args, **options)

        monkeypatch.setattr(aolog.Writer, name, held)

    async def wait_begun(self) -> None:
        await asyncio.to_thread(self.begun.wait, 30)


def test_records_are_appended_in_the_order_of_the_calls_and_read_back(log_path: str) -> None:
    async def main() -> list[bytes | None]:
        async with aio.Writer(log_path) as log:
            addresses = await asyncio.gather(*(log.append(b"%d" % i) for i in range(50)))
            assert addresses == sorted(addresses)
            await log.append_many([b"50", b"51"], keys=[b"a", b"b"])
            assert await log.sync() == log.log.durable
        async with aio.Reader(log_path) as reader:
            return [record.value async for record in reader]

    assert asyncio.run(main()) == [b"%d" % i for i in range(52)]


def at_once(call: Coroutine[Any, Any, int]) -> int | None:
    """The result of a call that does not wait, None if it waits."""
    try:
        call.send(None)
    except StopIteration as ended:
        return int(ended.value)
    call.close()
    return None


@pytest.mark.skipif(aolog.backend == "python", reason="in Python every append takes the lock")
def test_an_append_waits_only_where_it_may_block(log_path: str) -> None:
    async def main() -> None:
        async with aio.Writer(log_path, batch_bytes=1000, **NEVER) as log:
            first = await log.append(b"0")
            taken = [
                at_once(log.append(b"%d" % i, key=b"k", headers=(("h", b""),))) for i in (1, 2)
            ]
            assert taken == [first + 1, first + 2]
            assert at_once(log.append(b"a record that the frame has no room for" * 30)) is None
            await log.flush()
            assert at_once(log.append(b"3")) is not None
        assert [record.value for record in read_all(log_path)][:3] == [b"0", b"1", b"2"]

    asyncio.run(main())


def test_an_append_never_overtakes_a_call_that_waits_in_the_thread(
    log_path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        async with aio.Writer(log_path, **NEVER) as log:
            await log.append(b"0")  # a frame is open
            held = Held(monkeypatch, "append_many")
            calls = [log.append_many([b"1", b"2"]), log.append(b"3"), log.flush(), log.append(b"4")]
            tasks = [asyncio.ensure_future(call) for call in calls]
            await held.wait_begun()
            assert not any(task.done() for task in tasks)
            held.over.set()
            await asyncio.gather(*tasks)
            await log.append(b"5")

    asyncio.run(main())
    assert values(log_path) == [b"%d" % i for i in range(6)]


def test_every_append_is_refused_as_without_asyncio(log_path: str) -> None:
    async def main() -> None:
        async with aio.Writer(log_path, max_record_bytes=10, **NEVER) as log:
            await log.append(b"a")
            with pytest.raises(aolog.RecordRefused):
                await log.append("text")  # type: ignore[arg-type]  # on purpose
            with pytest.raises(aolog.RecordTooLarge):
                await log.append(bytes(11))
            await log.append(b"b")
            await log.give_up()
            with pytest.raises(aolog.LogClosed):
                await log.append(b"c")

    asyncio.run(main())


def test_an_append_of_a_task_that_is_being_cancelled_is_taken(log_path: str) -> None:
    async def main() -> None:
        async with aio.Writer(log_path, **NEVER) as log:
            await log.append(b"a")

            async def append() -> None:
                task = asyncio.current_task()
                assert task is not None
                task.cancel()
                await log.append(b"b")
                await asyncio.sleep(0)

            with pytest.raises(asyncio.CancelledError):
                await asyncio.create_task(append())

    asyncio.run(main())
    assert values(log_path) == [b"a", b"b"]


def test_the_loop_runs_while_a_sync_waits_for_the_device_and_appends_go_on(
    log_path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        async with aio.Writer(log_path) as log:
            await log.append(b"a")
            held = Held(monkeypatch, "sync")
            first = asyncio.create_task(log.sync())
            await held.wait_begun()
            await log.append(b"b")
            others = [asyncio.create_task(log.sync()) for _ in range(20)]
            await asyncio.sleep(0)
            assert not first.done()
            held.over.set()
            durable = await asyncio.gather(first, *others)
            assert held.calls == 2  # the twenty share one
            assert durable[-1] == log.log.end

    asyncio.run(main())


def test_a_cancelled_append_returns_at_once_and_is_taken(
    log_path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        async with aio.Writer(log_path) as log:
            held = Held(monkeypatch, "append_many")
            task = asyncio.create_task(log.append_many([b"a", b"b"]))
            await held.wait_begun()
            later = asyncio.create_task(log.append(b"c"))
            await asyncio.sleep(0)
            for each in (task, later):
                each.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await each
            held.over.set()

    asyncio.run(main())
    assert values(log_path) == [b"a", b"b", b"c"]


def test_the_error_of_a_call_whose_task_was_cancelled_is_logged(
    log_path: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with aio.Writer(log_path, max_record_bytes=10) as log:
            held = Held(monkeypatch, "append_many")
            task = asyncio.create_task(log.append_many([bytes(11)]))
            await held.wait_begun()
            task.cancel()
            await asyncio.sleep(0)
            held.over.set()

    asyncio.run(main())
    assert "max_record_bytes" in caplog.text


def test_follow_gets_what_is_appended_later_and_a_cancelled_wait_loses_no_record(
    log_path: str,
) -> None:
    async def main() -> list[bytes | None]:
        found: list[bytes | None] = []
        async with aio.Writer(log_path, flush_records=1) as log, aio.Reader(log_path) as reader:

            async def follow() -> None:
                async for record in reader.follow():
                    found.append(record.value)

            for i in range(20):
                task = asyncio.create_task(follow())
                await asyncio.sleep(0.002 * (i % 3))
                await log.append_many([b"%d" % i, b"%d'" % i])
                await asyncio.sleep(0.002 * (i % 4))
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
            async for record in reader.follow(timeout=0.3):
                found.append(record.value)
        return found

    assert asyncio.run(main()) == [b"%d%s" % (i, end) for i in range(20) for end in (b"", b"'")]


def test_a_commit_is_after_the_last_record_that_was_returned(log_path: str) -> None:
    with aolog.Writer(log_path) as writer:
        for i in range(3):
            writer.append_many([b"%d" % (10 * i + k) for k in range(10)])

    async def read(count: int) -> list[bytes | None]:
        async with aio.Reader(log_path, cursor="c") as reader:
            begin = reader.tell()
            records = [await reader.read() for _ in range(count)]
            assert records[0] is not None
            assert records[0].address >= begin
            await reader.commit()
            assert (await reader.lag()).records is not None
            return [record.value for record in records if record is not None]

    found = [value for n in (1, 9, 5, 15) for value in asyncio.run(read(n))]
    assert found == [b"%d" % i for i in range(30)]


def test_a_batch_begins_with_what_was_read_ahead(log_path: str) -> None:
    with aolog.Writer(log_path) as writer:
        writer.append_many([b"%d" % i for i in range(10)])

    async def main() -> None:
        async with aio.Reader(log_path) as reader:
            assert (await reader.read()) == read_all(log_path)[0]
            batch = await reader.read_batch()
            assert batch is not None
            assert [r.value for r in batch] == [b"%d" % i for i in range(1, 10)]
            assert await reader.read_batch(timeout=0.01) is None
            assert await reader.seek(ordinal=3) == reader.tell()
            assert (await reader.read()) == read_all(log_path)[3]

    asyncio.run(main())


def test_a_seek_whose_task_is_cancelled_moves_and_what_was_read_ahead_is_dropped(
    log_path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with aolog.Writer(log_path) as writer:
        for i in range(3):
            writer.append_many([b"%d" % (10 * i + k) for k in range(10)])
    begun, over, seek = threading.Event(), threading.Event(), aolog.Reader.seek

    def held(self: aolog.Reader, *args: Any, **options: Any) -> int:
        begun.set()
        assert over.wait(30)
        return seek(self, *args, **options)

    async def value(reader: aio.Reader) -> bytes | None:
        record = await reader.read()
        assert record is not None
        return record.value

    async def cancelled(reader: aio.Reader, **where: int) -> None:
        task = asyncio.create_task(reader.seek(**where))
        await asyncio.to_thread(begun.wait, 30)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    async def main() -> None:
        async with aio.Reader(log_path, cursor="c") as reader:
            assert await value(reader) == b"0"
            monkeypatch.setattr(aolog.Reader, "seek", held)
            await cancelled(reader, ordinal=25)
            assert await value(reader) == b"1"  # the seek is not made yet
            over.set()
            await reader.commit()
            assert [await value(reader) for _ in range(5)] == [b"%d" % i for i in range(25, 30)]
            monkeypatch.undo()
            await cancelled(reader, ordinal=99)  # it fails, and the reader stays
            assert await reader.read() is None
            assert await reader.seek(ordinal=7) == reader.tell()
            assert await value(reader) == b"7"

    asyncio.run(main())


def test_an_append_that_waits_for_room_does_not_stop_the_loop_and_give_up_ends_it(
    log_path: str,
) -> None:
    with aolog.Writer(log_path, slab_bytes=8 << 10) as writer:
        writer.append(b"x")
        aolog.Reader(log_path, cursor="slow").commit()
    block = aolog.Retention(max_bytes=16 << 10, when_full="block")

    async def main() -> None:
        log = await aio.Writer(log_path, slab_bytes=8 << 10, retention=block).__aenter__()
        task = asyncio.create_task(_fill(log))
        await asyncio.sleep(0.3)
        assert not task.done()
        await log.give_up()
        with pytest.raises(aolog.LogClosed):
            await task

    async def _fill(log: aio.Writer) -> None:
        while True:
            await log.append(bytes(4 << 10))

    asyncio.run(main())


def test_an_error_of_opening_is_raised_and_nothing_stays_open(log_path: str) -> None:
    async def main() -> None:
        async with aio.Writer(log_path):
            with pytest.raises(aolog.LogLocked):
                async with aio.Writer(log_path):
                    pass
        with pytest.raises(aolog.NotALog):
            async with aio.Reader(log_path + "-none"):
                pass

    asyncio.run(main())
    aolog.Writer(log_path).close()


def test_what_is_closed_may_be_closed_again_and_refuses_other_calls(log_path: str) -> None:
    async def main() -> None:
        async with aio.Writer(log_path) as log:
            await log.append(b"a")
            await log.close()
            await log.close()
            with pytest.raises(aolog.LogClosed):
                await log.append(b"b")
        async with aio.Writer(log_path) as log:
            await log.give_up()
        async with aio.Reader(log_path) as reader:
            await reader.close()
            with pytest.raises(aolog.LogClosed):
                await reader.commit()

    asyncio.run(main())
    assert values(log_path) == [b"a"]
