"""Headers and times of consumed messages, as far as they can be used: any program may have written them.

- A header's name may not be UTF-8. The client's first call of `headers` then raises SystemError, and later
  calls return pairs without a name, which end the process if they are looked at. So only this module
  calls it. A header without a name is left out, and counted.
- For the client a name ends at its first NUL. Nothing shows that.
- A time is any number of 64 bits; -1 means that there is none.
"""

from __future__ import annotations

import ctypes
import logging
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from operator import methodcaller
from typing import Any, NamedTuple, TypeAlias

from confluent_kafka import TIMESTAMP_NOT_AVAILABLE

from aolog.errors import counted
from bridge.kafka.stamp import Stamp, decode_stamp

Pairs: TypeAlias = Sequence[tuple[str, bytes | None]]

_log = logging.getLogger("bridge")
_NO_TIME_MS = -1  # Kafka's RecordBatch.NO_TIMESTAMP
_AGAIN_S = 60.0  # between two log lines of a kind
# Never `message.headers()`: Python's specialized calls do not look for an exception beside a result, so it
# would be raised by whatever is called next.
_headers = methodcaller("headers")
# None of an item that the client has not set, which Python itself may not touch.
_item = ctypes.pythonapi.PyTuple_GetItem
_item.restype, _item.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_ssize_t)


def headers_of(message: Any) -> tuple[Pairs, int]:
    """The headers of the client's message, and how many were left out: at the first call for a message."""
    try:
        return _headers(message) or (), 0
    except (SystemError, UnicodeDecodeError):
        return _named(message)


def _named(message: Any) -> tuple[Pairs, int]:
    """The headers that have a name, which replace the message's, and the number of the others."""
    pairs: Pairs | None = None
    for _ in range(2):  # a call that fails leaves the pairs to the next one
        with suppress(SystemError, UnicodeDecodeError):
            pairs = _headers(message) or ()
    if pairs is None:  # another release of the client never gives them
        return (), 1
    named = [pair for pair in pairs if _item(pair, 0) is not None]
    if len(named) < len(pairs):
        message.set_headers(named)
    return named, len(pairs) - len(named)


def stamp_of(message: Any) -> Stamp | None:
    """The stamp among a message's headers; None if there is none."""
    return decode_stamp(headers_of(message)[0])


def time_ms_of(message: Any) -> int | None:
    """A message's time: any i64, or None."""
    kind, time_ms = message.timestamp()
    return None if kind == TIMESTAMP_NOT_AVAILABLE or time_ms == _NO_TIME_MS else time_ms


class LeftOut(NamedTuple):
    """What was left out of a record that was kept: so many headers; Kafka's time, unless it is None."""

    headers: int = 0
    time_ms: int | None = None


class Omissions:
    """Counts what was left out of records, and logs it with a record's place: for each topic at once,
    then once a minute. headers, times: since the start."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.headers = self.times = 0
        self._clock = clock
        self._due_s: dict[str, float] = {}  # by topic: when the next line may be logged
        self._unsaid: dict[str, int] = {}  # by topic: records since the last line

    @property
    def total(self) -> int:
        """Headers and times."""
        return self.headers + self.times

    def note(self, topic: str, partition: int, offset: int, what: LeftOut) -> None:
        """A record was kept without this."""
        self.headers += what.headers
        self.times += what.time_ms is not None
        unsaid, now_s = self._unsaid.get(topic, 0), self._clock()
        if now_s < self._due_s.get(topic, now_s):
            self._unsaid[topic] = unsaid + 1
            return
        self._due_s[topic], self._unsaid[topic] = now_s + _AGAIN_S, 0
        said = []
        if what.headers:
            said.append(f"{counted(what.headers, 'header')} whose name is not UTF-8")
        if what.time_ms is not None:
            said.append(f"a timestamp that cannot be kept, {what.time_ms} ms")
        also = f", and of {counted(unsaid, 'record')} since the last line" if unsaid else ""
        _log.warning("%s/%d@%d: left out: %s%s", topic, partition, offset, "; ".join(said), also)
