"""The outlet: a provider as store-and-forward sees it. Opened when it is needed, handed batches, and
left alone for a while when it fails."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from aolog.errors import as_utf8, counted
from bridge.buffer.provider import Message, Provider, Rejected
from bridge.deliver.backoff import Backoff

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterable, Iterator, Sequence

__all__ = ["Item", "Outlet"]

_log = logging.getLogger("bridge.buffer")

RETRY_MIN_S = 0.01  # a provider that names no pause would keep a processor busy
_OVERHEAD_BYTES = 300  # of a message in memory, beside its bytes


def _words(error: Exception) -> str:
    """What it says, as a log or a terminal takes it: a user's provider may say anything."""
    said = str(error) or type(error).__name__
    return as_utf8(said)


def _not_taken(failed: Iterable[int], count: int) -> ConnectionError:
    """What `Provider.flush` told, in words."""
    were = "was" if count == 1 else "were"
    said = f"{counted(count, 'message', ',')} {were} not acknowledged"
    if isinstance(failed, Mapping):
        said += f": {next(iter(failed.values()))}"
    return ConnectionError(said)


class Item:
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


class Outlet:
    """Delivers by a provider. One thread.

    on_rejected: makes a message durable that will never be taken, or raises; then it is tried
    again. retry_max_s: the longest pause. error: the last failure, until something is delivered.
    healthy_since_s: since when nothing failed. delivered, rejected: how many messages were.
    """

    def __init__(
        self,
        provider: Provider,
        on_rejected: Callable[[Message, str], None],
        *,
        retry_max_s: float,
        clock: Callable[[], float] = time.monotonic,
        entropy: random.Random | None = None,
    ) -> None:
        self.name = provider.name
        self._provider = provider
        self._on_rejected = on_rejected
        self._clock = clock
        self._backoff = Backoff(RETRY_MIN_S, max(RETRY_MIN_S, retry_max_s), entropy)
        self._open = self._sets_aside = False
        self._retry_at_s = self.healthy_since_s = -float("inf")
        self.error: str | None = None
        self.delivered = self.rejected = 0

    @property
    def wait_s(self) -> float:
        """How long it is still left alone; 0 or less: not."""
        return self._retry_at_s - self._clock()

    def hurry(self) -> None:
        """The next try is due now."""
        self._retry_at_s = -float("inf")

    def deliver(self, batch: Sequence[Item]) -> str | None:
        """Sends a batch and marks what is done; why the rest is not."""
        if not batch:
            return None
        failure: Exception | None = None
        try:
            if not self._open:
                self._open = True  # also where it fails half-way: it is closed then
                self._provider.open()
            items = iter(batch)
            while refused := self._send(items):
                for item, why in refused:
                    self._set_aside(item, why)
        except Exception as error:  # noqa: BLE001 -- a user's provider: anything may come
            failure = error
        if failure is None:
            self._succeed()
            return None
        try:
            self.fail(failure)
        finally:
            del failure  # its traceback holds this frame, and the provider's: a cycle
        return self.error

    def _send(self, items: Iterator[Item]) -> list[tuple[Item, str]]:
        """Delivers them; which are rejected, and why. What stands ahead of those is done by then, or
        a stop here would have them set aside once more. Up to the first of them only, unless the
        one before could be set aside: what was sent behind one that cannot be would be sent again.
        Raises where something is not done."""
        taken: list[Item] = []
        refused: list[tuple[Item, str]] = []
        failure: Exception | None = None
        for item in items:
            try:
                self._provider.send(item.message)
            except Rejected as error:
                refused.append((item, _words(error)))
                if self._sets_aside:
                    continue
                break
            except Exception as error:  # noqa: BLE001 -- a user's provider: anything may come
                failure = error  # what was taken before is flushed
                break
            taken.append(item)
        failed = self._provider.flush() if taken else ()
        left = {taken[position] for position in failed}
        for item in taken:
            item.done = item not in left
        self.delivered += len(taken) - len(left)
        if failure is None and left:
            failure = _not_taken(failed, len(left))
        try:
            if failure is not None:
                raise failure
        finally:
            del failure  # its traceback holds this frame: a cycle
        return refused

    def _set_aside(self, item: Item, why: str) -> None:
        _log.error("%s: a message is rejected: %s", self.name, why)
        self._sets_aside = False
        self._on_rejected(item.message, why)
        self._sets_aside = item.done = True
        self.rejected += 1

    def _succeed(self) -> None:
        if self._backoff.attempts:
            _log.info("%s: delivers again", self.name)
            self._backoff.reset()
            self.error = None
            self.healthy_since_s = self._clock()

    def fail(self, error: Exception) -> None:
        """Notes a failure and when to try again."""
        now_s = self._clock()
        said = _words(error)
        if said != self.error:
            _log.warning("%s: %s", self.name, said)
        self.error = said
        self._backoff.base_s = max(RETRY_MIN_S, self._provider.retry_wait_s)
        pause_s = self._backoff.next_s()
        self._retry_at_s = now_s + pause_s
        self.healthy_since_s = now_s + pause_s
        self.close()

    def close(self) -> None:
        """Whatever it says to that."""
        if self._open:
            self._open = False
            try:
                self._provider.close()
            except Exception as error:  # noqa: BLE001 -- a user's provider: anything may come
                _log.warning("%s: closing: %s", self.name, error)
