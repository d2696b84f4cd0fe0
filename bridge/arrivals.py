"""Reading back: what arrived in the destination before a crash, so that it is not sent again."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from bridge.engine import LaneKey
    from bridge.kafka import ReadBack
    from bridge.lanes import LaneNote

__all__ = ["read_back"]

SETTLE_S = 0.25  # after an unclean stop: a predecessor's last request may still be landing
SETTLE_MAX_S = 5.0


def read_back(
    reader: ReadBack,
    lanes: dict[LaneKey, LaneNote],
    source: bytes,
    *,
    below: int,
    clean: bool,
    distrusts: Callable[[LaneKey], bool],
) -> dict[LaneKey, int]:
    """The last address that each lane holds of `source`, below an address. The notes move on.

    clean: nothing was in flight when the predecessor stopped; otherwise it waits until that
    one's last request has landed. Partitions that are gone hold nothing. Raises NotReachable.
    """
    there = {topic: reader.partitions(topic) for topic in {key[0] for key in lanes}}
    lanes = {
        key: note
        for key, note in lanes.items()
        if key[1] < there[key[0]] and not distrusts(key)
    }  # fmt: skip  # one condition a line
    held = {key: note.address for key, note in lanes.items()}
    seen: dict[LaneKey, int] = {}
    settle_until_s = time.monotonic() + SETTLE_MAX_S
    while True:
        moved = False
        for key, note in lanes.items():
            first, end = reader.ends(key)
            if end == seen.get(key):
                continue
            seen[key], moved = end, True
            begin = max(min(note.offset, end), first)  # beyond the end: the topic is a new one
            if begin < end:
                stamp = reader.last_stamp(key, source, begin, end, below)
                held[key] = max(held[key], -1 if stamp is None else stamp)
            note.offset, note.address = max(begin, end - 1), held[key]
        if clean or not moved or time.monotonic() > settle_until_s:
            return held
        time.sleep(SETTLE_S)
