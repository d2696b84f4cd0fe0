"""Messages that a Buffer's destination will never accept, in a dead-letter log.

The log is like the bridge's own (see bridge.deliver.dead_letter), and `aolog-bridge replay PATH
--dead-letter` sends it again. A message comes from no log: its origin is a timestamp alone.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from aolog import Record
from bridge.deliver.dead_letter import DeadLetterLog
from bridge.kafka.lane import NO_PARTITION, Refusal
from bridge.kafka.stamp import encode_stamp

if TYPE_CHECKING:
    from aolog.storage.storage import Storage
    from bridge.buffer.provider import Message

_NO_LOG = bytes(16)
_CODE = re.compile(r"_?[A-Z][A-Z0-9_]+(?=:)")  # Kafka's name of an error, at the begin of its text


class RejectedMessages:
    """For one Buffer and one thread. Opens the log. Raises what Writer raises."""

    def __init__(self, path: str, storage: Storage, mode: int) -> None:
        self._log = DeadLetterLog(path, storage, mode)
        self._appended: Message | None = None  # it may not be durable
        self._log.open()

    def take(self, message: Message, why: str) -> None:
        """Durable on return. If it raises, call it again with the same message."""
        if message != self._appended:
            record = Record(
                0, message.timestamp_us, message.key, message.value, message.headers, message.topic
            )
            code = _CODE.match(why)
            self._log.append(
                record,
                (message.topic, NO_PARTITION),
                Refusal(why, code[0] if code else "REJECTED"),
                encode_stamp(_NO_LOG, 0, 0, message.timestamp_us),
            )
            self._appended = message
        self._log.sync()
        self._appended = None

    def close(self) -> None:
        """Idempotent."""
        self._log.close()
