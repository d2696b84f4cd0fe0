"""The logs of a directory, one for each topic, and the batches that they take.

A batch is one frame: all of its records or none. It is durable when `take` returns. A batch with an
idempotency key that the log has already is not appended again: the first header of its first record has
the key, and the keys of the last KEYS_BYTES of a log are read back when it is opened. Thread-safe.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from contextlib import ExitStack, suppress
from typing import Any, NamedTuple

from aolog.errors import (
    AddressPruned,
    AologError,
    CallInterrupted,
    LogClosed,
    NotALog,
    SyncFailed,
    UsageError,
)
from aolog.log.directory import Log
from aolog.read.reader import Reader
from aolog.record import Record
from aolog.storage.storage import Storage
from aolog.write.writer import Writer
from bridge.ingest.bodies import Columns
from bridge.kafka.lane import is_topic_name

KEY_HEADER = "aolog-idempotency-key"  # a record may have a header of its own named idempotency-key
KEYS_MAX = 100_000  # remembered for each log; the oldest are forgotten
KEYS_BYTES = 64 << 20  # of a log's end, read when it is opened
_TOPICS_MAX = 1_000  # each has an open slab and a thread


class Taken(NamedTuple):
    """Where a batch is. repeated: it was there before."""

    topic: str
    first: int
    records: int
    repeated: bool


class _TopicLog:
    """One log, its writer, and the keys of its batches with the address and number of their records."""

    def __init__(self, path: str, topic: str, options: dict[str, Any]) -> None:
        self.path, self.topic = path, topic
        self.writer = Writer(path, topic=topic, **options)
        self._lock = threading.Lock()
        self._keys: OrderedDict[bytes, tuple[int, int]] = OrderedDict()
        try:
            self._read_keys()
        except BaseException:  # the next request opens the log again
            self.writer.close()
            raise

    def _read_keys(self) -> None:
        try:
            reader = Reader(self.path, _last_bytes(self.path))
        except AddressPruned:
            reader = Reader(self.path)
        except NotALog:  # it has no record yet
            return
        with reader:
            while (batch := reader.read_batch(1)) is not None:
                for frame in batch.frames:
                    headers = next(iter(frame.records())).headers if frame.columns.headers else ()
                    for name, value in headers[:1]:
                        if name == KEY_HEADER and value is not None:
                            self._remember(value, frame.address, frame.columns.records)

    def _remember(self, key: bytes, first: int, records: int) -> None:
        self._keys[key] = first, records
        if len(self._keys) > KEYS_MAX:
            self._keys.popitem(last=False)

    def take(self, columns: Columns, key: bytes | None) -> Taken:
        values, keys, headers, timestamps = columns
        with self._lock:
            known = None if key is None else self._keys.get(key)
            if known is None:
                if key is not None:
                    headers = list(headers or [()] * len(values))
                    headers[0] = ((KEY_HEADER, key), *headers[0])
                addresses = self.writer.append_many(
                    values, keys=keys, headers=headers, timestamps=timestamps
                )
                first, count = int(addresses[0]), len(values)
                if key is not None:
                    self._remember(key, first, count)
            else:
                first, count = known
        self.writer.sync()  # of a repeated batch too: the first request may not have synced
        return Taken(self.topic, first, count, known is not None)


def _last_bytes(path: str) -> int:
    """The address from which on the log's files have KEYS_BYTES, or its first. Addresses alone show less: after a
    power cut the next ones may be far above. Raises NotALog."""
    left = KEYS_BYTES
    with Log(path, Storage()) as log:
        log.require_slabs()
        for i in reversed(range(len(log.bases))):
            size = log.slab(i).end_offset
            if size >= left:
                return log.bases[i] + size - left
            left -= size
        return log.bases[0]


class Logs:
    """The logs below `root`. topics: the only ones that are accepted; empty: any. options: of Writer."""

    def __init__(self, root: str, topics: tuple[str, ...], options: dict[str, Any]) -> None:
        self._root, self._topics, self._options = root, topics, options
        self._open: dict[str, _TopicLog] = {}
        self._lock = threading.Lock()
        self._closed = False

    def accepts(self, topic: str) -> bool:
        """Whether there may be a log of this topic."""
        valid = is_topic_name(topic) and not topic.startswith(".")
        return valid and (not self._topics or topic in self._topics)

    def take(self, topic: str, columns: Columns, key: bytes | None) -> Taken:
        """Appends a batch that is not empty; durable on return. Raises what Writer raises; LogClosed also if another
        call has made the writer fail: then call again."""
        with self._lock:
            if self._closed:
                raise LogClosed("the logs are closed")
            log = self._open.get(topic)
            if log is None:
                if len(self._open) >= _TOPICS_MAX:
                    raise UsageError(
                        f"{_TOPICS_MAX} topics are open", hint="name them with --topic"
                    )
                log = _TopicLog(os.path.join(self._root, topic), topic, self._options)  # noqa: PTH118 -- no pathlib here
                self._open[topic] = log
        try:
            return log.take(columns, key)
        except BaseException as error:
            if isinstance(error, SyncFailed | CallInterrupted) or not isinstance(error, AologError):
                self._drop(log)
            raise

    def _drop(self, log: _TopicLog) -> None:
        """Its writer refuses all calls from now on; the next request opens the log again, which recovers it."""
        with self._lock:
            if self._open.get(log.topic) is log:
                del self._open[log.topic]
                with suppress(AologError):  # the request is answered with it
                    log.writer.close()

    def read(self, topic: str, start: int | None, most_bytes: int) -> tuple[list[Record], int]:
        """Records from an address on, None for the earliest; and the address to continue at. Raises
        NotALog, AddressPruned, AddressBeyondEnd."""
        path = os.path.join(self._root, topic)  # noqa: PTH118 -- as above
        with Reader(path, "earliest" if start is None else start) as reader:
            batch = reader.read_batch(most_bytes)
            return [] if batch is None else list(batch), reader.tell()

    def state(self) -> list[dict[str, Any]]:
        """Of each open log: topic, end, durable."""
        with self._lock:
            return [
                {"topic": topic, "end": log.writer.end, "durable": log.writer.durable}
                for topic, log in self._open.items()
            ]

    def close(self) -> None:
        """Closes the logs. Raises an error after all were tried."""
        with self._lock, ExitStack() as stack:
            self._closed = True
            for log in self._open.values():
                stack.callback(log.writer.close)
            self._open.clear()
