"""Buffer: a program sends, whether the destination is available or not."""

from __future__ import annotations

import atexit
import logging
import os
import re
import threading
import time
from contextlib import ExitStack
from time import time_ns
from typing import Self

from aolog import Record, Retention
from aolog.errors import AologError, Forked, RecordRefused, UsageError, not_copied
from aolog.record import Headers
from aolog.storage.storage import DIRECTORY_MODE, Storage, absolute
from aolog.write.validate import check_mode, check_record, check_sizes, check_topic
from bridge.client.buffer.backlog import MAX_RECORD_BYTES, Backlog, require_own
from bridge.client.buffer.provider import Message, NotDelivered, Provider
from bridge.client.buffer.settings import BufferStatus, Mode, Settings
from bridge.client.buffer.store_forward import Abandoned, StoreForward
from bridge.deliver.dead_letter import DeadLetterLog, require_dead_letters
from bridge.kafka.lane import NO_PARTITION, Refusal
from bridge.kafka.stamp import encode_stamp

_log = logging.getLogger("bridge.buffer")
_LAST_TRY_S = 1.0  # for a destination that fails, after the buffer begins to close
_NO_LOG = bytes(16)
_KNOWN_MAX = 1_000  # topics and names of headers that were checked, at a time
_NAME_MAX = 1_000  # characters; the size of a message with a longer one is checked each time
_forks = 0  # between the start of the program and this process
_CODE = re.compile(r"_?[A-Z][A-Z0-9_]+(?=:)")  # Kafka's name of an error, at the begin of its text


def _after_fork_in_child() -> None:
    global _forks  # noqa: PLW0603 -- asking the system for the process's id would take a fifth of a send
    _forks += 1


os.register_at_fork(after_in_child=_after_fork_in_child)


class Buffer:
    """Sends messages to a provider in the order of `send`, live while the provider keeps up.

    mode: what happens to messages while the destination fails or does not keep up.

    - block: `send` waits. Nothing is stored on disk.
    - error: the next `send`, `flush` or `close` raises NotDelivered with the messages that were not
      delivered. Nothing is stored on disk.
    - buffer: they go to the log at `path`, which is delivered in order; live again when all of it was
      read and nothing failed for `live_after_s`.
    - always: every message goes through the log. It has the time of its frame, up to 0.1 s before `send`.

    Messages that the log holds from an earlier run are delivered first. path: of the log, needed in
    the modes buffer and always. memory_messages, memory_bytes, live_age_s: beyond these the
    destination does not keep up. batch_messages: at most so many between two flushes of the
    provider. commit_s: how often the log's cursor is made durable; after a kill, messages delivered
    since then are sent again. close_s: how long `close` waits. retry_max_s: the longest pause
    between tries (the first is the provider's `retry_wait_s`, doubled each time, with jitter).
    retention: of the log, such as `Retention(max_bytes=..., when_full="prune" | "block" | "error")`.
    dead_letters: directory of a separate log for messages that the destination will never accept:
    each is durable there before later messages count as delivered, and `aolog-bridge replay PATH
    --dead-letter` sends them again; without it they come back in NotDelivered. log_mode: of the
    directories of both logs, as Writer's `mode`. storage: for both logs; the system's files if None.

    If the program is killed, messages that were delivered survive (in the modes block, error, and
    buffer while live, `flush` waits for that), and so do messages in the log that were flushed
    (within a second, and by `flush`). Each message is delivered at least once, in the order of its
    topic and key; a failure may repeat a stretch of messages.

    Any thread may call; in a forked child every call but `close` raises Forked. A call that a
    signal handler or a finalizer makes in the middle of another call is refused (UsageError) and
    changes nothing, unless it is a `send` that needs no lock; a `close` within a `close` returns at once. So let the handler set a flag, or
    raise. So is a `flush`, a `close`, or a `send` without room that the provider makes in its own call. An exception from a handler (KeyboardInterrupt) in the middle of `send` or `flush`, or
    any other unexpected exception, may leave the Buffer failed: every later call raises UsageError,
    and nothing more is delivered. `close` then recovers the log if its writer failed, stores in it
    what memory holds, and releases it; the next Buffer delivers it, some messages perhaps again.

    Raises, before anything is changed, UsageError for an option or for a log of another program,
    and LogLocked while another process or Buffer has the log; and what Writer raises.
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
        batch_messages: int = 5_000,
        commit_s: float = 1.0,
        close_s: float = 10.0,
        retry_max_s: float = 30.0,
        retention: Retention | None = None,
        dead_letters: str | os.PathLike[str] | None = None,
        log_mode: int = DIRECTORY_MODE,
        storage: Storage | None = None,
    ) -> None:
        check_mode(log_mode)
        if not callable(getattr(provider, "send", None)):
            raise UsageError(
                f"the provider is {type(provider).__name__}",
                hint='make one first, such as KafkaProvider("kafka:9092")',
            )
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
        settings.check()
        storage = storage or Storage()
        if mode in {"block", "error"}:
            path = None
        elif path is None:
            raise UsageError(f"mode={mode!r} needs a log", hint="name its directory: path=...")
        else:
            require_own(path, storage)
        if dead_letters is not None:
            require_dead_letters(absolute(dead_letters), storage)
        self._close_s = close_s
        self._forks = _forks
        self._close_lock = threading.RLock()
        self._closing = self._closed = False
        self._close_at_s = float("inf")
        self._topics, self._names = set[str](), set[str]()  # of messages and headers, checked
        # The sending thread touches nothing any more. No Event: its lock would stay locked for ever after an interrupt
        # in the middle of a wait.
        self._ended = False
        self._rejected = self._backlog = None
        with ExitStack() as opened:  # what a failed opening releases; nothing was accepted
            if path is not None:
                self._backlog = Backlog(path, retention=retention, mode=log_mode, storage=storage)
                opened.callback(self._backlog.give_up)
            if dead_letters is not None:
                self._rejected = DeadLetterLog(absolute(dead_letters), storage, log_mode)
                opened.callback(self._rejected.close)
                self._rejected.open()
            self._core = StoreForward(provider, self._backlog, settings, self._on_rejected)
            if type(self).send is Buffer.send:
                self._open_door(mode)
            self._thread = threading.Thread(target=self._run, name="bridge-buffer", daemon=True)
            self._thread.start()
            opened.pop_all()
        atexit.register(self._at_exit)

    # --- what a program calls -----------------------------------------------------------------

    def send(
        self, topic: str, value: bytes | None, key: bytes | None = None, headers: Headers = ()
    ) -> None:
        """Accepts a message. Waits in mode block while there is no room, and where the log's
        retention blocks. Raises NotDelivered (mode error, and for messages that were rejected),
        RecordRefused for an invalid message, RecordTooLarge for one that the log cannot hold,
        LogClosed, and what `Writer.append` raises; then the message is not accepted."""
        message = self._checked(topic, value, key, headers)
        self._accept(message)
        if len(self._topics) + len(self._names) >= _KNOWN_MAX:
            self._topics.clear()
            self._names.clear()
        self._topics.add(message.topic)
        self._names.update(name for name, _ in message.headers if len(name) < _NAME_MAX)

    def _accept(self, message: Message) -> None:
        """As `send`, of a message that was checked."""
        core = self._core
        if self._forks != _forks or not core.offer(message):
            self._wait_for_room(message)
        if core.door.waits:
            core.wake()

    def _checked(
        self, topic: str, value: bytes | None, key: bytes | None, headers: Headers
    ) -> Message:
        """The message. Raises RecordRefused, RecordTooLarge."""
        now_us = time_ns() // 1_000
        name, _ = check_topic(topic)
        if name is None:
            raise RecordRefused("the message names no topic")
        value, key, headers, _, _, size = check_record(value, key, headers, now_us, name)
        if self._backlog is not None:  # not only when live ends
            check_sizes(size, size, MAX_RECORD_BYTES)
        return Message(name, value, key, headers, now_us)

    def _wait_for_room(self, message: Message) -> None:
        """As `send`, where the message was not accepted at once."""
        core = self._core
        self._check()  # before the lock: in a forked child, no thread may be left to release it
        while not core.offer(message):
            if core.settings.mode == "error":
                raise NotDelivered(core.name, "it does not keep up", [message])
            self._refuse_provider()
            with core.lock:
                core.changed.wait(1.0)

    def flush(self, timeout_s: float | None = None) -> bool:
        """Waits until every message accepted so far is delivered, or survives a crash of this
        process in the log. False if that is not so after `timeout_s`; `status().error` has the
        reason, such as a full disk. Without a timeout, a full disk raises StorageFull. Raises
        NotDelivered as `send` does, and what Writer raises."""
        core = self._core
        until_s = None if timeout_s is None else time.monotonic() + timeout_s
        self._check()  # before the lock: in a forked child, no thread may be left to release it
        self._refuse_provider()
        core.refuse_nested()
        with core.lock:
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
        """See BufferStatus. Also while it closes, and after."""
        return self._core.status()

    def close(self) -> None:
        """Waits up to `close_s` until everything is delivered, also from the log. The log keeps the
        rest.

        With a log, `close` waits for no call of the provider after `close_s`, nor after one second if
        the destination fails; what that call delivers later may be delivered again. Without a log
        (modes block and error) it begins no call after `close_s`, but waits for the one under way:
        KafkaProvider's may take `delivery_s` (10 seconds). Nothing bounds the last sync of the disk.

        Raises NotDelivered with messages that no log keeps: all that are left in the modes block
        and error, those that were rejected, and those that the log did not accept. A second thread
        waits for the first. After an interrupt, StorageFull or StorageFailed, call it again to go
        on. Does nothing in a forked child."""
        if self._forks != _forks:
            return
        core = self._core
        self._refuse_provider()
        core.refuse_nested()  # waiting here would wait for the interrupted call
        with self._close_lock:
            # In a signal handler, the close that it interrupted goes on.
            if self._closed or self._closing:
                return
            self._closing = True
            try:
                self._close(core)
                atexit.unregister(self._at_exit)
                self._closed = True
            except NotDelivered:
                atexit.unregister(self._at_exit)
                self._closed = True  # last: after an interrupt the next call raises it
                raise
            finally:
                self._closing = False

    def _close(self, core: StoreForward) -> None:
        with core.lock:
            if not core.closing:
                self._close_at_s = time.monotonic() + self._close_s
            core.door.is_open = False
            core.closing = True
            core.changed.notify_all()
        abandoned, pause_s = False, 0.001
        while not (abandoned or self._ended):
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, 0.1)
            abandoned = self._is_kept_waiting(core) and core.abandon()
        refused = None
        with core.lock:
            try:
                core.store_rest()
            except AologError as error:
                refused = error
        if not abandoned:  # otherwise the sending thread closes the provider
            core.sender.close()
        if self._rejected is not None:
            self._rejected.close()
        if self._backlog is not None:
            try:
                self._backlog.close()
            except UsageError as error:  # an interrupt in the middle of a call: its writer failed
                refused = refused or error
        with core.lock:
            left = core.left()
        if refused is not None and not left:
            _log.warning("%s: what was delivered last may be repeated: %s", core.name, refused)
        if left:
            raise NotDelivered(core.name, str(refused or core.why), left) from refused

    __reduce__ = not_copied("make a Buffer where it is used, with a provider and a path of its own")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- inside -------------------------------------------------------------------------------

    def _open_door(self, mode: Mode) -> None:
        """Replaces `send` by the same, faster."""
        core = self._core
        if mode == "always" and self._backlog is not None:
            core.door = self._backlog.door(self.send, core.wake)
        else:
            known = self._topics, self._names
            core.door.serve(Message, *known, self._accept, self.send, core.wake)
        core.open_door()
        self.send = core.door.send  # type: ignore[method-assign]  # as said

    def _at_exit(self) -> None:
        """The program ends without `close`."""
        try:
            self.close()
        except AologError as error:
            _log.error("%s", error)

    def _check(self) -> None:
        if self._forks != _forks:
            raise Forked("the buffer was opened before a fork", hint="open one in the child")
        self._core.refuse()

    def _refuse_provider(self) -> None:
        """Raises UsageError in a call of the provider, which would wait for itself."""
        if threading.current_thread() is self._thread:
            raise UsageError(
                "the provider's call would wait for itself",
                hint="in a provider, call nothing of its buffer but `send` and `status`",
            )

    def _may_end(self, *, tried: bool) -> bool:
        """Whether a buffer that is closing need not wait: all is delivered, or the time is over, or
        the destination fails and the log keeps the rest. tried: since `close` was called."""
        core = self._core
        kept = tried and self._backlog is not None and core.sender.error is not None
        return core.all_delivered or kept or time.monotonic() >= self._close_at_s

    def _is_kept_waiting(self, core: StoreForward) -> bool:
        """Whether `close` should not wait for the provider's call under way: the log keeps the
        messages, and the destination fails or the time is over."""
        if self._backlog is None:
            return False
        now_s = time.monotonic()
        last_try_s = self._close_at_s - self._close_s + _LAST_TRY_S
        fails = core.sender.error is not None and now_s >= last_try_s
        return fails or now_s >= self._close_at_s

    def _on_rejected(self, message: Message, why: str) -> None:
        """Stores it, durably, as the bridge's own dead letters. It comes from no log: its origin is a
        timestamp alone."""
        if self._rejected is None:
            self._core.give_back(message, why)
            return
        topic, value, key, headers, timestamp_us = message
        code = _CODE.match(why)
        self._rejected.append(
            Record(0, timestamp_us, key, value, headers, topic),
            (topic, NO_PARTITION),
            Refusal(why, code[0] if code else "REJECTED"),
            encode_stamp(_NO_LOG, 0, 0, timestamp_us),
            identity=message,
        )
        self._rejected.sync()

    def _run(self) -> None:
        """The sending thread."""
        core = self._core
        try:
            hurried = False
            while core.failed is None:
                closing = core.closing
                if closing and not hurried:
                    core.sender.hurry()  # the pause may be long
                    hurried = True
                wait_s = core.turn()
                with core.lock:
                    if core.closing and self._may_end(tried=closing):
                        return
                    if closing is core.closing and wait_s > 0:
                        core.rest(min(wait_s, 0.2 if core.closing else 3600.0))
        except Abandoned:
            core.sender.close()
        except BaseException as error:
            core.fail(error)
            raise
        finally:
            self._ended = True
