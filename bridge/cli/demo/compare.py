"""Compares messages that arrived with records that were appended, while both grow. Pure.

Records come in the order of the log, messages in the order of each partition. A record matches the
first message of a partition if that has its address. A message with an earlier address is a repetition;
a record that every partition has passed is missing. Memory holds only what is not matched yet.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from aolog.format.origin import HEADER_NAME
from bridge.kafka.stamp import decode_stamp

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aolog import Record
    from bridge.client.received import Received


class Comparison:
    """Counts of matches and differences. bytes: of matched values. strangers: messages without a stamp."""

    def __init__(self, partitions: int) -> None:
        self.matched = 0
        self.bytes = 0
        self.repeated = 0
        self.altered = 0
        self.disordered = 0
        self.strangers = 0
        self.missing = 0
        self._waiting: deque[Record] = deque()
        self._heads: list[deque[tuple[int, Received]]] = [deque() for _ in range(partitions)]
        self._last_seen = [-1] * partitions

    @property
    def unmatched(self) -> int:
        """Records without a message so far."""
        return len(self._waiting)

    @property
    def clean(self) -> bool:
        """No difference so far."""
        return not (
            self.repeated or self.altered or self.disordered or self.strangers or self.missing
        )

    def appended(self, records: Iterable[Record]) -> None:
        """The log's next records."""
        self._waiting.extend(records)

    def arrived(self, messages: Iterable[Received]) -> None:
        """Messages that were consumed."""
        for message in messages:
            stamp = decode_stamp(list(message.headers))
            if stamp is None:
                self.strangers += 1
            elif stamp.address == self._last_seen[message.partition]:
                self.repeated += 1
            else:
                if stamp.address < self._last_seen[message.partition]:
                    self.disordered += 1
                self._last_seen[message.partition] = stamp.address
                self._heads[message.partition].append((stamp.address, message))

    def match(self, *, final: bool = False) -> None:
        """Matches records with messages. final: nothing more will arrive."""
        waiting, heads = self._waiting, self._heads
        while waiting:
            record = waiting[0]
            for head in heads:
                while head and head[0][0] < record.address:
                    head.popleft()
                    self.repeated += 1
                if head and head[0][0] == record.address:
                    self._compare(record, head.popleft()[1])
                    break
            else:
                if not final and not all(heads):
                    return
                self.missing += 1
            waiting.popleft()
        if final:
            self.repeated += sum(map(len, heads))

    def _compare(self, record: Record, message: Received) -> None:
        stamp = decode_stamp(list(message.headers))
        headers = [pair for pair in message.headers if pair[0] != HEADER_NAME]
        same = (
            message.value == record.value
            and message.key == record.key
            and tuple(headers) == record.headers
            and stamp is not None
            and stamp.timestamp_us == record.timestamp
            and record.timestamp is not None
            and message.timestamp == record.timestamp // 1000
        )
        self.matched += 1
        self.bytes += len(record.value or b"")
        self.altered += not same
