"""Store and forward: live while the destination keeps up, through the backlog while it does not.

    state      offer puts a message  turn delivers from   ends when
    live       in memory             memory               mode buffer: a delivery failed, or memory
                                                          is full, or what it holds is too old
    buffering  in the backlog        the backlog          its end is in sight, and nothing failed
                                                          for `live_after_s` (never in mode always)

Order. Where live ends, everything not known to be delivered goes to the backlog in order, then
what comes; and one place at a time is delivered from. Live begins again under the lock, when the
backlog is read to its end: what was read last goes into memory, ahead of all that comes, and its
cursor follows once that is delivered, before anything else is. (To wait for an empty backlog would be to wait for a sender
that pauses for as long as a delivery takes.) A batch that is under way when live ends goes to the
backlog with the rest; once its outcome is known, what was delivered of it is left out.

At least once: what a destination took without saying so is sent again.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections import deque
from itertools import islice
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from aolog.errors import AologError, RetentionFull, StorageFull
from bridge.errors import NotDelivered
from bridge.provider import Message, Provider, Rejected

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from bridge.backlog import Backlog

__all__ = ["BufferStatus", "Mode", "Settings", "StoreForward"]

_log = logging.getLogger("bridge.buffer")

Mode: TypeAlias = Literal["block", "error", "buffer", "always"]
NOTHING_DUE_S = float("inf")
RETRY_MIN_S = 0.01  # a provider that names no pause would keep a processor busy
_OVERHEAD_BYTES = 300  # of a message in memory, beside its bytes


def _words(error: Exception) -> str:
    """What it says, as a log or a terminal takes it: a user's provider may say anything."""
    said = str(error) or type(error).__name__
    return said.encode(errors="backslashreplace").decode()


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
    delivered. error: the last failure, until something is delivered."""

    state: str
    in_memory: int
    in_backlog: int
    delivered: int
    rejected: int
    lost: int
    error: str | None


class _Item:
    """A message on its way. address: in the backlog, None if it is not there. done: delivered,
    or set aside as rejected."""

    __slots__ = ("address", "done", "message", "since_s")

    def __init__(self, message: Message, since_s: float, address: int | None = None) -> None:
        self.message = message
        self.since_s = since_s
        self.address = address
        self.done = False

    @property
    def bytes(self) -> int:
        """What it takes in memory, about."""
        return len(self.message.value or b"") + len(self.message.key or b"") + _OVERHEAD_BYTES


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
        self.changed = threading.Condition()
        self._provider = provider
        self._backlog = backlog
        self.settings = settings
        self.name = provider.name
        self._on_rejected = on_rejected
        self._clock = clock
        self._entropy = entropy or random.Random()  # noqa: S311 -- jitter, no secret
        self._on_disk = 0 if backlog is None else backlog.lag
        self._live = backlog is None or (settings.mode != "always" and not self._on_disk)
        self._stored = not self._live  # since the backlog was last found empty
        self._memory: deque[_Item] = deque()
        self._bytes = 0
        self._read: list[_Item] = []
        self._carried: list[_Item] = []  # of the backlog, into memory where live began
        self._leave_out: set[int] = set()
        self._given_back: list[Message] = []
        self._given_back_why = ""
        self._open = False
        self._failures = 0
        self._retry_at_s = self._commit_due_s = self._healthy_since_s = -NOTHING_DUE_S
        self.error: str | None = None
        self.full: StorageFull | None = None  # what the backlog said last, if it took nothing
        self._delivered = self._rejected = 0

    # --- accepting ----------------------------------------------------------------------------

    def offer(self, message: Message) -> bool:
        """Accepts a message. False: there is no room now (modes block and error, and where the
        backlog's retention blocks). Raises NotDelivered in mode error once a delivery has failed,
        and what Writer raises."""
        with self.changed:
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
            if self._full() or (self.error is not None and self.settings.mode == "block"):
                return False
            item = _Item(message, self._clock())
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
        _log.warning("%s: through the backlog from now on: %s", self.name, why)
        self._live = False
        self._stored = True
        self._pour()

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
        wait_s = self._retry_at_s - self._clock()
        if wait_s > 0:
            return wait_s
        try:
            if self._live:
                return self._turn_live()
            return self._turn_backlog()
        except AologError as error:  # the disk: what could not be stored is in memory still
            self.full = error if isinstance(error, StorageFull) else None
            self._fail(error)
            return self._retry_at_s - self._clock()

    def _turn_live(self) -> float:
        self._settle()
        with self.changed:
            # What live began with stands first, and alone: a kill before the backlog let it go
            # would else repeat it behind what came later.
            carried = sum(not item.done and item.address is None for item in self._carried)
            count = min(carried or len(self._memory), self.settings.batch_messages)
            batch = list(islice(self._memory, count))
        if not batch:
            return NOTHING_DUE_S
        failure = self._deliver(batch)
        with self.changed:
            self.changed.notify_all()
            for item in batch:
                if item.done and item.address is not None:  # poured while it was under way
                    self._leave_out.add(item.address)
                    self._on_disk -= 1
            if self._live:
                self._forget(batch)
                if failure is not None and self._backlog is not None:
                    self._end_live(failure)
                elif failure is not None and self.settings.mode == "error":
                    self._given_back += self._take_all()
                    self._given_back_why = failure
        return 0.0

    def _settle(self) -> None:
        """Once all that live began with is delivered, the backlog lets it go."""
        if self._carried:
            assert self._backlog is not None
            self._commit(self._backlog)
            if not self._carried:
                self._backlog.free()

    def _forget(self, batch: Sequence[_Item]) -> None:
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
                while self._read_on(backlog):
                    pass  # to its end: no more than its writer held
                if not self._read:
                    self._drained(backlog)
                wait_s = self._until_live_s()
                if wait_s <= 0:
                    self._begin_live(backlog)
                    return 0.0
                if not self._read:
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
        lost = backlog.lost
        found = backlog.read()
        with self.changed:
            self._on_disk -= backlog.lost - lost
        for address, message in found:
            if address in self._leave_out:
                self._leave_out.discard(address)
            else:
                self._read.append(_Item(message, 0.0, address))
        return bool(found)

    def _drained(self, backlog: Backlog) -> None:
        """Everything in it is delivered."""
        self._stored = False
        self._commit(backlog)
        self.changed.notify_all()

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
        return self._healthy_since_s + self.settings.live_after_s - self._clock()

    def _begin_live(self, backlog: Backlog) -> None:
        """From now on from memory, which begins with what was read last."""
        _log.info("%s: live", self.name)
        for item in reversed(self._read):
            item.since_s, item.address = self._clock(), None
            self._memory.appendleft(item)
            self._bytes += item.bytes
        self._on_disk -= len(self._read)
        self._carried += self._read
        self._read = []
        self._stored = False
        self._live = True
        if not self._carried:
            backlog.free()

    def _commit(self, backlog: Backlog) -> None:
        """What was read is delivered, or in memory, or was poured again. What only memory holds
        keeps the cursor where it is."""
        if self._carried:
            if not all(item.done or item.address is not None for item in self._carried):
                return
            backlog.sync()
            self._carried = []
        backlog.commit()
        self._commit_due_s = self._clock() + self.settings.commit_s
        if backlog.waits:
            with self.changed:  # there may be room now
                self.changed.notify_all()

    def _deliver(self, batch: Sequence[_Item]) -> str | None:
        """Sends a batch and marks what is done; why the rest is not."""
        if not batch:
            return None
        taken: list[_Item] = []
        try:
            if not self._open:
                self._provider.open()
                self._open = True
            failure = self._send(batch, taken)
            left = {taken[position] for position in self._provider.flush()}
            for item in taken:
                item.done = item not in left
            self._delivered += len(taken) - len(left)
            if failure is None and left:
                failure = NotDelivered(self.name, "not acknowledged", ())
        except Exception as error:  # noqa: BLE001 -- a user's provider: anything may come
            failure = error
        if failure is None:
            self._succeed()
            return None
        self._fail(failure)
        return self.error

    def _send(self, batch: Sequence[_Item], taken: list[_Item]) -> Exception | None:
        """Hands over the batch, up to the first that is not taken now; why it is not."""
        for item in batch:
            try:
                self._provider.send(item.message)
            except Rejected as error:
                why = _words(error)
                _log.error("%s: a message is rejected: %s", self.name, why)
                self._on_rejected(item.message, why)
                item.done = True
                self._rejected += 1
            except Exception as error:  # noqa: BLE001 -- a user's provider: anything may come
                return error
            else:
                taken.append(item)
        return None

    def _succeed(self) -> None:
        if self._failures:
            _log.info("%s: delivers again", self.name)
            self._failures = 0
            self.error = None
            self._healthy_since_s = self._clock()

    def _fail(self, error: Exception) -> None:
        """Notes a failure and when to try again."""
        now_s = self._clock()
        said = _words(error)
        if said != self.error:
            _log.warning("%s: %s", self.name, said)
        self.error = said
        pause_s = max(RETRY_MIN_S, self._provider.retry_wait_s) * 2 ** min(self._failures, 32)
        self._failures += 1
        pause_s = max(RETRY_MIN_S, min(pause_s, self.settings.retry_max_s))
        pause_s *= self._entropy.uniform(0.5, 1.0)
        self._retry_at_s = now_s + pause_s
        self._healthy_since_s = now_s + pause_s
        self.close_provider()

    def close_provider(self) -> None:
        """Whatever it says to that."""
        if self._open:
            self._open = False
            try:
                self._provider.close()
            except Exception as error:  # noqa: BLE001 -- a user's provider: anything may come
                _log.warning("%s: closing: %s", self.name, error)

    # --- what there is to say -----------------------------------------------------------------

    def safe(self) -> bool:
        """Whether all that was accepted is delivered, or in the backlog, where it survives a crash
        of the process. With the lock. False on a full disk, and `full` is set."""
        if self._memory:
            return False
        try:
            if self._backlog is not None:
                self._backlog.flush()
        except StorageFull as error:
            self.full = error
            return False
        self.full = None
        return True

    @property
    def all_delivered(self) -> bool:
        """Whether nothing is left, in memory and on disk. With the lock."""
        return not (self._memory or self._stored or self._carried)

    @property
    def due(self) -> bool:
        """Whether a turn has something to do now. With the lock."""
        return self._clock() >= self._retry_at_s and not self.all_delivered

    def give_back(self, message: Message, why: str) -> None:
        """Returns a message to the caller of `offer`, in NotDelivered."""
        with self.changed:
            self._given_back.append(message)
            self._given_back_why = why

    @property
    def why(self) -> str:
        """Why what is left at the end was not delivered."""
        return self.error or self._given_back_why or "closed"

    def store_rest(self) -> None:
        """At the end: what memory holds goes to the backlog, if there is one. With the lock. Raises
        what Writer raises; then it is in memory still."""
        if self._backlog is not None:
            live = self._live
            if live and self._memory:
                self._end_live("closed")
            self._pour()
            if live:
                self._settle()

    def give_up(self) -> list[Message]:
        """What was rejected, and what memory still holds, at the very end. With the lock."""
        left = self._given_back + self._take_all()
        self._given_back = []
        return left

    def status(self) -> BufferStatus:
        """How things stand."""
        with self.changed:
            state = "live" if self._live else "buffering"
            if self._live and self.settings.mode == "block" and self.error is not None:
                state = "blocked"
            return BufferStatus(
                state,
                len(self._memory),
                self._on_disk,
                self._delivered,
                self._rejected,
                0 if self._backlog is None else self._backlog.lost,
                self.error if self.full is None else str(self.full),
            )
