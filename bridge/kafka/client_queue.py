"""The queue of a Kafka client's producer: how large it is, and which values it never takes. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

MESSAGE_BYTES_MAX = 1_000_000  # the client's default
# What one log may have in flight. More makes nothing faster: it is a second's work for a link of 250 Mbit/s, and
# the window (deliver/at_least_once/window.py) aims at answers within a second.
LOG_BYTES_MAX = 32 << 20
QUEUE_KBYTES = "queue.buffering.max.kbytes"  # bounds memory while a backlog drains


def queue_kbytes_of(settings: Mapping[str, Any], kbytes: int = 65_536) -> int:
    """What the settings say; otherwise this size, or more if the largest record needs more."""
    record_bytes_max = int(settings.get("message.max.bytes", MESSAGE_BYTES_MAX))
    return int(settings.get(QUEUE_KBYTES, max(kbytes, -(-record_bytes_max // 1024))))


def over_queue(value_bytes: int, kbytes: int) -> str | None:
    """Why a queue of this size never takes such a value; None if it does. The client would only answer
    that its queue is full now. It counts values, without keys and headers (measured)."""
    if value_bytes <= kbytes * 1024:
        return None
    return f"its value has {value_bytes} bytes, over {QUEUE_KBYTES}={kbytes}"
