"""Store and forward: live while the destination keeps up, through the backlog while it does not.

    state      offer puts a message  turn delivers from   ends when
    live       in memory             memory               mode buffer: a delivery failed, or memory
                                                          is full, or what it holds is too old
    buffering  in the backlog        the backlog          its end is in sight, and nothing failed
                                                          for `live_after_s` (never in mode always)

Order. Where live ends, everything not known to be delivered goes to the backlog in order, then
what comes; and one place at a time is delivered from. Live begins again under the lock, when the
backlog is read to its end: what was read last goes into memory, ahead of all that comes, and its
cursor follows once that is delivered, before anything else is. (To wait for an empty backlog would
be to wait for a sender that pauses for as long as a delivery takes.) What of it is not delivered
where live ends is in the backlog still, ahead of the rest, and is read there again. A batch that is
under way when live ends goes to the backlog with the rest; once its outcome is known, what was
delivered of it is left out.

At least once: what a destination took without saying so is sent again.

Fail-stop: an unexpected exception (an interrupt, a bug) in a call that changes state sets `failed`.
Then nothing more is accepted or delivered, and the cursor stays: at the close, memory goes to the
backlog, and the next Buffer delivers all of it, some of it perhaps again.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from contextlib import contextmanager
from itertools import islice, takewhile
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from aolog.errors import AologError, LogClosed, RetentionFull, StorageFull, nested_call
from bridge.buffer.provider_sender import Item, Outlet
from bridge.errors import NotDelivered

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterator, Sequence

    from bridge.buffer.backlog import Backlog
    from bridge.buffer.provider import Message, Provider

__all__ = ["Abandoned", "BufferStatus", "Mode", "Settings", "StoreForward"]

_log = logging.getLogger("bridge.buffer")

Mode: TypeAlias = Literal["block", "error", "buffer", "always"]
NOTHING_DUE_S = float("inf")
SLOW_S = 1.0  # an answer that takes longer is worth a word


class Settings(NamedTuple):
    """See Buffer."""

    mode: Mode = "buffer"
    memory_messages: int = 10_000
    memory_bytes: int = 16 << 20
    live_age_s: float = 5.0
    live_after_s: float = 5.0
    batch_messages: int = 1_000
    commit_s: float = 1.0
    retry_max_s: float = 30.0


class BufferStatus(NamedTuple):
    """state: `live`; `buffering`; or `blocked`: in mode block, while the destination fails.
    in_memory: messages not known to be delivered. in_backlog: messages on disk that are still to
    be delivered. delivered, rejected: since the start. lost: pruned or damaged before they were
    delivered. error: the last failure, until something is delivered; where nothing failed yet and
    the oldest message waits for over a second, how long it does."""

    state: str
    in_memory: int
    in_backlog: int
    delivered: int
    rejected: int
    lost: int
    error: str | None


class Abandoned(Exception):
    """The buffer failed, or was closed, during a call of the provider: the sending thread ends."""


class StoreForward:
    """See the module. `offer` and `status` may be called by any thread, `turn` by one.

    backlog: None in the modes block and error. on_rejected: makes a message durable that will
    never be taken, or raises; then it is tried again.
    """

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
        lock = threading.RLock()
        self.changed = threading.Condition(lock)
        # Undocumented, and what Condition itself asks; no other way to know is as cheap.
        self._is_locked: Callable[[], bool] = lock._is_owned  # type: ignore[attr-defined]  # noqa: SLF001 -- as said
        self.outlet = Outlet(
            provider, on_rejected, retry_max_s=settings.retry_max_s, clock=clock, entropy=entropy
        )
        self._backlog = backlog
        self.settings = settings
        self.name = provider.name
        self._clock = clock
        self._on_disk = 0 if backlog is None else backlog.lag
        self._live = backlog is None or (settings.mode != "always" and not self._on_disk)
        self._stored = not self._live  # since the backlog was last found empty
        self._memory: deque[Item] = deque()
        self._bytes = 0
        self._read: list[Item] = []
        self._carried: list[Item] = []  # of the backlog, into memory where live began
        self._unsettled = False  # all else that was read is delivered, and the cursor is to follow
        self._go_back_to: list[int] = []  # carried, and not known to be delivered where live ended
        self._leave_out: set[int] = set()
        self._given_back: list[Message] = []
        self._given_back_why = ""
        self._commit_due_s = -NOTHING_DUE_S
        self.closing = False  # set with the lock; then nothing more is accepted
        self._delivering = False  # a call of the provider is under way
        self._abandoned = False  # close did not wait for it; the thread touches nothing any more
        self.failed: BaseException | None = None  # see the module
        self.full: StorageFull | None = None  # what the backlog said last, if it took nothing

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """With the lock. An unexpected exception within makes the buffer failed."""
        try:
            yield
        except AologError:
            raise
        except BaseException as error:
            self.failed = self.failed or error
            self.changed.notify_all()
            raise

    def refuse_nested(self) -> None:
        """Raises UsageError within another call of the same thread, as a signal's handler, or a
        finalizer, may be: that one's state is half changed, and nobody else gets its lock."""
        if self._is_locked():
            raise nested_call("buffer")

    # --- accepting ----------------------------------------------------------------------------

    def offer(self, message: Message) -> bool:
        """Accepts a message. False: there is no room now (modes block and error, and where the
        backlog's retention blocks). Raises LogClosed while closing, NotDelivered in mode error
        once a delivery has failed, UsageError within another call, and what Writer raises."""
        self.refuse_nested()
        with self.changed, self._changing():
            if self.closing:  # the caller asked before, without the lock
                raise LogClosed("the buffer is closed")
            self.raise_given_back()
            try:
                if self._live and self._backlog is not None and self._behind():
                    self._end_live(f"{len(self._memory):,} messages wait")
                if not self._live:
                    self._store(message)
                    return True
            except RetentionFull:
                if self._backlog is not None and self._backlog.waits:
                    return False  # not here: what makes room needs this lock
                raise
            if self._full() or (self.outlet.error is not None and self.settings.mode == "block"):
                return False
            item = Item(message, self._clock())
            self._memory.append(item)
            self._bytes += item.bytes
            return True

    def raise_given_back(self) -> None:
        """Gives back what was rejected and, in mode error, what was not delivered; once, in
        NotDelivered. With the lock."""
        if self._given_back:
            given_back, self._given_back = self._given_back, []
            raise NotDelivered(self.name, self._given_back_why, given_back)

    def _full(self) -> bool:
        settings = self.settings
        return len(self._memory) >= settings.memory_messages or self._bytes >= settings.memory_bytes

    def _behind(self) -> bool:
        """Whether the destination does not keep up."""
        if self._full():
            return True
        return bool(self._memory) and (
            self._clock() - self._memory[0].since_s > self.settings.live_age_s
        )

    def _end_live(self, why: str) -> None:
        """From now on through the backlog. Raises StorageError; what is not in the backlog then
        stays in memory, ahead of everything that comes."""
        self._leave_live(why)
        self._pour()

    def _leave_live(self, why: str) -> None:
        """What live began with is in the backlog still: it is in memory no more, and the backlog
        goes back to it, and leaves out what of it is delivered."""
        _log.warning("%s: through the backlog from now on: %s", self.name, why)
        in_backlog = list(takewhile(lambda item: item.address is not None, self._memory))
        self._go_back_to += [item.address for item in in_backlog if item.address is not None]
        if self._go_back_to:
            self._leave_out |= {
                item.address for item in self._carried if item.done and item.address is not None
            }
        self._memory = deque(islice(self._memory, len(in_backlog), None))
        self._bytes = sum(item.bytes for item in self._memory)
        self._on_disk += len(in_backlog)
        self._carried, self._unsettled, self._stored = [], False, True
        self._live = False  # last: `turn` looks without the lock

    def _pour(self) -> None:
        """What memory holds goes to the backlog, in order, and survives a crash of the process."""
        assert self._backlog is not None
        if not self._memory:
            return
        while self._memory:
            item = self._memory[0]
            if not item.done:
                item.address = self._backlog.append(item.message)
                self._on_disk += 1
            self._bytes -= self._memory.popleft().bytes
        self._backlog.flush()
        self.full = None

    def _store(self, message: Message) -> None:
        assert self._backlog is not None
        self._pour()
        self._backlog.append(message)
        self._on_disk += 1
        self._stored = True

    # --- delivering ---------------------------------------------------------------------------

    def turn(self) -> float:
        """Delivers a batch, if there is one; how many seconds nothing is due after it, unless
        something is offered. What fails is tried again, with growing pauses."""
        wait_s = self.outlet.wait_s
        if wait_s > 0:
            return wait_s
        try:
            if self._live:
                return self._turn_live()
            return self._turn_backlog()
        except AologError as error:  # the disk: what could not be stored is in memory still
            self.full = error if isinstance(error, StorageFull) else None
            self.outlet.fail(error)
            return self.outlet.wait_s

    def _turn_live(self) -> float:
        self._settle()
        with self.changed:
            if not self._live:  # any more
                return 0.0
            # What live began with stands first, and alone: a kill before the backlog let it go
            # would else repeat it behind what came later.
            carried = sum(not item.done for item in self._carried)
            count = min(carried or len(self._memory), self.settings.batch_messages)
            batch = list(islice(self._memory, count))
        if not batch:
            return NOTHING_DUE_S
        failure = self._deliver(batch)
        with self.changed:
            self.changed.notify_all()
            if self._live:
                self._forget(batch)
                if failure is not None and self._backlog is not None:
                    self._end_live(failure)
                elif failure is not None and self.settings.mode == "error":
                    self._given_back += self._take_all()
                    self._given_back_why = failure
                elif failure is None:
                    self.full = None  # nothing waits for room
            else:  # it ended meanwhile; what the backlog did not take is in memory still
                for item in batch:
                    if item.done and item.address is not None:
                        self._leave_out.add(item.address)
                        self._on_disk -= 1
                self._memory = deque(item for item in self._memory if not item.done)
                self._bytes = sum(item.bytes for item in self._memory)
        return 0.0

    def _deliver(self, batch: Sequence[Item]) -> str | None:
        """As Outlet.deliver. Raises Abandoned where the buffer was closed meanwhile."""
        with self.changed:
            self._delivering = True
        try:
            return self.outlet.deliver(batch)
        finally:
            with self.changed:
                self._delivering = False
                if self._abandoned or self.failed is not None:
                    raise Abandoned

    def abandon(self) -> bool:
        """At a close: does not wait for the provider's call that is under way; False if there is
        none. What that call delivers may be delivered again by the next buffer."""
        with self.changed:
            self._abandoned = self._delivering
            return self._abandoned

    def _settle(self) -> None:
        """Once all that was read is delivered, the backlog lets it go. The disk is waited for
        without the lock."""
        with self.changed:  # live may end meanwhile, and what it began with is read again
            if not self._unsettled or not all(item.done for item in self._carried):
                return
        assert self._backlog is not None
        self._commit(self._backlog)
        if self._live:  # else it frees itself now and then
            self._backlog.free()
        with self.changed:
            self._carried, self._unsettled = [], False
            self.changed.notify_all()

    def _forget(self, batch: Sequence[Item]) -> None:
        """Drops what is done of the batch that memory begins with."""
        for _ in batch:
            self._memory.popleft()
        self._memory.extendleft(item for item in reversed(batch) if not item.done)
        self._bytes -= sum(item.bytes for item in batch if item.done)

    def _take_all(self) -> list[Message]:
        messages = [item.message for item in self._memory if not item.done]
        self._memory.clear()
        self._bytes = 0
        return messages

    def _turn_backlog(self) -> float:
        backlog = self._backlog
        assert backlog is not None
        if not self._read and not self._read_on(backlog):
            with self.changed:  # nothing is offered meanwhile
                backlog.flush()
                if not self._memory:  # else it may just have had nothing to write
                    self.full = None
                while self._read_on(backlog):
                    pass  # to its end: no more than its writer held
                if not self._read:  # everything in it is delivered
                    self._unsettled |= self._stored
                    self._stored = False
                wait_s = self._until_live_s()
                if wait_s <= 0:
                    self._begin_live()
                    return 0.0
            if not self._read:
                self._settle()
                return wait_s
        self._deliver(self._read)
        left = [item for item in self._read if not item.done]
        with self.changed:
            self._on_disk -= len(self._read) - len(left)
        self._read = left
        if not self._read and self._clock() >= self._commit_due_s:
            self._commit(backlog)
        return 0.0

    def _read_on(self, backlog: Backlog) -> bool:
        """Whether there was something in the backlog; what of it is to be delivered is noted."""
        if self._go_back_to:
            self._go_back(backlog)
        lost = backlog.lost
        found = backlog.read()
        for address, message in found:
            if address in self._leave_out:
                self._leave_out.discard(address)
            else:
                self._read.append(Item(message, 0.0, address))
        delivered = {address for address in self._leave_out if address < backlog.address}
        self._leave_out -= delivered
        with self.changed:
            backlog.lost -= min(len(delivered), backlog.lost - lost)  # removed, and no loss
            self._on_disk -= backlog.lost - lost
        return bool(found)

    def _go_back(self, backlog: Backlog) -> None:
        """To the first of what was read and is not delivered; what else of it was is left out."""
        lost = backlog.lost
        backlog.go_back([a for a in self._go_back_to if a not in self._leave_out])
        with self.changed:
            self._on_disk -= backlog.lost - lost
        self._go_back_to = []
        self._leave_out = {a for a in self._leave_out if a >= backlog.address}

    def _until_live_s(self) -> float:
        """How long still, with the backlog read to its end: until the destination has been well
        for a while; not at all where memory holds what a full disk did not take."""
        if self.settings.mode == "always":
            return NOTHING_DUE_S
        if self._memory:
            return 0.0
        held = sum(item.bytes for item in self._read)
        if (
            len(self._read) > self.settings.memory_messages // 2
            or held > self.settings.memory_bytes // 2
        ):
            return NOTHING_DUE_S  # live would end as soon as it began
        return self.outlet.healthy_since_s + self.settings.live_after_s - self._clock()

    def _begin_live(self) -> None:
        """From now on from memory, which begins with what was read last: that is delivered, and the
        backlog settled, before anything that comes."""
        _log.info("%s: live", self.name)
        for item in reversed(self._read):
            item.since_s = self._clock()
            self._memory.appendleft(item)
            self._bytes += item.bytes
        self._on_disk -= len(self._read)
        self._carried = self._read
        self._read = []
        self._stored = False
        self._unsettled = True
        self._live = True

    def _commit(self, backlog: Backlog) -> None:
        """What was read is delivered."""
        backlog.commit()
        self._commit_due_s = self._clock() + self.settings.commit_s
        if backlog.waits:
            with self.changed:  # there may be room now
                self.changed.notify_all()

    # --- what there is to say -----------------------------------------------------------------

    def safe(self) -> bool:
        """Whether all that was accepted is delivered, or in the backlog, where it survives a crash
        of the process. With the lock. False on a full disk, and `full` is set."""
        if self._memory:
            return False
        try:
            if self._backlog is not None:
                with self._changing():
                    self._backlog.flush()
        except StorageFull as error:
            self.full = error
            return False
        self.full = None
        return True

    @property
    def all_delivered(self) -> bool:
        """Whether nothing is left, in memory and on disk. With the lock."""
        return not (self._memory or self._stored)

    @property
    def due(self) -> bool:
        """Whether a turn has something to do now. With the lock."""
        return self.outlet.wait_s <= 0 and not self.all_delivered

    def give_back(self, message: Message, why: str) -> None:
        """Returns a message to the caller of `offer`, in NotDelivered."""
        with self.changed:
            self._given_back.append(message)
            self._given_back_why = why

    @property
    def why(self) -> str:
        """Why what is left at the end was not delivered."""
        return self.outlet.error or self._given_back_why or "closed"

    def store_rest(self, *, broken: bool) -> None:
        """At the end: what memory holds goes to the backlog, if there is one, and the backlog's cursor
        passes what is delivered. broken: the buffer failed, or its sending thread was abandoned;
        then the cursor of the backlog stays. With the lock.
        Raises what Writer and Reader raise; what was not stored then is in memory still."""
        if self._backlog is None:
            return
        try:
            if self._live:
                if self.failed is None:
                    self._settle()
                if self._memory:
                    self._leave_live("closed")
            if not self._live and not broken:
                while self._leave_out and not self._read and self._read_on(self._backlog):
                    pass  # what was delivered while it went there is passed
                self._go_back_to += [i.address for i in self._read if i.address is not None]
                self._read = []
                self._go_back(self._backlog)
                self._commit(self._backlog)
        finally:
            self._pour()

    def give_up(self) -> list[Message]:
        """What was rejected, and what memory still holds, at the very end. With the lock."""
        left = self._given_back + self._take_all()
        self._given_back = []
        return left

    def status(self) -> BufferStatus:
        """How things stand."""
        with self.changed:
            state = "live" if self._live else "buffering"
            if self._live and self.settings.mode == "block" and self.outlet.error is not None:
                state = "blocked"
            return BufferStatus(
                state,
                len(self._memory),
                self._on_disk,
                self.outlet.delivered,
                self.outlet.rejected,
                0 if self._backlog is None else self._backlog.lost,
                self._trouble(),
            )

    def _trouble(self) -> str | None:
        if self.failed is not None:
            return f"failed: {self.failed!r}"
        if self.full is not None:
            return str(self.full)
        if self.outlet.error is not None or not self._memory:
            return self.outlet.error
        age_s = self._clock() - self._memory[0].since_s
        return None if age_s < SLOW_S else f"no answer for {age_s:.1f} s"
