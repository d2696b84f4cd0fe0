"""`aolog.aio`: a log from asyncio. No call blocks the event loop.

    async with aio.Writer("path") as log:
        await log.append(b"value", key=b"key")
        await log.sync()
    async with aio.Reader("path", cursor="billing") as log:
        async for record in log.follow():
            ...

Calls that may block run in threads: a writer has one for appends and one for syncs, a reader has one. An
append that only puts a record into the open frame needs no thread, and lets no other task run. A task that
is cancelled leaves its call at once, and the call goes on in its thread: an append is taken, a commit is
stored, and what a read returned is the result of the next read. Calls of a writer are executed in the order
in which they were made. Use an object in one event loop.
"""

from __future__ import annotations

import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeVar

from aolog.errors import LogClosed, fault
from aolog.format.native.inlet import join
from aolog.format.native.speed import AsyncRows
from aolog.read.batch import Batch, FrameRecords, RecordFrame
from aolog.read.reader import Reader as _Reader
from aolog.read.reader import view_of
from aolog.record import Position
from aolog.write.writer import Writer as _Writer

if TYPE_CHECKING:
    import os
    from collections.abc import AsyncIterator, Callable, Iterable

    import numpy as np

    from aolog.read.seek import Start
    from aolog.record import Headers, Lag, Record

__all__ = ["Reader", "Worker", "Writer"]


class _Closable(Protocol):
    def close(self) -> None: ...


_T = TypeVar("_T")
_Log = TypeVar("_Log", bound=_Closable)
_WAIT_S = 0.2  # a thread that waits for records checks this often whether its reader is closed
_DAY_S = 86_400.0
# What is read for single records: a call in the thread takes as long as a thousand of them.
_AHEAD_BYTES = 1 << 20


class Worker:
    """A thread that executes calls one after the other."""

    def __init__(self, name: str) -> None:
        self._executor = ThreadPoolExecutor(1, thread_name_prefix=name)
        self.ended = False
        self.begun = 0  # calls; only the loop's thread changes it
        self.executed = 0  # of them; only this thread changes it

    def begin(self, call: Callable[[], _T]) -> asyncio.Future[_T]:
        """Starts a call after the earlier ones. Returns its future. Raises LogClosed after `end`."""
        if self.ended:
            raise LogClosed("it is closed", hint="open another")
        future = asyncio.get_running_loop().run_in_executor(self._executor, self._execute, call)
        self.begun += 1
        return future

    def _execute(self, call: Callable[[], _T]) -> _T:
        try:
            return call()
        finally:
            self.executed += 1

    async def run(self, call: Callable[[], _T], done: Callable[[_T], None] | None = None) -> _T:
        """The result of a call. If the task is cancelled, the call goes on, and its error is logged. done:
        is called with the result in any case, before the caller continues and before a later call is done."""
        future = self.begin(call)

        def ended(_: object) -> None:
            if done is not None and not future.cancelled() and future.exception() is None:
                done(future.result())

        future.add_done_callback(ended)
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            future.add_done_callback(_report)
            raise

    def end(self) -> None:
        """Accepts no more calls; the thread ends after the accepted ones. Does not wait. Idempotent."""
        self.ended = True
        self._executor.shutdown(wait=False)


def _report(future: asyncio.Future[Any]) -> None:
    error = future.exception()
    if error is not None:
        fault("a call whose task was cancelled failed: %s", error)


async def opened(worker: Worker, make: Callable[[], _Log]) -> _Log:
    """Opens a log in the worker's thread. If the task is cancelled, the thread opens it, and then closes
    it. The worker ends if it fails."""
    made: list[_Log] = []
    try:
        await worker.run(lambda: made.append(make()))
    except BaseException:
        worker.begin(lambda: made[0].close() if made else None)
        worker.end()
        raise
    return made[0]


class Writer:
    """`aolog.Writer` from asyncio, with its options. `async with` opens and closes the log."""

    def __init__(self, path: str | os.PathLike[str], **options: Any) -> None:
        self._open = partial(_Writer, path, **options)
        self._appends = Worker("aolog-append")
        self._syncs = Worker("aolog-sync")
        self._writer: _Writer | None = None
        # The last sync that was called, and whether it has begun: if not, later callers join it.
        self._last_sync: tuple[threading.Event, asyncio.Future[int]] | None = None

    __reduce__ = _Writer.__reduce__  # raises

    async def __aenter__(self) -> Self:
        try:
            self._writer = await opened(self._appends, self._open)
        except BaseException:
            self._syncs.end()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @property
    def log(self) -> _Writer:
        """The writer, for `end`, `durable` and other attributes."""
        assert self._writer is not None, "open it with `async with`"
        return self._writer

    async def append(
        self,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Headers = (),
        timestamp: int | None = None,
        topic: str | None = None,
    ) -> int:
        """See `aolog.Writer.append`. It waits, and other tasks run, only where that one may block."""
        writer, appends = self._writer, self._appends
        # Not past an earlier call that is under way. Attributes: properties would take a fifth of the time.
        if writer is not None and appends.begun == appends.executed:
            address = join(writer, value, key, headers, timestamp, topic)
            if address is not None:
                return address
        return await self._appends.run(
            partial(
                self.log.append, value, key=key, headers=headers, timestamp=timestamp, topic=topic
            )
        )

    async def append_many(self, values: Iterable[bytes | None], **columns: Any) -> np.ndarray:
        """See `aolog.Writer.append_many`."""
        return await self._appends.run(partial(self.log.append_many, values, **columns))

    async def flush(self) -> int:
        """See `aolog.Writer.flush`. Includes the appends that were called before it."""
        return await self._appends.run(self.log.flush)

    async def sync(self) -> int:
        """See `aolog.Writer.sync`. Includes the appends that have returned. Appends go on meanwhile;
        tasks that call it at the same time share one sync."""
        if self._last_sync is None or self._last_sync[0].is_set():
            begun = threading.Event()
            self._last_sync = begun, self._syncs.begin(partial(self._sync, begun))
        return await asyncio.shield(self._last_sync[1])  # `close` raises a failed sync again

    def _sync(self, begun: threading.Event) -> int:
        begun.set()  # before the sync, which covers the appends of all tasks that joined it
        return self.log.sync()

    async def close(self) -> None:
        """See `aolog.Writer.close`. Executes the appends that were called before it. Idempotent."""
        if self._writer is not None and not self._appends.ended:
            await self._appends.run(self._writer.close)
        self._end()

    async def give_up(self) -> int:
        """See `aolog.Writer.give_up`. Ends also an append that waits for room."""
        end = await self._syncs.run(self.log.give_up)
        self._end()
        return end

    def _end(self) -> None:
        self._appends.end()
        self._syncs.end()


class Reader:
    """`aolog.Reader` from asyncio, with its options. `async with` opens and closes it.

    on_gap is called in the reader's thread. One task at a time may read.
    """

    def __init__(
        self, path: str | os.PathLike[str], start: Start = "earliest", **options: Any
    ) -> None:
        self._open = partial(_Reader, path, start, **options)
        self._worker = Worker("aolog-read")
        self._reader: _Reader | None = None
        self._pending: asyncio.Future[Batch | None] | None = None  # a read that nobody has taken
        self._reading: FrameRecords | None = None  # the frame that is read record by record
        self._ahead: list[RecordFrame] = []  # the frames after it
        self._end = Position(0, None)  # of these frames

    __reduce__ = _Reader.__reduce__  # raises

    async def __aenter__(self) -> Self:
        reader = self._reader = await opened(self._worker, self._open)
        self._end = view_of(reader).position
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @property
    def log(self) -> _Reader:
        """The reader, for `gaps`, `topic` and other attributes. Its position is after what was read
        ahead; use `tell` of this object."""
        assert self._reader is not None, "open it with `async with`"
        return self._reader

    def tell(self) -> int:
        """The address of the next record."""
        return self._position.address

    @property
    def _position(self) -> Position:
        view = view_of(self.log)
        if view.has_failed:
            view.check()
        if self._reading is not None:
            return self._reading.position
        if self._ahead:
            frame = self._ahead[0]
            return frame.position_of(frame.skip)
        return self._end

    async def read(self, timeout: float = 0.0) -> Record | None:
        """The next record; None if there is none within `timeout` seconds."""
        try:
            while True:
                reading = self._reading
                record: Record | None = None if reading is None else next(reading.records, None)
                if record is not None:
                    return record
                if not self._ahead and not await self._fetch(_AHEAD_BYTES, timeout):
                    return None
                frame, rows = self._ahead[0], RecordFrame.records
                reading = FrameRecords(frame, rows, rows(frame))
                self._reading, self._ahead = reading, self._ahead[1:]
        except BaseException as error:
            self._after_error(error)
            raise

    def _after_error(self, error: BaseException) -> None:
        """Fail-stop, as each method of the view. What a cancelled task waited for is the next result."""
        if not isinstance(error, asyncio.CancelledError | GeneratorExit):
            view_of(self.log).after_error(error)
        if view_of(self.log).has_failed:
            self._drop()

    def _drop(self) -> None:
        """Forgets the frames that were read ahead."""
        if self._reading is not None:
            self._reading.end()
        self._reading, self._ahead = None, []

    def __aiter__(self) -> AsyncIterator[Record]:
        """The records up to the end of the log, including those appended meanwhile."""
        return self.follow(0.0)

    def follow(self, timeout: float | None = None) -> AsyncIterator[Record]:
        """The records, also those that are appended later. Ends after `timeout` seconds without a
        record; None: never."""
        wait_s = _DAY_S if timeout is None else timeout

        async def more(rows: AsyncRows) -> Record:
            try:
                while (record := await self.read(wait_s)) is None and timeout is None:
                    pass
                if self._reading is not None:
                    rows.take(self._reading.records)  # until another call drops the frame
                if record is not None:
                    return record
            except BaseException as error:
                self._after_error(error)
                raise
            raise StopAsyncIteration

        return AsyncRows(more)

    async def read_batch(self, max_bytes: int | None = None, timeout: float = 0.0) -> Batch | None:
        """See `aolog.Reader.read_batch`. Begins with the records that were read ahead."""
        try:
            rest = None if self._reading is None else self._reading.end()
            if rest is None and not self._ahead and not await self._fetch(max_bytes, timeout):
                return None
            frames = self._ahead if rest is None else [rest, *self._ahead]
            self._reading, self._ahead = None, []
            return Batch(frames)
        except BaseException as error:
            self._after_error(error)
            raise

    async def _fetch(self, max_bytes: int | None, timeout_s: float) -> bool:
        """Reads frames ahead if there is one within that time. Nothing is ahead."""
        until_s = time.monotonic() + timeout_s
        while True:
            view_of(self.log).check()
            if self._pending is None:
                wait_s = max(0.0, min(until_s - time.monotonic(), _WAIT_S))
                self._pending = self._worker.begin(partial(self.log.read_batch, max_bytes, wait_s))
            try:
                batch = await asyncio.shield(self._pending)
            except asyncio.CancelledError:
                raise  # the next read returns its result
            except BaseException:
                self._pending = None
                raise
            if batch is not None:
                end = Position(batch.end, batch.frames[-1].end_ordinal)
                self._pending, self._reading, self._ahead, self._end = None, None, batch.frames, end
                return True
            self._pending = None
            if time.monotonic() >= until_s:
                return False

    async def seek(self, where: Start | None = None, *, ordinal: int | None = None) -> int:
        """See `aolog.Reader.seek`. If the task is cancelled, the reader moves nevertheless."""
        log, pending = self.log, self._pending

        def seek() -> Position:
            log.seek(where, ordinal=ordinal)
            return view_of(log).position

        def moved(to: Position) -> None:
            if self._pending is pending:  # otherwise a read that began after the seek
                self._pending = None
            self._drop()
            self._end = to

        try:
            return (await self._worker.run(seek, moved)).address
        except BaseException as error:
            self._after_error(error)
            raise

    async def commit(self) -> None:
        """See `aolog.Reader.commit`: the position after the last record that was returned."""
        await self._worker.run(partial(view_of(self.log).commit, self._position))

    async def lag(self) -> Lag:
        """See `aolog.Reader.lag`."""
        return await self._worker.run(partial(view_of(self.log).lag, self._position))

    async def close(self) -> None:
        """See `aolog.Reader.close`. Idempotent."""
        if self._reader is not None and not self._worker.ended:
            await self._worker.run(self._reader.close)
        self._worker.end()
