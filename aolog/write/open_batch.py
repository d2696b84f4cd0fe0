"""The open batch: records gathered in memory until they become one frame. Pure.

Its address is fixed when the first record is taken, so a record's address is known at once: the
batch's address plus the number of records before it. A column exists only once a record uses it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aolog.format.columns import encode_columns

if TYPE_CHECKING:
    from aolog.format.frame import Buffer
    from aolog.record import Headers
    from aolog.write.validate import CheckedRecord


class OpenBatch:
    """Records not yet in a frame. Not thread-safe: the caller holds the writer's lock.

    address: of the first record. timestamp_us: of records without a timestamp. size: bytes gathered,
    offsets included. plain: the records have nothing but values, so a value may join the list.
    """

    __slots__ = ("address", "headers", "keys", "plain", "size", "timestamp_us", "timestamps",
                 "topics", "values")  # fmt: skip  # one thing, one line

    def __init__(self, address: int, timestamp_us: int) -> None:
        self.address = address
        self.timestamp_us = timestamp_us
        self.size = 0
        self.plain = True
        self.values: list[bytes | None] = []
        self.keys: list[bytes | None] | None = None
        self.headers: list[Headers] | None = None
        self.timestamps: list[int] | None = None
        self.topics: list[str | None] | None = None

    def add(self, record: CheckedRecord) -> int:
        """Takes a record; its address."""
        value, key, headers, timestamp, topic, size = record
        before = len(self.values)
        self.size += size
        self.values.append(value)
        if self.plain and key is None and not headers and timestamp is None and topic is None:
            return self.address + before
        self.plain = False
        if self.keys is not None or key is not None:
            self.keys = [None] * before if self.keys is None else self.keys
            self.keys.append(key)
        if self.headers is not None or headers:
            self.headers = [()] * before if self.headers is None else self.headers
            self.headers.append(headers)
        if self.timestamps is not None or timestamp is not None:
            if self.timestamps is None:
                self.timestamps = [self.timestamp_us] * before
            self.timestamps.append(self.timestamp_us if timestamp is None else timestamp)
        if self.topics is not None or topic is not None:
            self.topics = [None] * before if self.topics is None else self.topics
            self.topics.append(topic)
        return self.address + before

    def encode(self) -> tuple[int, list[Buffer]]:
        """The body: its columns' bits and its parts."""
        if self.plain:
            values = self.values
            if len(values) == 1 and values[0] is not None:
                return 0, [values[0]]
            return encode_columns(values)
        return encode_columns(
            self.values,
            timestamps=self.timestamps,
            keys=self.keys,
            topics=self.topics,
            headers=self.headers,
        )
