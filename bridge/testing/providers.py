"""Providers for tests and drills: one in memory, and one that makes another fail."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable

from bridge.client.buffer.provider import Message, Provider
from bridge.errors import Rejected

_FAILED = -1


class MemoryProvider:
    """Keeps delivered messages, in order, in `messages`."""

    name = "memory"
    retry_wait_s = 0.05

    def __init__(self) -> None:
        self.messages: list[Message] = []

    def open(self) -> None:
        """Nothing to do."""

    def send(self, message: Message) -> None:
        """Delivers at once."""
        self.messages.append(message)

    def flush(self) -> Iterable[int]:
        """Everything is delivered already."""
        return ()

    def close(self) -> None:
        """Nothing to do; `messages` stays."""


class FaultyProvider:
    """Another provider with faults. The same seed gives the same faults. The public attributes may be changed
    at any time."""

    def __init__(
        self,
        inner: Provider,
        *,
        seed: int = 0,
        error_rate: float = 0.0,
        lost_answers: float = 0.0,
        delay_s: float = 0.0,
        reject: Callable[[Message], bool] | None = None,
    ) -> None:
        self.name = f"faulty {inner.name}"
        self.retry_wait_s = inner.retry_wait_s
        self.down = False  # every call fails
        # The share of messages that fail, and with each the later ones of its stream in the flush.
        self.error_rate = error_rate
        self.lost_answers = lost_answers  # the share of flushes that deliver and then fail
        self.delay_s = delay_s  # how long each flush takes
        self.reject = reject  # whether a message is never accepted
        self.inner = inner
        self._entropy = random.Random(seed)  # noqa: S311 -- for faults, not for secrets
        self._accepted: list[int] = []  # for each message: its position in the inner flush, or -1
        self._passed = 0
        self._failing: set[tuple[str, bytes | None]] = set()  # topics and keys

    def _check(self) -> None:
        if self.down:
            raise ConnectionError(f"{self.name} is down")

    def open(self) -> None:
        """Fails while down."""
        self._check()
        self.inner.open()

    def send(self, message: Message) -> None:
        """Decides whether the message will be delivered."""
        self._check()
        if self.reject is not None and self.reject(message):
            raise Rejected("by the plan of faults")
        stream = message.topic, message.key
        if stream in self._failing or self._entropy.random() < self.error_rate:
            self._failing.add(stream)
            self._accepted.append(_FAILED)
        else:
            self.inner.send(message)
            self._accepted.append(self._passed)
            self._passed += 1

    def flush(self) -> Iterable[int]:
        """Positions of messages that failed here or in the inner provider."""
        time.sleep(self.delay_s)
        failed = {_FAILED, *self.inner.flush()}
        positions = [i for i, passed in enumerate(self._accepted) if passed in failed]
        self._forget()
        self._check()
        if self._entropy.random() < self.lost_answers:
            raise ConnectionError(f"{self.name} lost its answer")
        return positions

    def close(self) -> None:
        """Closes the inner provider."""
        self._forget()
        self.inner.close()

    def _forget(self) -> None:
        self._accepted = []
        self._passed = 0
        self._failing.clear()
