"""Store and forward: live while the destination keeps up, through the backlog while it does not.

    state      offer puts a message  turn delivers from    ends when
    live       in memory             what was read of the  mode buffer: a delivery failed, or memory
                                     backlog, then memory  is full, or what it holds is too old
    buffering  in the backlog        the backlog           it was read to its end, and nothing
                                                           failed for `live_after_s` (never in mode
                                                           always)

Order. When live ends, undelivered messages go from memory to the backlog, in order, and later ones
follow them there. Live begins under the lock, when the backlog is read to its end: nothing can be
appended meanwhile. What was read is delivered first, then the cursor is committed, and only then
memory is delivered, so that a kill cannot repeat old messages after new ones. (Live does not wait
for an empty backlog: a program that sends all the time would never get there.)

A batch from memory that is being delivered when another thread ends live goes to the backlog with
the rest. Once its outcome is known, the backlog leaves out what was delivered.

At least once: what a destination took without acknowledging it is sent again.

Fail-stop: an unexpected exception (an interrupt, a bug) in a call that changes state sets `failed`.
Nothing more is accepted or delivered, and the cursor stays. `store_rest` saves memory in the
backlog; the next Buffer delivers it, some messages perhaps again.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable
from typing import Any

from aolog.errors import AologError, LogClosed, RetentionFull, StorageFull, UsageError, as_utf8
from aolog.log.interruption import nested_call
from bridge.client.buffer.backlog import Backlog
from bridge.client.buffer.memory_queue import Batch, MemoryQueue, bytes_of
from bridge.client.buffer.provider import Message, NotDelivered, Provider
from bridge.client.buffer.provider_sender import ProviderSender
from bridge.client.buffer.settings import BufferStatus, Settings

_log = logging.getLogger("bridge.buffer")

NOTHING_DUE_S = float("inf")
SLOW_S = 1.0  # status reports a call of the provider that takes longer


class Abandoned(Exception):
    """The buffer failed or was closed during a call of the provider: the sending thread ends."""


class StoreForward:
    """See the module. Any thread may call `offer` and `status`; one thread calls `turn`. on_rejected: see
    ProviderSender."""

    def __init__(
        self,
        provider: Provider,
        backlog: Backlog | None,
        settings: Settings,
        on_rejected: Callable[[Message, str], None],
        *,
        clock: Callable[[], float] = time.monotonic,
        entropy: random.Random | None = None,
    ) -> None:
        # Enter this one, not `changed`: a signal handler may raise within the functions in Python by which a Condition
        # takes and releases its lock, and the lock would never be released.
        self.lock = threading.RLock()
        self.changed = threading.Condition(self.lock)
        # Undocumented, but Condition itself calls it; any other test would cost more.
        self._is_locked: Callable[[], bool] = self.lock._is_owned  # type: ignore[attr-defined]  # noqa: SLF001 -- as said
        self.sender = ProviderSender(
            provider, on_rejected, retry_max_s=settings.retry_max_s, clock=clock, entropy=entropy
        )
        self._backlog = backlog  # None in the modes block and error
        self.settings = settings
        self.name = provider.name
        self._clock = clock
        # Messages on disk that are not delivered, less those that the backlog accepted.
        self._on_disk = 0 if backlog is None else backlog.lag
        self._live = backlog is None or (settings.mode != "always" and backlog.is_empty)
        age_max_us = NOTHING_DUE_S if backlog is None else settings.live_age_s * 1e6
        self._memory = MemoryQueue(settings.memory_messages, settings.memory_bytes, age_max_us)
        self._read = Batch()  # of the backlog, to be delivered before all else
        # What the backlog had accepted when it was read to its end; -1: it was not.
        self._read_of = 0 if self._live else -1
        self._uncommitted = False  # the reader has passed messages that the cursor has not
        self._leave_out: set[int] = set()  # addresses in the backlog that are delivered
        self._given_back: list[Message] = []
        self._given_back_why = ""
        self._commit_due_s = -NOTHING_DUE_S
        self._calling_since_s: float | None = None  # a call of the provider is under way
        self._abandoned = False  # `close` did not wait for that call
        self.closing = False  # set under the lock; then nothing more is accepted
        self.failed: BaseException | None = None  # see the module
        self.full: StorageFull | None = None  # why the backlog accepts nothing now
        # Plain messages join without the lock while it `is_open`; the next one wakes the sending thread that `waits`.
        self.door: Any = self._memory.queue

    def fail(self, error: BaseException) -> None:
        """Every later call reports this error; the sending thread ends."""
        with self.lock:
            self.failed = self.failed or error
            self.door.is_open = False
            self.changed.notify_all()

    def _fail_unless_ours(self, error: BaseException) -> None:
        if not isinstance(error, AologError):
            self.fail(error)

    def rest(self, wait_s: float) -> None:
        """The sending thread waits for so long, or until something happens. Under the lock."""
        # In a pause after a failure no message helps.
        self.door.waits = self.sender.wait_s <= 0
        # Asked after `waits` is set: a message may join without the lock.
        if not self.door.waits or self.all_delivered:
            self.changed.wait(wait_s)
        self.door.waits = False

    def wake(self) -> None:
        """Something was accepted: ends `rest`."""
        with self.lock:
            self.changed.notify_all()
            # Once: others come before the thread runs. Last: after an interrupt the next message wakes it.
            self.door.waits = False

    def open_door(self) -> None:
        """Opens it, or shuts it: see `offer`. Under the lock."""
        takes = self._live or self.settings.mode == "always"
        shut = self.closing or self._given_back or self.failed is not None
        self.door.is_open = takes and not shut and not self._is_blocked

    def refuse_nested(self) -> None:
        """Raises UsageError within another call of the same thread, such as in a signal handler or
        a finalizer: the outer call has changed a part of the state, and holds the lock."""
        if self._is_locked():
            raise nested_call("buffer")

    # --- accepting ----------------------------------------------------------------------------

    def offer(self, message: Message) -> bool:
        """Accepts a message. False: there is no room now (modes block and error, and with a
        retention that blocks). Raises LogClosed while closing, NotDelivered in mode error after a
        delivery failed, UsageError within another call or after a failure, and what Writer raises."""
        self.refuse_nested()
        with self.lock:
            try:
                self.refuse()
                self.raise_given_back()
                if self._is_blocked:
                    return False
                taken = self._live and self._memory.append(message)
                taken = taken or (self._backlog is not None and self._store(message, self._backlog))
                self.open_door()
            except BaseException as error:
                self._fail_unless_ours(error)
                raise
        return taken

    @property
    def _is_blocked(self) -> bool:
        return self.settings.mode == "block" and self.sender.error is not None

    def refuse(self) -> None:
        """Raises if nothing is accepted any more."""
        if self.closing:
            raise LogClosed("the buffer is closed")
        if self.failed is not None:
            raise UsageError(
                f"the buffer failed: {self.failed!r}",
                hint="close it and open another one, which delivers what the log holds",
            ) from self.failed

    def _store(self, message: Message, backlog: Backlog) -> bool:
        """As `offer`, of a message that memory does not take: the backlog does, after what memory holds."""
        if self._live:
            self._end_live(f"{len(self._memory):,} messages wait")
        try:
            self._pour()
            backlog.append(message)
        except RetentionFull:
            if backlog.blocks:
                return False  # cannot wait here: making room needs this lock
            raise
        return True

    def raise_given_back(self) -> None:
        """Raises NotDelivered, once, with what was rejected and, in mode error, what was not
        delivered. Under the lock."""
        if self._given_back:
            try:
                raise NotDelivered(self.name, self._given_back_why, self._given_back)
            except NotDelivered:
                self._given_back = []  # only now: after an interrupt the next call raises it
                raise

    def _end_live(self, why: str) -> None:
        """From now on through the backlog, in which `_pour` puts what memory holds."""
        _log.warning("%s: through the backlog from now on: %s", self.name, why)
        self._live = self.door.is_open = False

    def _pour(self) -> None:
        """Moves memory to the backlog, in order, where it survives a crash of the process. Raises
        StorageError; then the rest stays in memory, before all later messages."""
        assert self._backlog is not None
        if self._memory:
            self._memory.pour(self._backlog.append)
            self._backlog.flush()
            self.full = None

    # --- delivering ---------------------------------------------------------------------------

    def turn(self) -> float:
        """Delivers a batch, if there is one. Returns the seconds for which nothing is due, unless a
        message is offered. What fails is tried again, with growing pauses."""
        wait_s = self.sender.wait_s
        if wait_s > 0:
            return wait_s
        try:
            if self._read:
                return self._deliver_read()
            return self._turn_live() if self._live else self._turn_backlog()
        except AologError as error:  # the disk: memory still holds what could not be stored
            self.full = error if isinstance(error, StorageFull) else None
            self.sender.fail(as_utf8(str(error)))
            return self.sender.wait_s

    def _deliver_read(self) -> float:
        batch = self._read
        failure = self._deliver(batch)
        left = batch.not_done()
        with self.lock:
            self._on_disk -= len(batch) - len(left)
            self._read = left
            if failure is not None and self._live:
                self._end_live(failure)
                self._pour()
        if not left and self._clock() >= self._commit_due_s:
            self._commit()
        return 0.0

    def _turn_live(self) -> float:
        if self._uncommitted:  # before later messages: see the module
            self._commit()
        with self.lock:
            if not self._live:  # another thread ended it
                return 0.0
            batch = self._memory.take(self.settings.batch_messages)
        if not batch:
            return NOTHING_DUE_S
        failure = self._deliver(batch)
        with self.lock:
            self.changed.notify_all()
            self._memory.settle()  # on a full disk also where live ended meanwhile
            if not self._live:  # it did, and the batch is in the backlog
                stored = {address for i, address in batch.addresses.items() if batch.done[i]}
                self._leave_out |= stored
                self._on_disk -= len(stored)
            elif failure is None:
                self.full = None  # nothing waits for room
            elif self._backlog is not None:
                self._end_live(failure)
                self._pour()
            elif self.settings.mode == "error":
                self.door.is_open = False
                self._given_back_why = failure
                self._given_back += self._memory.left()
                self._memory.clear()
            self.open_door()
        return 0.0

    def _deliver(self, batch: Batch) -> str | None:
        """As ProviderSender.deliver. Raises Abandoned if the buffer failed or was closed."""
        with self.lock:
            self._calling_since_s = self._clock()
        try:
            return self.sender.deliver(batch)
        finally:
            with self.lock:
                self._calling_since_s = None
                if self._abandoned or self.failed is not None:
                    raise Abandoned

    def abandon(self) -> bool:
        """At a close: does not wait for the provider's call that is under way; False if there is
        none. The next Buffer may deliver again what that call delivers."""
        with self.lock:
            self._abandoned = self._calling_since_s is not None
            return self._abandoned

    def _turn_backlog(self) -> float:
        """Reads on; at the end of the backlog, begins live or waits for that."""
        backlog = self._backlog
        assert backlog is not None
        if self._read_on():
            return self._deliver_read()
        with self.lock:  # nothing can be appended meanwhile, but through the door
            accepted = backlog.accepted
            backlog.flush()
            if not self._memory:  # otherwise the flush may have had nothing to write
                self.full = None
            while self._read_on():
                pass  # no more than the writer's memory held
            self._read_of = accepted
            wait_s = self._until_live_s()
            if wait_s <= 0:
                _log.info("%s: live", self.name)
                self._live = True
                self.open_door()
                return 0.0
        if self._read:
            return self._deliver_read()
        if self._uncommitted:
            self._commit()
        return wait_s

    def _read_on(self) -> bool:
        """Reads from the backlog into `_read`. False: nothing more was flushed."""
        backlog = self._backlog
        assert backlog is not None
        lost = backlog.lost
        messages = backlog.read()
        found = bool(messages)
        for address in self._leave_out & messages.keys():
            del messages[address]
            self._leave_out.discard(address)
        self._read.add(messages)
        passed = {address for address in self._leave_out if address < backlog.address}
        self._leave_out -= passed
        with self.lock:
            self._uncommitted |= found
            # Retention removed them, but they were delivered: they are not lost.
            backlog.lost -= min(len(passed), backlog.lost - lost)
            self._on_disk -= backlog.lost - lost
        return found

    def _until_live_s(self) -> float:
        """Seconds until live may begin, at the end of the backlog: the destination has to be
        healthy for a while. 0 where memory holds what a full disk did not take."""
        if self.settings.mode == "always":
            return NOTHING_DUE_S
        if self._memory:
            return 0.0
        held, room = sum(map(bytes_of, self._read.messages)), self.settings
        if len(self._read) > room.memory_messages // 2 or held > room.memory_bytes // 2:
            return NOTHING_DUE_S  # live would end before this is delivered
        return self.sender.healthy_since_s + self.settings.live_after_s - self._clock()

    def _commit(self) -> None:
        """The cursor passes what was read, which is delivered. Waits for the disk without the
        lock."""
        assert self._backlog is not None
        self._backlog.commit(free=self._live)
        self._uncommitted = False
        self._commit_due_s = self._clock() + self.settings.commit_s
        with self.lock:  # there may be room now
            self.changed.notify_all()

    # --- status and end -----------------------------------------------------------------------

    def safe(self) -> bool:
        """Whether all that was accepted is delivered, or survives a crash of the process in the
        backlog. Under the lock. False on a full disk, and sets `full`."""
        if self._memory:
            return False
        try:
            if self._backlog is not None:
                self._backlog.flush()
        except StorageFull as error:
            self.full = error
            return False
        except BaseException as error:
            self._fail_unless_ours(error)
            raise
        self.full = None
        return True

    @property
    def all_delivered(self) -> bool:
        """Whether nothing is left to do, in memory and on disk. Under the lock."""
        is_read = self._backlog is None or self._read_of == self._backlog.accepted
        return is_read and not (self._memory or self._read or self._uncommitted)

    def give_back(self, message: Message, why: str) -> None:
        """Returns a message to the caller of `offer`, in NotDelivered."""
        with self.lock:
            self._given_back.append(message)
            self._given_back_why = why
            self.door.is_open = False

    @property
    def why(self) -> str:
        """Why the rest was not delivered at the end."""
        return self.sender.error or self._given_back_why or "closed"

    def store_rest(self) -> None:
        """At the end: the cursor passes what is delivered, unless the buffer failed, and memory
        goes to the backlog, if there is one. Under the lock. Raises what Writer and Reader raise;
        then memory still holds what was not stored."""
        if self._backlog is None:
            return
        self._live = False
        try:
            if self.failed is None:
                while self._leave_out and not self._read and self._read_on():
                    pass  # passes what was delivered while it went to the backlog
                # Back to the first message that is not delivered.
                lost = self._backlog.lost
                self._backlog.go_back([self._read.addresses[i] for i in self._read.left()])
                self._on_disk -= self._backlog.lost - lost
                self._read = Batch()
                if self._uncommitted:
                    self._commit()
        except BaseException as error:  # the reader may have passed what `_read` does not hold
            self._fail_unless_ours(error)
            raise
        finally:
            self._backlog.recover()
            self._pour()

    def left(self) -> list[Message]:
        """What was rejected, and what memory still holds. Under the lock."""
        return self._given_back + self._memory.left()

    def status(self) -> BufferStatus:
        """A consistent moment. From any thread."""
        with self.lock:
            state = "blocked" if self._is_blocked else "live" if self._live else "buffering"
            return BufferStatus(
                state,
                len(self._memory),
                self._on_disk + (0 if self._backlog is None else self._backlog.accepted),
                self.sender.delivered,
                self.sender.rejected,
                0 if self._backlog is None else self._backlog.lost,
                self._trouble(),
            )

    def _trouble(self) -> str | None:
        if self.failed is not None:
            return f"failed: {self.failed!r}"
        if self.full is not None:
            return str(self.full)
        if self.sender.error is not None or self._calling_since_s is None:
            return self.sender.error
        age_s = self._clock() - self._calling_since_s
        return None if age_s < SLOW_S else f"no answer for {age_s:.1f} s"
