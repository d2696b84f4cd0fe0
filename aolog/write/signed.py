"""Appends signed records: a log's writer signs, and the consumer in Kafka verifies.

See aolog/format/signature.py for what is signed. The topic must be the record's topic in Kafka: a
route of the bridge to another topic makes the signature wrong.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aolog.errors import UsageError
from aolog.format.signature import sign
from aolog.storage import clock

if TYPE_CHECKING:
    from aolog.format.signature import Key
    from aolog.record import Headers
    from aolog.write.writer import Writer

__all__ = ["append_signed"]


def append_signed(
    writer: Writer,
    signer: Key,
    value: bytes | None,
    *,
    key: bytes | None = None,
    headers: Headers = (),
    timestamp: int | None = None,
    topic: str | None = None,
) -> int:
    """As Writer.append, with a signature as the last header. Returns the address. The record's topic, or
    the writer's, is signed. Raises UsageError if there is neither, and what `append` raises."""
    destination = topic or writer.topic
    if destination is None:
        raise UsageError(
            "a signature covers the topic, and neither the record nor the log names one"
        )
    moment = clock.now_us() if timestamp is None else timestamp
    sent_ms = max(1, moment // 1_000)  # as the bridge sends it
    header = sign(signer, destination, key, value, sent_ms)
    return writer.append(value, key=key, headers=(*headers, header), timestamp=moment, topic=topic)
