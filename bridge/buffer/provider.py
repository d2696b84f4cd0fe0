"""Providers: where a Buffer delivers to. A small protocol, so that a user's own is a few lines.

Kafka's is in `bridge.buffer.kafka_provider`; here are one that keeps messages in memory, one that writes
them to a file as JSON lines, and one that makes another fail, for tests and drills.
"""

from __future__ import annotations

import base64
import contextlib
import json
import random
import time
from pathlib import Path
from typing import IO, TYPE_CHECKING, NamedTuple, Protocol

from aolog.errors import StorageError
from aolog.storage.directory import beside
from aolog.storage.storage import Storage

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable

    from aolog.record import Headers

__all__ = ["FaultyProvider", "FileProvider", "MemoryProvider", "Message", "Provider", "Rejected"]


class Message(NamedTuple):
    """What is delivered. timestamp_us: microseconds since the epoch, when it was accepted."""

    topic: str
    value: bytes | None
    key: bytes | None = None
    headers: Headers = ()
    timestamp_us: int = 0


class Rejected(Exception):
    """Raised by `Provider.send`: this message will never be taken, however often it is tried."""


class Provider(Protocol):
    """A destination. One thread calls it, one call at a time.

    It keeps the order of each topic and key: behind a message that was not delivered, none of the
    same topic and key may be, until it was told by `flush`. A call may block, but not for ever: a
    Buffer that is closed waits for it. Any exception but Rejected means "not now": the Buffer
    closes the provider, waits `retry_wait_s` and longer each time, opens it again, and sends
    again what was not delivered. What is rejected is set aside once all that stands ahead of it was
    delivered.

    name: for logs and errors. retry_wait_s: seconds before the first new try, a hundredth at
    least.
    """

    name: str
    retry_wait_s: float

    def open(self) -> None:
        """Called before the first message, and after `close`. Raises if it cannot."""

    def send(self, message: Message) -> None:
        """Takes a message, to be delivered by `flush` at the latest. Raises if it does not take
        it, and Rejected if it never will."""

    def flush(self) -> Iterable[int]:
        """Ends when it is known of each message that was taken since the last call whether it was
        delivered. Which were not: 0 is the first of them; in a mapping with why. Raises if
        nothing is known of any."""

    def close(self) -> None:
        """Frees what it holds, also after an `open` that failed. Whatever was taken and not
        flushed may be forgotten."""


class MemoryProvider:
    """Keeps what is delivered, in order, in `messages`."""

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
        """All are delivered."""
        return ()

    def close(self) -> None:
        """Nothing to do: what was delivered stays."""


class FileProvider:
    """Appends each message to a file as a line of JSON: topic, key, value, headers, timestamp_us.

    Text that is UTF-8 stands as it is, other bytes as {"base64": ...}. Delivered means written to
    the operating system. A write that fails half-way may leave a part of a line, which is ended
    before the next: what is sent again stands on a line of its own.
    """

    retry_wait_s = 1.0

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = Path(path)
        self._file: IO[bytes] | None = None
        self.name = f"file {path}"

    def open(self) -> None:
        """Opens the file for appending, and ends its last line. Raises OSError."""
        self._file = self._path.open("ab", buffering=0)
        if _is_cut_off(self._path):
            self._file.write(b"\n")

    def send(self, message: Message) -> None:
        """Writes a line. Raises OSError."""
        assert self._file is not None
        line = json.dumps(
            {
                "topic": message.topic,
                "key": _text(message.key),
                "value": _text(message.value),
                "headers": [[name, _text(value)] for name, value in message.headers],
                "timestamp_us": message.timestamp_us,
            }
        ).encode() + b"\n"  # fmt: skip  # an object, then its end
        written = self._file.write(line)
        if written != len(line):
            raise OSError(f"{self._path}: {written} of {len(line)} bytes written")

    def flush(self) -> Iterable[int]:
        """All are written."""
        return ()

    def close(self) -> None:
        """Closes the file."""
        if self._file is not None:
            self._file.close()
            self._file = None


def _is_cut_off(path: Path) -> bool:
    """Whether the last line of a file has no end. False of a pipe, and what may not be read."""
    try:
        storage = Storage()
        file = storage.open_read(beside(storage.real_path(str(path))))
    except StorageError:
        return False
    with contextlib.closing(file):
        size = file.stat().size
        return size > 0 and file.pread(1, size - 1) != b"\n"


def _text(data: bytes | None) -> str | dict[str, str] | None:
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


_FAILED = -1


class FaultyProvider:
    """Another provider with faults: the same ones from the same seed.

    down: every call fails. error_rate: of 1, how many messages are not delivered, and with each
    those of its topic and key that follow in the same flush. lost_answers: of 1, how many
    flushes deliver and then fail. delay_s: how long each flush takes. reject: whether a message is
    never taken. All may be changed at any time.
    """

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
        self.down = False
        self.error_rate = error_rate
        self.lost_answers = lost_answers
        self.delay_s = delay_s
        self.reject = reject
        self.inner = inner
        self._entropy = random.Random(seed)  # noqa: S311 -- faults, no secret
        self._taken: list[int] = []  # of each that was taken: where the other has it, or -1
        self._passed = 0
        self._behind: set[tuple[str, bytes | None]] = set()

    def _check(self) -> None:
        if self.down:
            raise ConnectionError(f"{self.name} is down")

    def open(self) -> None:
        """Fails while down."""
        self._check()
        self.inner.open()

    def send(self, message: Message) -> None:
        """Takes it; whether it is delivered is decided here."""
        self._check()
        if self.reject is not None and self.reject(message):
            raise Rejected("by the plan of faults")
        stream = message.topic, message.key
        if stream in self._behind or self._entropy.random() < self.error_rate:
            self._behind.add(stream)
            self._taken.append(_FAILED)
        else:
            self.inner.send(message)
            self._taken.append(self._passed)
            self._passed += 1

    def flush(self) -> Iterable[int]:
        """Those that failed here or there."""
        time.sleep(self.delay_s)
        failed = {_FAILED, *self.inner.flush()}
        positions = [i for i, passed in enumerate(self._taken) if passed in failed]
        self._forget()
        self._check()
        if self._entropy.random() < self.lost_answers:
            raise ConnectionError(f"{self.name} lost its answer")
        return positions

    def close(self) -> None:
        """Closes the other one."""
        self._forget()
        self.inner.close()

    def _forget(self) -> None:
        self._taken = []
        self._passed = 0
        self._behind.clear()
