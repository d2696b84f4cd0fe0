"""What a Kafka client's producer does not take as it is: values that its queue never holds, and headers that it
would alter. Pure.

For the client a header's name ends at its first NUL. It sends the bytes before it, and from there on bytes of
something else; the consumer gets another name, and nothing shows that.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from aolog.errors import RecordRefused
from aolog.record import Headers
from aolog.write.validate import check_headers
from bridge.kafka.error_table import NUL_IN_HEADER, row_of

MESSAGE_BYTES_MAX = 1_000_000  # the client's default
# What one log may have in flight. More makes nothing faster: it is a second's work for a link of 250 Mbit/s, and
# the window (deliver/at_least_once/window.py) aims at answers within a second.
LOG_BYTES_MAX = 32 << 20
QUEUE_KBYTES = "queue.buffering.max.kbytes"  # bounds memory while a backlog drains


def queue_kbytes_of(settings: Mapping[str, Any]) -> int:
    """What the settings say; otherwise 64 MiB, or more if the largest record needs more."""
    record_bytes_max = int(settings.get("message.max.bytes", MESSAGE_BYTES_MAX))
    return int(settings.get(QUEUE_KBYTES, max(65_536, -(-record_bytes_max // 1024))))


def over_queue(value_bytes: int, kbytes: int) -> str | None:
    """Why a queue of this size never takes such a value; None if it does. The client would only answer
    that its queue is full now. It counts values, without keys and headers (measured)."""
    if value_bytes <= kbytes * 1024:
        return None
    return f"its value has {value_bytes} bytes, over {QUEUE_KBYTES}={kbytes}"


def are_altered(headers: Iterable[tuple[str, bytes | None]]) -> bool:
    """Whether the client would send other headers than these."""
    return any("\0" in name for name, _ in headers)


def client_headers(headers: object) -> Headers:
    """The headers as pairs. Raises RecordRefused for what a log refuses, and for what the client would
    alter; it ends the process where a name has no UTF-8 form."""
    checked, _ = check_headers(headers)
    if are_altered(checked):
        raise RecordRefused(row_of(NUL_IN_HEADER).reads, hint="use another name")
    return checked
