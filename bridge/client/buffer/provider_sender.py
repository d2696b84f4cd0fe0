"""Sends batches through a provider: opens it when it is needed, stores rejected messages elsewhere, and
after a failure closes it and pauses."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice

from aolog.errors import as_utf8, counted
from bridge.client.buffer.memory_queue import Batch
from bridge.client.buffer.provider import Message, Provider
from bridge.deliver.backoff import Backoff
from bridge.errors import Rejected

_log = logging.getLogger("bridge.buffer")

RETRY_MIN_S = 0.01  # a provider whose retry_wait_s is 0 would keep a processor busy


def _words(error: Exception) -> str:
    """Its message as UTF-8: a user's provider may raise any text."""
    return as_utf8(str(error) or type(error).__name__)


def _not_acknowledged(failed: Iterable[int], count: int) -> str:
    """What `Provider.flush` returned, in words."""
    were = "was" if count == 1 else "were"
    said = f"{counted(count, 'message', ',')} {were} not acknowledged"
    if isinstance(failed, Mapping):
        said += f": {next(iter(failed.values()))}"
    return said


class ProviderSender:
    """For one thread. on_rejected: stores a message that will never be accepted, or raises; then it is called
    again later. retry_max_s: the longest pause."""

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
        self._open = False
        self._retry_at_s = self.healthy_since_s = -float("inf")  # when the last pause ends
        self.error: str | None = None  # the last failure, until a message is delivered
        self.delivered = self.rejected = 0  # messages

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
        failure: str | None = None
        try:
            if not self._open:
                self._open = True  # also if it fails: then it is closed
                self._provider.open()
            while (rejected := self._send(batch, left)) is not None:
                self._store_rejected(batch, *rejected)
        except Exception as error:  # noqa: BLE001 -- a user's provider: anything may come
            failure = _words(error)  # not the error: its traceback refers to this frame, a cycle
        if failure is None:
            self._succeed()
        else:
            self.fail(failure)
        return failure

    def _send(self, batch: Batch, left: Iterator[int]) -> tuple[int, str] | None:
        """Delivers the messages with these indices, up to the first that is rejected. Returns that one, and why.
        Those before it are done by then: otherwise the next program would reject and store it once more.
        Those after it wait until it is stored: otherwise they would be sent again if it cannot be. Raises if a
        message is not done."""
        send, messages, done = self._provider.send, batch.messages, batch.done
        send_all = None if 1 in done else getattr(self._provider, "send_all", None)
        taken: list[int] = []
        rejected: tuple[int, str] | None = None
        failure: str | None = None
        for i in left:
            try:
                end = i if send_all is None else send_all(messages, i)
                if end <= i:
                    send(messages[i])
            except Rejected as error:
                rejected = i, _words(error)
                break
            except Exception as error:  # noqa: BLE001 -- a user's provider: anything may come
                failure = _words(error)  # flush what was accepted before
                break
            taken.append(i)
            taken += islice(left, max(0, end - i - 1))  # that `send_all` sent, too
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
        if failure is not None:
            raise ConnectionError(failure)
        return rejected

    def _store_rejected(self, batch: Batch, i: int, why: str) -> None:
        _log.error("%s: a message is rejected: %s", self.name, why)
        self._on_rejected(batch.messages[i], why)
        batch.done[i] = 1
        self.rejected += 1

    def _succeed(self) -> None:
        if self._backoff.attempts:
            _log.info("%s: delivers again", self.name)
            self._backoff.reset()
            self.error = None
            self.healthy_since_s = self._clock()

    def fail(self, why: str) -> None:
        """Reports a failure, closes the provider and begins a pause."""
        now_s = self._clock()
        if why != self.error:
            _log.warning("%s: %s", self.name, why)
        self.error = why
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
