"""Sends batches through a provider: opens it when it is needed, stores rejected messages elsewhere, and
after a failure closes it and pauses."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from aolog.errors import as_utf8, counted
from bridge.deliver.backoff import Backoff
from bridge.errors import Rejected

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterable, Iterator

    from bridge.client.buffer.memory_queue import Batch
    from bridge.client.buffer.provider import Message, Provider

_log = logging.getLogger("bridge.buffer")

RETRY_MIN_S = 0.01  # a provider whose retry_wait_s is 0 would keep a processor busy


def _words(error: Exception) -> str:
    """Its message as UTF-8: a user's provider may raise any text."""
    return as_utf8(str(error) or type(error).__name__)


def _not_acknowledged(failed: Iterable[int], count: int) -> ConnectionError:
    """What `Provider.flush` returned, as an error."""
    were = "was" if count == 1 else "were"
    said = f"{counted(count, 'message', ',')} {were} not acknowledged"
    if isinstance(failed, Mapping):
        said += f": {next(iter(failed.values()))}"
    return ConnectionError(said)


class ProviderSender:
    """For one thread.

    on_rejected: stores a message that will never be accepted, or raises; then it is called again
    later. retry_max_s: the longest pause. error: the last failure, until a message is delivered.
    healthy_since_s: when the last pause ended. delivered, rejected: numbers of messages.
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
        self._open = self._can_store = False
        self._retry_at_s = self.healthy_since_s = -float("inf")
        self.error: str | None = None
        self.delivered = self.rejected = 0

    @property
    def wait_s(self) -> float:
        """Seconds until the pause after a failure is over; 0 or less: there is none."""
        return self._retry_at_s - self._clock()

    def hurry(self) -> None:
        """Ends the pause."""
        self._retry_at_s = -float("inf")

    def deliver(self, batch: Batch) -> str | None:
        """Sends the messages of a batch that are not delivered yet, and marks those that are now. Returns why
        others are not, or None."""
        left = iter(batch.left())
        failure: Exception | None = None
        try:
            if not self._open:
                self._open = True  # also if it fails: then it is closed
                self._provider.open()
            while rejected := self._send(batch, left):
                for i, why in rejected:
                    self._store_rejected(batch, i, why)
        except Exception as error:  # noqa: BLE001 -- a user's provider: anything may come
            failure = error
        if failure is None:
            self._succeed()
            return None
        try:
            self.fail(failure)
        finally:
            del failure  # its traceback refers to this frame: a cycle
        return self.error

    def _send(self, batch: Batch, left: Iterator[int]) -> list[tuple[int, str]]:
        """Delivers the messages with these indices. Returns those that are rejected, and why. Those before
        them are done by then: otherwise the next program would reject and store them once more. Stops at
        the first rejected one, unless the last one could be stored: messages sent after one that cannot be
        stored would be sent again. Raises if a message is not done."""
        send, messages, done = self._provider.send, batch.messages, batch.done
        taken: list[int] = []
        rejected: list[tuple[int, str]] = []
        failure: Exception | None = None
        for i in left:
            try:
                send(messages[i])
            except Rejected as error:
                rejected.append((i, _words(error)))
                if self._can_store:
                    continue
                break
            except Exception as error:  # noqa: BLE001 -- a user's provider: anything may come
                failure = error  # flush what was accepted before
                break
            taken.append(i)
        failed = self._provider.flush() if taken else ()
        unanswered = {taken[position] for position in failed}
        if len(taken) == len(done) and not unanswered:
            done[:] = b"\1" * len(done)
        else:
            for i in taken:
                done[i] = i not in unanswered
        self.delivered += len(taken) - len(unanswered)
        if failure is None and unanswered:
            failure = _not_acknowledged(failed, len(unanswered))
        try:
            if failure is not None:
                raise failure
        finally:
            del failure  # as above
        return rejected

    def _store_rejected(self, batch: Batch, i: int, why: str) -> None:
        _log.error("%s: a message is rejected: %s", self.name, why)
        self._can_store = False
        self._on_rejected(batch.messages[i], why)
        self._can_store = True
        batch.done[i] = 1
        self.rejected += 1

    def _succeed(self) -> None:
        if self._backoff.attempts:
            _log.info("%s: delivers again", self.name)
            self._backoff.reset()
            self.error = None
            self.healthy_since_s = self._clock()

    def fail(self, error: Exception) -> None:
        """Reports a failure, closes the provider and begins a pause."""
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
        """Never raises."""
        if self._open:
            self._open = False
            try:
                self._provider.close()
            except Exception as error:  # noqa: BLE001 -- a user's provider: anything may come
                _log.warning("%s: closing: %s", self.name, error)
