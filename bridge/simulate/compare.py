"""Compares messages that arrived with records that were appended, while both grow. Pure.

A message matches the record that has its address. A message whose record was matched before is a
repetition; a record without a message is missing. Only records without a match are kept in memory.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from aolog.format.origin import HEADER_NAME
from bridge.kafka.stamp import Stamp, decode_stamp

if TYPE_CHECKING:
    from aolog import Record
    from bridge.client.received import Received


class Comparison:
    """Counts of matches and differences. bytes: of matched values. strangers: messages without a stamp."""

    def __init__(self) -> None:
        self.matched = 0
        self.bytes = 0
        self.repeated = 0
        self.altered = 0
        self.disordered = 0
        self.strangers = 0
        self._waiting: dict[int, Record] = {}
        self._last_seen: dict[int, int] = {}

    @property
    def missing(self) -> int:
        """Records without a message so far."""
        return len(self._waiting)

    def appended(self, records: Iterable[Record]) -> None:
        """The log's next records."""
        self._waiting.update((record.address, record) for record in records)

    def arrived(self, messages: Iterable[Received]) -> None:
        """Messages that were consumed, of records that were appended."""
        for message in messages:
            stamp = decode_stamp(list(message.headers))
            if stamp is None:
                self.strangers += 1
                continue
            self.disordered += stamp.address < self._last_seen.get(message.partition, -1)
            self._last_seen[message.partition] = stamp.address
            record = self._waiting.pop(stamp.address, None)
            if record is None:
                self.repeated += 1
            else:
                self._compare(record, message, stamp)

    def _compare(self, record: Record, message: Received, stamp: Stamp) -> None:
        headers = [pair for pair in message.headers if pair[0] != HEADER_NAME]
        same = (
            message.value == record.value
            and message.key == record.key
            and tuple(headers) == record.headers
            and stamp.timestamp_us == record.timestamp
            and record.timestamp is not None
            and message.timestamp == record.timestamp // 1000
        )
        self.matched += 1
        self.bytes += len(record.value or b"")
        self.altered += not same
