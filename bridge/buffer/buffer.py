"""Buffer: a program sends to a destination as if it were always there."""

from __future__ import annotations

import atexit
import logging
import os
import threading
import time
from typing import TYPE_CHECKING, get_args

from aolog.errors import AologError, Forked, LogClosed, RecordRefused, UsageError
from aolog.storage.storage import DIRECTORY_MODE, Storage, absolute
from aolog.write.validate import check_mode, check_record, check_topic, too_large
from bridge.buffer.backlog import MAX_RECORD_BYTES, Backlog, require_own
from bridge.buffer.provider import Message, Provider
from bridge.buffer.rejected import RejectedMessages
from bridge.buffer.store_forward import Abandoned, BufferStatus, Mode, Settings, StoreForward
from bridge.deliver.dead_letter import require_dead_letters
from bridge.errors import NotDelivered

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    from aolog import Retention
    from aolog.record import Headers

__all__ = ["Buffer"]

_log = logging.getLogger("bridge.buffer")
_LAST_TRY_S = 1.0  # for a destination that fails, once the buffer is closing


class Buffer:
    """Sends messages to a provider, live while that keeps up, in the order of `send`.

    mode: what becomes of messages while the destination fails or does not keep up.

        block   `send` waits. On disk nothing is kept.
        error   the next `send`, `flush` or `close` raises NotDelivered with what was not
                delivered. On disk nothing is kept.
        buffer  they go to the log at `path`, which is drained in order; live again once it is
                empty and nothing failed for `live_after_s`.
        always  every message goes through the log.

    What the log holds from an earlier run is delivered first. path: of the log, needed in the modes
    buffer and always. memory_messages, memory_bytes, live_age_s: beyond these the destination
    does not keep up. batch_messages: between two flushes of the provider. commit_s: how often
    the log's cursor is made durable; after a kill what was delivered since is sent again. close_s:
    how long `close` waits. retry_max_s: the longest pause between tries (the first is the
    provider's `retry_wait_s`, doubled each time, with jitter). retention: of the log, such as
    `Retention(max_bytes=..., when_full="prune" | "block" | "error")`. dead_letters: directory of
    a log of its own for messages that the destination will never take: each is durable there
    before what follows it counts as delivered, and `aolog-bridge replay PATH --dead-letter` sends
    them again; without it they come back in NotDelivered. log_mode: of the directories of both logs,
    as Writer's `mode`. storage: where the logs are, if not in the system's files.

    Promises, if the program is killed: in the modes block, error, and buffer while live,
    messages that were delivered (`flush` waits for that) survive. In the log, those survive that
    were flushed (within a second, and by `flush`). Delivered at least once, in the order of each
    topic and key; a failure may repeat a stretch of it.

    Any thread may call; use in a forked child raises. A call from a signal's handler or a finalizer
    in the middle of another call may be refused (UsageError) and then changes nothing: let the
    handler set a flag. An exception from a handler (KeyboardInterrupt) in the middle of `send` or
    `flush`, or any other unexpected exception, may leave the Buffer failed: every later call raises
    UsageError, and nothing more is delivered. `close` then keeps in the log what memory holds, and
    releases the log; the next Buffer delivers it, some messages perhaps again. Raises UsageError for
    an option, and for a log of another program, before anything is changed; LogLocked if another
    has the log, and what Writer raises.
    """

    def __init__(
        self,
        provider: Provider,
        path: str | os.PathLike[str] | None = None,
        *,
        mode: Mode = "buffer",
        memory_messages: int = 10_000,
        memory_bytes: int = 16 << 20,
        live_age_s: float = 5.0,
        live_after_s: float = 5.0,
        batch_messages: int = 1_000,
        commit_s: float = 1.0,
        close_s: float = 10.0,
        retry_max_s: float = 30.0,
        retention: Retention | None = None,
        dead_letters: str | os.PathLike[str] | None = None,
        log_mode: int = DIRECTORY_MODE,
        storage: Storage | None = None,
    ) -> None:
        check_mode(log_mode)
        if mode not in get_args(Mode):
            raise UsageError(f"mode={mode!r}", hint=f"use one of {', '.join(get_args(Mode))}")
        if mode in {"buffer", "always"} and path is None:
            raise UsageError(f"mode={mode!r} needs a log", hint="name its directory: path=...")
        numbers = {
            "memory_messages": memory_messages,
            "memory_bytes": memory_bytes,
            "live_age_s": live_age_s,
            "batch_messages": batch_messages,
        }
        for name, number in numbers.items():
            if not number > 0:
                raise UsageError(f"{name}={number!r}", hint="use a positive number")
        storage = storage or Storage()
        self._rejected = self._backlog = None
        if mode in {"buffer", "always"}:
            assert path is not None
            require_own(path, storage)
        if dead_letters is not None:
            require_dead_letters(absolute(dead_letters), storage)
        self._close_s = close_s
        self._pid = os.getpid()
        self._close_lock = threading.RLock()  # a signal's handler may close in the middle of close
        self._closed = False
        self._close_at_s = float("inf")
        self._idle = False
        self._ended = False
        # Held by the thread while it runs. Its timed wait is exact in a signal's handler too: neither
        # an Event's is, nor a SimpleQueue's, which waits for ever after a slow handler.
        self._running = threading.Lock()
        settings = Settings(
            mode,
            memory_messages=memory_messages,
            memory_bytes=memory_bytes,
            live_age_s=live_age_s,
            live_after_s=live_after_s,
            batch_messages=batch_messages,
            commit_s=commit_s,
            retry_max_s=retry_max_s,
        )
        core: StoreForward | None = None
        try:
            if mode in {"buffer", "always"}:
                assert path is not None
                self._backlog = Backlog(path, retention=retention, mode=log_mode, storage=storage)
            if dead_letters is not None:
                self._rejected = RejectedMessages(absolute(dead_letters), storage, log_mode)
            core = self._core = StoreForward(provider, self._backlog, settings, self._on_rejected)
            atexit.register(self._at_exit)
            self._running.acquire()
            threading.Thread(target=self._run, name="bridge-buffer", daemon=True).start()
        except BaseException:
            self._give_up_opening(core)
            raise

    def _give_up_opening(self, core: StoreForward | None) -> None:
        """Nothing was accepted: all is given free. Its thread may have begun all the same, where a
        signal's handler raised."""
        atexit.unregister(self._at_exit)
        if core is not None:
            with core.changed:
                core.closing, self._close_at_s = True, 0.0
                core.changed.notify_all()
        if self._backlog is not None:
            self._backlog.give_up()
        if self._rejected is not None:
            self._rejected.close()

    # --- what a program calls -----------------------------------------------------------------

    def send(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None = None,
        headers: Headers = (),
    ) -> None:
        """Accepts a message. Waits in mode block while there is no room, and where the log's
        retention blocks. Raises NotDelivered (mode error, or one that was rejected), RecordRefused
        for what is no message, RecordTooLarge for what the log would not take, LogClosed, and in
        the log what `Writer.append` raises: then the message is not accepted."""
        name, _ = check_topic(topic)
        if name is None:
            raise RecordRefused("the message names no topic")
        now_us = time.time_ns() // 1_000
        value, key, headers, _, _, size = check_record(value, key, headers, now_us, name)
        if self._backlog is not None and size > MAX_RECORD_BYTES:  # now, not when live has ended
            raise too_large(size, MAX_RECORD_BYTES)
        message = Message(name, value, key, headers, now_us)
        core = self._core
        while True:
            self._check()
            if core.offer(message):
                break
            with core.changed:
                if core.settings.mode == "error":
                    raise NotDelivered(core.name, "it does not keep up", [message])
                core.changed.wait(1.0)
        if self._idle:
            with core.changed:
                core.changed.notify_all()

    def flush(self, timeout_s: float | None = None) -> bool:
        """Waits until every message accepted so far is delivered, or safe in the log from a crash
        of this process. Whether it is: after `timeout_s` it may not be, and `status().error` says
        why, a full disk for one; without a time-out that is raised. Raises NotDelivered (mode
        error) and what Writer raises."""
        core = self._core
        until_s = None if timeout_s is None else time.monotonic() + timeout_s
        self._check()  # before the lock: in a forked child nobody may be left to release it
        core.refuse_nested()
        with core.changed:
            while True:
                self._check()
                core.raise_given_back()
                if core.safe():
                    return True
                if core.full is not None and until_s is None:
                    raise core.full
                left_s = 1.0 if until_s is None else until_s - time.monotonic()
                if left_s <= 0:
                    return False
                core.changed.notify_all()
                core.changed.wait(min(left_s, 1.0))

    def status(self) -> BufferStatus:
        """How things stand."""
        return self._core.status()

    def close(self) -> None:
        """Waits up to `close_s` until everything is delivered, also from the log; what is not
        then stays in the log. Where the log keeps what is left, a destination that fails gets one
        second more, and no call of the provider is waited for after `close_s`: what that call
        delivers later may be delivered again. In NotDelivered is raised what no log keeps: all
        that is left in the modes block and error, what was rejected, and what the log did not
        take. Another close waits for the first, and goes on where it was interrupted or raised
        StorageFull or StorageFailed. Does nothing in a forked child."""
        if os.getpid() != self._pid:
            return
        core = self._core
        core.refuse_nested()  # what it waits for would wait for the other call
        with self._close_lock:
            if self._closed:
                return
            with core.changed:
                if not core.closing:
                    self._close_at_s = time.monotonic() + self._close_s
                core.closing = True
                core.changed.notify_all()
            abandoned = False
            while not (self._ended or abandoned):  # not a join, which an interrupt may end early
                self._running.acquire(timeout=0.1)  # not released: `_ended` counts
                abandoned = self._is_kept_waiting() and core.abandon()
            refused = None
            with core.changed:
                try:
                    core.store_rest(broken=abandoned or core.failed is not None)
                except AologError as error:
                    refused = error
            if not abandoned:  # else the sending thread closes it
                core.outlet.close()
            self._close_rejected()
            if self._backlog is not None:
                try:
                    self._backlog.close()
                except UsageError as error:  # an interrupt in the middle of a call: its writer failed
                    refused = refused or error
            with core.changed:
                left = core.give_up()
            self._closed = True
            atexit.unregister(self._at_exit)
        if left:
            raise NotDelivered(core.name, str(refused or core.why), left) from refused
        if refused is not None:
            _log.warning("%s: what was delivered last may be repeated: %s", core.name, refused)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    # --- inside -------------------------------------------------------------------------------

    def _at_exit(self) -> None:
        """A program that ends without `close`."""
        try:
            self.close()
        except AologError as error:
            _log.error("%s", error)

    def _check(self) -> None:
        if os.getpid() != self._pid:
            raise Forked("the buffer was opened before a fork", hint="open one in the child")
        if self._core.closing:
            raise LogClosed("the buffer is closed")
        failed = self._core.failed
        if failed is not None:
            raise UsageError(
                f"the buffer failed: {failed!r}",
                hint="close it and open another one, which delivers what the log holds",
            ) from failed

    def _may_end(self, *, tried: bool) -> bool:
        """Whether a buffer that is closing need not wait: all is delivered, or it is late, or the
        destination fails and the log keeps the rest. tried: whether it was, since the close."""
        core = self._core
        kept = tried and self._backlog is not None and core.outlet.error is not None
        return core.all_delivered or kept or time.monotonic() >= self._close_at_s

    def _is_kept_waiting(self) -> bool:
        """Whether the provider's call under way is not worth waiting for: the log keeps what it
        holds, and the destination fails or the time is over."""
        if self._backlog is None:
            return False
        now_s = time.monotonic()
        over_s = self._close_at_s - self._close_s + _LAST_TRY_S
        fails = self._core.outlet.error is not None and now_s >= over_s
        return fails or now_s >= self._close_at_s

    def _on_rejected(self, message: Message, why: str) -> None:
        """A message that will never be taken is set aside, or goes back to the program."""
        if self._rejected is not None:
            self._rejected.take(message, why)
        else:
            self._core.give_back(message, why)

    def _close_rejected(self) -> None:
        if self._rejected is not None:
            self._rejected.close()

    def _run(self) -> None:
        """The sending thread."""
        core = self._core
        try:
            hurried = False
            while core.failed is None:
                closing = core.closing
                if closing and not hurried:
                    core.outlet.hurry()  # its last pause may be a long one
                    hurried = True
                wait_s = core.turn()
                with core.changed:
                    if core.closing and self._may_end(tried=closing):
                        return
                    if closing is core.closing and wait_s > 0 and not core.due:
                        self._idle = True
                        core.changed.wait(min(wait_s, 0.2 if core.closing else 3600.0))
                        self._idle = False
        except Abandoned:
            core.outlet.close()
        except BaseException as error:  # every later call raises it
            core.failed = core.failed or error
            raise
        finally:
            self._ended = True
            self._running.release()
